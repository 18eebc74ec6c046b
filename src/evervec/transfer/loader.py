"""Saves the records of an exported file, with the vectors that this store's model would make.

Each batch is one transaction of `save`, the same as for `add`; a worker writes the vectors. So an
import that is killed can be repeated: what it saved is unchanged then.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evervec.embedding.registry import EmbedderRegistry
from evervec.errors import EvervecError, InvalidArgument, InvalidRecord
from evervec.model.records import Chunk, ModelSpec
from evervec.model.reports import Imported
from evervec.records.drafts import check_name, make_draft
from evervec.records.vectors import HASH_BYTES, Target, pack_vectors, unit_rows
from evervec.records.writer import save_each
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.stores.values import Draft, GivenVectors, Merge
from evervec.tables.tables import Tables
from evervec.transfer.columns import FORMAT_NAME, FORMAT_NUMBER, parquet_file, schema

Row = dict[str, Any]
Batch = tuple[list[Row], list[NDArray[np.float32]]]
"""rows, and the vectors of each"""
_ROUNDING = 0.01
"""by how much an index may round the numbers of a vector"""


@dataclass(eq=False, repr=False)
class Loader:
    """Saves files for one tenant."""

    _store: Store
    _settings: Settings
    _tenant: str
    _models: EmbedderRegistry
    _tables: Tables
    _target: Callable[[str], Target]

    def load(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool,
        progress: Callable[[int], object] | None,
    ) -> Imported:
        total = Imported()
        for rows, vectors in _batches(path, self._settings.add_batch):
            both = zip(rows, vectors, strict=True)
            for kind, group in groupby(both, lambda pair: pair[0]["kind"]):
                total = total.plus(self._save(kind, list(group), overwrite, total.records))
            if progress is not None:
                progress(len(rows))
        return total

    def _save(
        self,
        kind: str,
        rows: Sequence[tuple[Row, NDArray[np.float32]]],
        overwrite: bool,
        position: int,
    ) -> Imported:
        try:
            check_name("kind", kind)
        except InvalidArgument as error:
            raise InvalidRecord(str(error), position=position) from None
        target = self._target_of(kind)
        drafts = []
        for place, (row, own) in enumerate(rows, position):
            try:
                draft = _draft(row, self._settings)
            except InvalidRecord as error:
                raise InvalidRecord(str(error), position=place) from None
            draft.merge = Merge.OVERWRITE if overwrite else Merge.NEWER
            if target is not None and row["chunks"] and self._makes(row, target):
                draft.given = GivenVectors(target.key, _packed(row, own, place))
            drafts.append(draft)
        self._tables.check_writable(kind)
        saved = unchanged = 0
        for place, ticket in enumerate(
            save_each(self._store.changes, self._tenant, kind, drafts), position
        ):
            if isinstance(ticket, EvervecError):
                raise InvalidRecord(str(ticket), position=place) from ticket
            saved += ticket.enqueued
            unchanged += ticket.accepted and not ticket.enqueued
        given = sum(draft.given is not None for draft in drafts)
        return Imported(len(rows), saved, unchanged, len(rows) - saved - unchanged, given)

    def _target_of(self, kind: str) -> Target | None:
        """None: this process has no model for the kind, so the texts are embedded by another."""
        try:
            return self._target(kind)
        except InvalidArgument:
            return None

    def _makes(self, row: Row, target: Target) -> bool:
        """Whether the target's model made the row's vectors."""
        made = ModelSpec(row["embedding_version"], row["provider"], row["model"], row["dimensions"])
        return any(model.key == target.key and model.makes(made) for model in self._models)


def _draft(row: Row, settings: Settings) -> Draft:
    if row["id"] is None:  # a new one would make another record whenever this is repeated
        raise InvalidRecord("id: is missing")
    options = {**row, "metadata": _json(row, "metadata") or {}}
    _json(row, "data")  # it is kept as text, but must be JSON
    return make_draft(options.pop("text"), options, settings, data=row["data"] or None)


def _json(row: Row, name: str) -> Any:
    try:
        return json.loads(row[name]) if row[name] else None
    except (ValueError, RecursionError) as error:
        raise InvalidRecord(f"{name}: is not JSON: {error}") from None


def _packed(row: Row, vectors: NDArray[np.float32], position: int) -> bytes:
    units = _units(row, vectors)
    if units is None:
        raise InvalidRecord(
            "vectors: do not fit the chunks, or are not of length one; the file is damaged: export "
            "again",
            position=position,
        )
    return pack_vectors([Chunk(**chunk) for chunk in row["chunks"]], units)


def _units(row: Row, vectors: NDArray[np.float32]) -> NDArray[np.float32] | None:
    """One vector for each chunk, of length one; None if the file is damaged."""
    chunks = row["chunks"]
    if not all(chunk and len(chunk["hash"] or b"") == HASH_BYTES for chunk in chunks):
        return None
    if vectors.size != len(chunks) * row["dimensions"]:
        return None
    rows = vectors.reshape(len(chunks), -1)
    try:
        units = unit_rows(rows)
    except InvalidRecord:  # zero, or not finite
        return None
    return units if abs(units - rows).max() <= _ROUNDING else None


def _batches(path: str | os.PathLike[str], size: int) -> Iterator[Batch]:
    with parquet_file(path) as file:
        found = file.schema_arrow
        number = (found.metadata or {}).get(FORMAT_NAME)
        if number is None:
            raise InvalidArgument(f"{path} is not a file that evervec exported")
        if number != FORMAT_NUMBER:
            raise InvalidArgument(
                f"{path} has format {number.decode(errors='replace')}, and this version of evervec "
                f"reads format {FORMAT_NUMBER.decode()}: import it with the version that exported it"
            )
        wanted = schema()
        if found.remove_metadata() != wanted.remove_metadata():
            raise InvalidArgument(f"{path} has other columns than evervec exports")
        yield from map(_read, file.iter_batches(size))


def _read(batch: Any) -> Batch:
    """The rows of a batch, and the vectors of each, one behind the other."""
    column = batch.column("vectors")
    places = batch.schema.get_field_index("vectors")
    rows: list[Row] = batch.remove_column(places).to_pylist()
    values = column.flatten().flatten().to_numpy(zero_copy_only=False)
    ends = np.cumsum([len(row["chunks"] or ()) * (row["dimensions"] or 0) for row in rows])
    if len(rows) and ends[-1] != len(values):
        raise InvalidArgument("the file has more or fewer vectors than chunks: export again")
    return rows, np.split(np.asarray(values, np.float32), ends[:-1]) if rows else []
