"""The rows of a table: one for each chunk of a record, by its position in the record.

A removed record keeps an empty row at its first position, a tombstone, whose seq stops late writes.
All rows of a record have the seq of its last change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from evervec.indexes.base import Copy, Held
from evervec.indexes.facts import Facts, facts_of
from evervec.model.records import Change

if TYPE_CHECKING:
    from numpy.typing import NDArray

NOTHING = Facts([], [], [], [])
Row = dict[str, Any]
KNOWN_BY = ("record", "tenant", "hash", "seq")
"""the columns that identify a point in `verify`"""
_to_json = json.JSONEncoder(ensure_ascii=False).encode


def schema(dimensions: int) -> pa.Schema:
    listed = pa.list_(pa.string())
    return pa.schema(
        [
            ("id", pa.string()),
            ("record", pa.int64()),
            ("seq", pa.int64()),
            ("tenant", pa.string()),
            ("kind", pa.string()),
            ("record_id", pa.string()),
            ("position", pa.int32()),
            ("hash", pa.binary()),
            ("text", pa.string()),
            ("metadata", pa.string()),
            ("weight", pa.float64()),
            ("updated_at", pa.timestamp("us", "UTC")),
            ("removed_at", pa.float64()),
            ("terms", listed),
            ("fields", listed),
            ("least", listed),
            ("most", listed),
            ("vector", pa.list_(pa.float32(), dimensions)),
        ]
    )


class Columns:
    """New rows of a table, column by column."""

    def __init__(self, dimensions: int) -> None:
        self._schema = schema(dimensions)
        self._dimensions = dimensions
        self._rows: dict[str, tuple[Any, ...]] = {}
        self._nothing = np.zeros(dimensions, np.float32)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, id: str) -> bool:
        return id in self._rows

    def add(self, change: Change, there: Mapping[bytes, Row], now: float) -> None:
        """Add the rows that a record is to have; `there`: its present rows, by hash."""
        whose = (change.record, change.seq, change.tenant, change.kind, change.id)
        moment = round(change.updated_at * 1e6)
        if not change.points and not change.kept:
            nothing = ("{}", change.weight, moment, now, *NOTHING)
            self._put(whose, 0, b"", "", nothing, self._nothing)
            return
        metadata = _to_json(dict(change.metadata))
        what = (metadata, change.weight, moment, None, *facts_of(change.metadata))
        for hash, place in change.kept.items():
            if hash in there:
                row = there[hash]
                self._put(whose, place, hash, row["text"], what, row["vector"])
        for p in change.points:
            self._put(whose, p.position, p.hash, p.text, what, p.vector)

    def _put(
        self,
        whose: tuple[Any, ...],
        place: int,
        hash: bytes,
        text: str,
        what: tuple[Any, ...],
        vector: NDArray[np.float32],
    ) -> None:
        id = f"{whose[0]}/{place}"
        self._rows[id] = (id, *whose, place, hash, text, *what, vector)

    def as_table(self) -> pa.Table:
        """All rows, in the order of the schema."""
        *columns, vectors = zip(*self._rows.values(), strict=True)
        made = [
            pa.array(column, field.type)
            for column, field in zip(columns, self._schema, strict=False)
        ]
        flat = pa.array(np.concatenate(vectors).astype(np.float32, copy=False))
        made.append(pa.FixedSizeListArray.from_arrays(flat, self._dimensions))
        return pa.table(made, schema=self._schema)


def as_rows(found: pa.Table) -> list[Row]:
    """Rows in order, vectors as arrays."""
    names = [name for name in found.column_names if name != "vector"]
    columns = [found.column(name).to_pylist() for name in names]
    rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    if "vector" in found.column_names and rows:
        flat = found.column("vector").combine_chunks().flatten().to_numpy()
        for row, vector in zip(rows, flat.reshape(len(rows), -1), strict=True):
            row["vector"] = vector
    return rows


def by_hash(rows: Iterable[Row]) -> dict[bytes, Row]:
    return {row["hash"]: row for row in rows if row["removed_at"] is None}


def held_of(row: Row) -> Held:
    with np.errstate(all="ignore"):
        sound = bool(abs(row["vector"] @ row["vector"] - 1) < 0.01)
    copy = Copy(row["text"] or "", _metadata(row["metadata"]))
    record, tenant, hash, seq = (row[name] for name in KNOWN_BY)
    return Held(record, tenant, hash, seq, row["_rowid"], sound, copy)


def _metadata(said: str | None) -> dict[str, Any]:
    """The metadata as written; if others changed it into something else, a value that never
    matches."""
    try:
        return dict(json.loads(said or ""))
    except (ValueError, TypeError):
        return {"": said}
