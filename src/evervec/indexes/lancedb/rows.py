"""What a table holds: one row for each chunk of a record, by its place in the record.

Where a record was removed, its first place keeps a row without content, a tombstone, whose
seq stops whatever comes late. All rows of a record have the seq of its last change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from evervec.indexes.facts import Facts, facts_of
from evervec.model import Change

if TYPE_CHECKING:
    from numpy.typing import NDArray

NOTHING = Facts([], [], [], [])
Row = dict[str, Any]


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


def place_id(record: int, position: int) -> str:
    return f"{record}/{position}"


def rows_of(
    change: Change, there: Mapping[bytes, Row], nothing: NDArray[np.float32], now: float
) -> list[Row]:
    """The rows that a record is to have; `there`: those that it has, by hash."""
    common: Row = {
        "record": change.record,
        "seq": change.seq,
        "tenant": change.tenant,
        "kind": change.kind,
        "record_id": change.id,
        "weight": change.weight,
        "updated_at": round(change.updated_at * 1e6),
    }
    if not change.points and not change.kept:
        return [_row(common, NOTHING, 0, b"", "", nothing) | {"metadata": "{}", "removed_at": now}]
    facts = facts_of(change.metadata)
    common["metadata"] = json.dumps(dict(change.metadata), ensure_ascii=False)
    common["removed_at"] = None
    made = [_row(common, facts, p.position, p.hash, p.text, p.vector) for p in change.points]
    made += [
        _row(common, facts, place, hash, there[hash]["text"], there[hash]["vector"])
        for hash, place in change.kept.items()
        if hash in there
    ]
    return made


def _row(
    common: Row, facts: Facts, place: int, hash: bytes, text: str, vector: NDArray[np.float32]
) -> Row:
    return {
        **common,
        **facts._asdict(),
        "id": place_id(common["record"], place),
        "position": place,
        "hash": hash,
        "text": text,
        "vector": vector,
    }


def as_table(rows: Sequence[Row], dimensions: int) -> pa.Table:
    shape = schema(dimensions)
    columns = []
    for field in shape:
        if field.name == "vector":
            block = np.concatenate([row["vector"] for row in rows]).astype(np.float32, copy=False)
            columns.append(pa.FixedSizeListArray.from_arrays(pa.array(block), dimensions))
        else:
            columns.append(pa.array([row[field.name] for row in rows], field.type))
    return pa.table(columns, schema=shape)


def as_rows(found: pa.Table) -> list[Row]:
    """Rows as they came, vectors as arrays."""
    names = [name for name in found.column_names if name != "vector"]
    columns = [found.column(name).to_pylist() for name in names]
    rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    if "vector" in found.column_names and rows:
        flat = found.column("vector").combine_chunks().flatten().to_numpy()
        for row, vector in zip(rows, flat.reshape(len(rows), -1), strict=True):
            row["vector"] = vector
    return rows
