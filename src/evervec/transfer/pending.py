"""Bulk embedding: waiting texts go to a file, are embedded anywhere, and their vectors come back.

`export` claims nothing: workers go on beside it. `import_` leases the jobs of the rows and goes the
way of a worker, except that it finds the vectors in the file instead of asking a provider: it reads
the record again, chunks it, and finishes its job with the lease's token. So a row is only written
if the record is still as it was exported, and nothing else can be written than a worker would have.
A row that is refused changes nothing: the job stays in the queue, or another worker has done it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evervec.errors import InvalidArgument, InvalidRecord, StoreError
from evervec.indexes.base import patience
from evervec.model.jobs import Job, Status
from evervec.model.records import ModelSpec
from evervec.model.reports import Exported, ImportedVectors
from evervec.records.vectors import unit_rows
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.transfer.columns import REPEATED, parquet_file, pyarrow
from evervec.transfer.export import model_columns, whole_file
from evervec.worker.batch import Batch
from evervec.worker.pipeline import Pipeline

log = logging.getLogger("evervec")

_JOBS = 5000
"""jobs that are read at once"""
_ROWS = 2000
"""rows that are leased and written at once"""
_PATIENCE = 60.0
"""seconds that an import waits for other writers of the index"""

Progress = Callable[[int], object]
Vectors = Mapping[bytes, NDArray[np.float32]]


def pending_schema() -> Any:
    """One row for each record that waits; `hashes` and `texts` are its chunks to embed."""
    pa, _ = pyarrow()
    columns = {
        "kind": pa.string(), "id": pa.string(), "job": pa.int64(), "seq": pa.int64(),
        "provider": pa.string(), "model": pa.string(), "dimensions": pa.int32(),
        "embedding_version": pa.string(),
        "hashes": pa.list_(pa.binary()), "texts": pa.list_(pa.string()),
    }  # fmt: skip
    return pa.schema(list(columns.items()))


_NEEDED = (
    "kind", "id", "job", "seq", "provider", "model", "dimensions", "embedding_version", "hashes",
    "vectors",
)  # fmt: skip


@dataclass(eq=False, repr=False)
class PendingTexts:
    """The texts of one tenant that wait to be embedded."""

    _store: Store
    _pipeline: Pipeline
    _tenant: str

    def export(
        self, path: str | os.PathLike[str], kind: str | None, progress: Progress | None
    ) -> Exported:
        pa, pq = pyarrow()
        if not self._pipeline.served.refresh() and self._store.versions.collections():
            raise InvalidArgument(
                "this process has no model for the waiting records: open the store with the "
                "embedder whose vectors it serves; only its tokenizer is used"
            )
        records = chunks = 0
        with (
            whole_file(path) as file,
            pq.ParquetWriter(
                file,
                pending_schema(),
                compression="zstd",
                use_dictionary=REPEATED,
                write_page_checksum=True,
            ) as out,
        ):
            for batch in self._batches(kind):
                rows = [row for item in batch.items if (row := _row(batch, item)) is not None]
                if rows:
                    out.write_batch(pa.RecordBatch.from_pylist(rows, pending_schema()))
                records += len(rows)
                chunks += sum(len(row["texts"]) for row in rows)
                if progress is not None:
                    progress(len(batch.items))
        return Exported(records, 0, chunks)

    def _batches(self, kind: str | None) -> Iterator[Batch]:
        after = 0
        while jobs := self._store.jobs.page(
            self._tenant, status=Status.PENDING, kind=kind, after=after, limit=_JOBS
        ):
            after = jobs[-1].job_id
            served = self._pipeline.served.refresh()
            yield from self._pipeline.prepare_all([job for job in jobs if job.version in served])


def _row(batch: Batch, item: Any) -> dict[str, Any] | None:
    """None: nothing of the record is to be embedded."""
    if item.error is not None or item.waits is not None or not item.fresh:
        return None
    job: Job = item.job
    return {
        "kind": job.kind, "id": job.record_id, "job": job.job_id, "seq": item.seq,
        "hashes": list(item.fresh), "texts": [text for _, text in item.fresh.values()],
        **model_columns(batch.model.spec),
    }  # fmt: skip


@dataclass(eq=False, repr=False)
class VectorImport:
    """Writes vectors that were made elsewhere, for one tenant."""

    _store: Store
    _pipeline: Pipeline
    _tenant: str
    _settings: Settings

    def run(self, path: str | os.PathLike[str], progress: Progress | None) -> ImportedVectors:
        records = written = invalid = 0
        with patience(_PATIENCE):
            for rows, vectors in _read_rows(path):
                self._check_models(rows)
                good = {
                    row["job"]: (row, made)
                    for row, made in zip(rows, vectors, strict=True)
                    if made is not None
                }
                records += len(rows)
                invalid += vectors.count(None)
                written += self._write(good)
                if progress is not None:
                    progress(len(rows))
        if invalid:
            log.warning("%d rows of %s have no valid vectors", invalid, path)
        return ImportedVectors(records, written, records - written - invalid, invalid)

    def _check_models(self, rows: Sequence[dict[str, Any]]) -> None:
        """Refuse a file whose vectors are of no model that this process serves."""
        self._pipeline.served.refresh()
        for name, provider, model, dimensions in {
            (r["embedding_version"], r["provider"], r["model"], r["dimensions"]) for r in rows
        }:
            spec = ModelSpec(name, provider, model, dimensions)
            if not any(served.makes(spec) for served in self._pipeline.served.models.values()):
                raise InvalidArgument(
                    f"the vectors are of {provider} {model!r} ({dimensions} dimensions), which "
                    "this store is not embedded with: export the waiting records again"
                )

    def _write(self, rows: Mapping[int, tuple[dict[str, Any], Vectors]]) -> int:
        """Write the rows whose record is unchanged; returns how many."""
        queue = self._pipeline.queue
        jobs = self._store.leases.claim_chosen(
            list(rows), tenant=self._tenant, worker=queue.worker, lease=self._settings.lease_seconds
        )
        left = {job.job_id: job for job in jobs}
        try:
            same = [job for job in jobs if self._is_unchanged(job, rows[job.job_id][0])]
            written = 0
            for batch in self._pipeline.prepare_all(same):
                for item in batch.items:
                    made = rows[item.job.job_id][1]
                    for hash in item.fresh.keys() & made.keys():
                        batch.vectors[batch.rows[hash]] = made[hash]
                written += self._pipeline.write(batch).succeeded
                for job in (*batch.jobs, *batch.gone):
                    left.pop(job.job_id, None)
            return written
        finally:
            if left:
                try:
                    queue.release_many(list(left.values()))
                except StoreError as error:
                    log.warning("%d jobs wait until their leases expire: %s", len(left), error)

    def _is_unchanged(self, job: Job, row: Mapping[str, Any]) -> bool:
        return (
            (job.kind, job.record_id, job.seq) == (row["kind"], row["id"], row["seq"])
            and job.version in self._pipeline.served.models
            and self._pipeline.served.models[job.version].spec.name == row["embedding_version"]
        )


def _read_rows(
    path: str | os.PathLike[str],
) -> Iterator[tuple[list[dict[str, Any]], list[Vectors | None]]]:
    """Rows without their vectors, and the vectors of each, of a file or of all files in a folder."""
    pa, _ = pyarrow()
    files = sorted(Path(path).rglob("*.parquet")) if Path(path).is_dir() else [Path(path)]
    if not files:
        raise InvalidArgument(f"{path} has no files *.parquet")
    for name in files:
        with parquet_file(name) as file:
            if missing := [c for c in _NEEDED if c not in file.schema_arrow.names]:
                raise InvalidArgument(
                    f"{name} lacks the columns {', '.join(missing)}: keep those of the export, "
                    "and add `vectors`, a list of vectors for each record"
                )
            # other programs may have written other types, such as a job's number as text
            types = pa.schema([pending_schema().field(name) for name in _NEEDED[:-1]])
            for batch in file.iter_batches(_ROWS, columns=list(_NEEDED)):
                chosen = pa.Table.from_batches([batch]).select(types.names)
                rows = chosen.cast(types).to_pylist()
                yield rows, _made(rows, batch.column("vectors"))


def _made(rows: Sequence[Mapping[str, Any]], column: Any) -> list[Vectors | None]:
    """The vectors of each row by the hashes of their chunks; None for rows that are not valid."""
    try:
        inner = column.flatten()
        values = np.asarray(inner.flatten().to_numpy(zero_copy_only=False), np.float32)
        sizes = np.nan_to_num(inner.value_lengths().to_numpy(zero_copy_only=False))
    except (AttributeError, TypeError, ValueError):  # not lists of vectors
        return [None] * len(rows)
    counts = np.nan_to_num(column.value_lengths().to_numpy(zero_copy_only=False))
    starts = np.concatenate([[0], np.cumsum(sizes.astype(np.int64))]).tolist()
    ends = np.cumsum(counts.astype(np.int64)).tolist()
    units, are_units = _units(values, sizes)
    made: list[Vectors | None] = []
    for row, first, end in zip(rows, [0, *ends], ends, strict=False):
        flat = units[starts[first] : starts[end]]
        made.append(_by_hash(row, flat, end - first, are_units))
    return made


def _units(values: NDArray[np.float32], sizes: NDArray[Any]) -> tuple[NDArray[np.float32], bool]:
    """The values with all vectors normalised at once, which takes a tenth of the time; and whether
    that was possible."""
    if len(sizes) and sizes[0] and (sizes == sizes[0]).all():
        with suppress(InvalidRecord):
            return unit_rows(values.reshape(len(sizes), -1)).reshape(-1), True
    return values, False


def _by_hash(
    row: Mapping[str, Any], flat: NDArray[np.float32], count: int, are_units: bool
) -> Vectors | None:
    hashes, dimensions = row["hashes"], row["dimensions"]
    if hashes is None or row["job"] is None or not dimensions:
        return None
    if not count or count != len(hashes) or flat.size != count * dimensions:
        return None
    matrix = flat.reshape(count, dimensions)
    try:
        return dict(zip(hashes, matrix if are_units else unit_rows(matrix), strict=True))
    except InvalidRecord:  # zero, or not finite
        return None
