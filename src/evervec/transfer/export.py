"""Writes a tenant's records with their vectors to a file.

Records are read by kind and id, some hundred at once. Each is complete in itself: a record and its
chunks are read in one snapshot, and a chunk's vector is found by the hash of its text, so a record
that changes meanwhile has the vectors of its own text or none.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evervec.errors import EvervecError, InvalidArgument
from evervec.indexes.base import Index
from evervec.model.basics import as_datetime
from evervec.model.bounds import shown
from evervec.model.records import ModelSpec
from evervec.model.reports import Exported
from evervec.stores.base import Store
from evervec.stores.values import Collection, ExportedRecord
from evervec.transfer.columns import REPEATED, pyarrow, schema

_AT_ONCE = 500
_ROW_GROUP = 16 << 20
"""bytes of a row group, about; also the size of texts after which fewer records are read at once"""


@dataclass(eq=False, repr=False)
class Exporter:
    """The records of one tenant."""

    _store: Store
    _index: Index
    _tenant: str

    def export(
        self,
        path: str | os.PathLike[str],
        kind: str | None,
        *,
        vectors: bool,
        progress: Callable[[int], object] | None,
    ) -> Exported:
        """Write the file; it has its name only when it is complete and on disk."""
        with whole_file(path) as file:
            return self._write(file, kind, vectors, progress)

    def _write(
        self, file: Any, kind: str | None, vectors: bool, progress: Callable[[int], object] | None
    ) -> Exported:
        pa, pq = pyarrow()
        known = sorted(self._store.versions.kinds(self._tenant))
        if kind is not None and kind not in known:
            raise InvalidArgument(
                f"there is no kind {shown(kind)}: this tenant has {', '.join(known) or 'none'}"
            )
        kinds = known if kind is None else [kind]
        records = with_vectors = chunks = size = 0
        waiting: list[Any] = []
        with pq.ParquetWriter(
            file, schema(), compression="zstd", use_dictionary=REPEATED, write_page_checksum=True
        ) as out:
            for name in kinds:
                for rows in self._rows(name, vectors):
                    batch = pa.RecordBatch.from_pylist(rows, schema())
                    waiting.append(batch)
                    size += batch.nbytes
                    records += len(rows)
                    complete = [row["chunks"] for row in rows if row["chunks"] is not None]
                    with_vectors += len(complete)
                    chunks += sum(map(len, complete))
                    if size > _ROW_GROUP:
                        out.write_table(pa.Table.from_batches(waiting), row_group_size=1 << 30)
                        waiting, size = [], 0
                    if progress is not None:
                        progress(len(rows))
            if waiting:
                out.write_table(pa.Table.from_batches(waiting), row_group_size=1 << 30)
        return Exported(records, with_vectors, chunks)

    def _rows(self, kind: str, vectors: bool) -> Iterator[list[dict[str, Any]]]:
        after, limit = "", _AT_ONCE
        while True:
            serving = self._serving(kind) if vectors else None
            number = serving.version if serving else 0
            found = self._store.records.exported(self._tenant, kind, number, after, limit)
            if not found:
                return
            yield self._joined(kind, serving, found)
            after, length = found[-1].id, sum(len(record.text) for record in found)
            if length > _ROW_GROUP:
                limit = max(1, len(found) * _ROW_GROUP // length)
            else:
                limit = min(_AT_ONCE, 2 * limit)

    def _serving(self, kind: str) -> Collection | None:
        for collection in self._store.versions.collections():
            if collection.kind == kind and collection.state == "serving" and collection.spec:
                return collection
        return None

    def _joined(
        self, kind: str, serving: Collection | None, found: list[ExportedRecord]
    ) -> list[dict[str, Any]]:
        """Rows of the file; those of records that are embedded with their vectors."""
        embedded = [record.record for record in found if record.chunks]
        stored = self._index.vectors(serving.version, embedded) if serving and embedded else {}
        rows = []
        for record in found:
            row = _row(kind, record)
            by_hash = {point.hash: point.vector for point in stored.get(record.record, ())}
            if record.chunks and serving and all(c.hash in by_hash for c in record.chunks):
                row |= model_columns(serving.spec)
                row["chunks"] = [chunk._asdict() for chunk in record.chunks]
                row["vectors"] = [by_hash[chunk.hash] for chunk in record.chunks]
            rows.append(row)
        return rows


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Any]:
    """A file to write; it has its name only when it is complete and on disk. Raises `EvervecError`
    if it cannot be written."""
    pyarrow()
    whole, name = Path(path), None
    try:
        handle, name = tempfile.mkstemp(".partial", f".{whole.name}.", whole.parent)
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, whole)
    except BaseException as error:
        if name is not None:
            with suppress(OSError):
                os.unlink(name)
        if isinstance(error, OSError):
            raise EvervecError(f"{whole} cannot be written: {error.strerror or error}") from error
        raise


def _row(kind: str, record: ExportedRecord) -> dict[str, Any]:
    return {
        "kind": kind, "id": record.id, "seq": record.seq, "version": record.version,
        "title": record.title, "text": record.text, "metadata": record.metadata,
        "data": record.data, "weight": record.weight,
        "created_at": as_datetime(record.created_at), "updated_at": as_datetime(record.updated_at),
        "chunks": None,
    }  # fmt: skip


def model_columns(spec: ModelSpec | None) -> dict[str, Any]:
    if spec is None:
        return {}
    return {
        "provider": spec.provider, "model": spec.model, "dimensions": spec.dimensions,
        "embedding_version": spec.name,
    }  # fmt: skip
