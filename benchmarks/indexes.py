"""Indexes apart from the store: what evervec adds to the engine, and what many edits leave behind.

Each engine takes the same points directly, with the same payload and indexes of it, but with
no guard against late writes, no tombstones and no look for leftovers. LanceDB is compacted
after every 32 commits on that side too, and merges by a scan there as well, without which it
would be the slower one. Qdrant's engine is the embedded one: a server is not to be had here, and
the client's local mode is a stand-in for its meaning, not for its speed.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

import evervec
from benchmarks.made_up import DIMENSIONS, NoCost, texts, vectors
from benchmarks.rounds import percentiles
from benchmarks.table import Line, at_most
from evervec.chunking import hash_text
from evervec.indexes.base import Query
from evervec.model.filters import parse_filter
from evervec.model.records import Change, Point

_BATCH, _TENANTS, _SHELVES, _LIMIT = 256, 10, 10, 30
Vector = NDArray[np.float32]
Put = Callable[[list["Row"]], object]
Calls = list[dict[str, Callable[[], object]]]
Ask = Callable[[str, int, Vector], list[int]]


class Row:
    """A record of one chunk."""

    def __init__(self, number: int, text: str, vector: Vector, seq: int = 1) -> None:
        self.number, self.text, self.vector, self.seq = number, text, vector, seq
        self.tenant, self.shelf = f"tenant-{number % _TENANTS}", number // _TENANTS % _SHELVES

    @property
    def metadata(self) -> dict[str, Any]:
        return {"agent": f"agent-{self.shelf}", "pages": self.number % 97}

    def change(self, version: int) -> Change:
        point = Point(hash_text(self.text), 0, self.text, self.vector)
        return Change(
            self.number, version, self.tenant, "note", str(self.number), self.seq, [point],
            metadata=self.metadata,
        )  # fmt: skip


def run(*, quick: bool) -> Sequence[Line]:
    lines: list[Line] = []
    for name, url, direct in (
        ("LanceDB", "lancedb://{}/vectors", _lancedb),
        ("qdrant-edge", "qdrant-edge://{}/edge", _edge),
    ):
        with TemporaryDirectory(prefix="evervec-bench-") as folder:
            lines += _beside(name, Path(folder), url, direct, 20 if quick else 120)
    return [*lines, *_edits(300 if quick else 2000)]


def _beside(
    name: str, folder: Path, url: str, direct: Callable[[Path], tuple[Put, Ask]], batches: int
) -> Iterator[Line]:
    """Batch by batch and question by question in turns, so that a slow moment is nobody's alone.
    Means of writes, so that what is put off counts too; the middle of searches."""
    ev, version = _open(folder, url)
    (folder / "direct").mkdir()
    ways = {"evervec": _ways(ev, version), "direct": direct(folder / "direct")}
    with ev:
        for what, some in (
            ("load a batch", _rows(batches * _BATCH)),
            ("write a batch again", _rows(batches // 2 * _BATCH, seq=2)),
        ):
            calls: Calls = [
                {n: partial(put, b) for n, (put, _) in ways.items()} for b in _batches(some)
            ]
            spent = {n: 1000 * float(np.mean(s)) for n, s in _in_turns(calls).items()}
            yield _line(name, what, spent)
        asked = _in_turns(_questions({n: ask for n, (_, ask) in ways.items()}, 200))
        yield _line(name, "filtered search", {n: percentiles(s)[0] for n, s in asked.items()})


def _line(name: str, what: str, spent: dict[str, float]) -> Line:
    mine, other = spent["evervec"], spent["direct"]
    return Line(f"{name}: {what}", "ms", mine, "called directly", other, at_most(1.3))


def _in_turns(calls: Calls) -> dict[str, list[float]]:
    """Seconds of each call, by who makes it; another is first each time."""
    spent: dict[str, list[float]] = {name: [] for name in calls[0]}
    for turn, ways in enumerate(calls):
        for name in sorted(ways, reverse=turn % 2 == 1):
            start = time.perf_counter()
            ways[name]()
            spent[name].append(time.perf_counter() - start)
    return spent


def _batches(rows: list[Row]) -> Iterator[list[Row]]:
    return (rows[first : first + _BATCH] for first in range(0, len(rows), _BATCH))


def _rows(count: int, seq: int = 1) -> list[Row]:
    made, block = texts(count, 40, seed=seq), vectors(count, seed=seq)
    return [Row(n, text, block[n - 1], seq) for n, text in enumerate(made, 1)]


def _questions(ways: dict[str, Ask], count: int) -> Calls:
    return [
        {n: partial(ask, f"tenant-{p % _TENANTS}", p % _SHELVES, v) for n, ask in ways.items()}
        for p, v in enumerate(vectors(count, seed=3))
    ]


# through evervec
def _open(folder: Path, url: str) -> tuple[evervec.Evervec, int]:
    ev = evervec.open("memory:", index=url.format(folder), embedder=NoCost())
    ev.add("note", "adopts the collection", id="first")
    ev.process_all()
    return ev, ev.store.versions.collections()[0].version


def _ways(ev: evervec.Evervec, version: int) -> tuple[Put, Ask]:
    def put(rows: list[Row]) -> None:
        ev.index.apply([row.change(version) for row in rows])

    def ask(tenant: str, shelf: int, vector: Vector) -> list[int]:
        found = ev.index.search(
            Query(version, tenant, vector, _LIMIT, parse_filter({"agent": f"agent-{shelf}"}))
        )
        return list(found.records)

    return put, ask


# directly
def _lancedb(folder: Path) -> tuple[Put, Ask]:
    import lancedb
    from lancedb.index import Bitmap, BTree, LabelList

    from evervec.indexes.lancedb.rows import Columns, schema

    table = lancedb.connect(folder).create_table("notes", schema=schema(DIMENSIONS))
    kinds = {"id": BTree(), "record": BTree(), "tenant": Bitmap(), "terms": LabelList()}
    for column, index in kinds.items():
        table.create_index(column, config=index)
    commits = 0

    def put(rows: list[Row]) -> None:
        nonlocal commits
        columns = Columns(DIMENSIONS)
        for row in rows:
            columns.add(row.change(1), {}, 0.0)
        merge = table.merge_insert("id").when_matched_update_all(where="source.seq > target.seq")
        merge.when_not_matched_insert_all().use_index(False).execute(columns.as_table())
        commits += 1
        if commits % 32 == 0:
            table.optimize(cleanup_older_than=timedelta(milliseconds=1))

    def ask(tenant: str, shelf: int, vector: Vector) -> list[int]:
        where = f"tenant = '{tenant}' and array_has(terms, '\"agent\"=sagent-{shelf}')"
        query = table.search(vector).distance_type("cosine").where(where, prefilter=True)
        found = query.select(["record", "_distance"]).limit(2 * _LIMIT + 8).to_arrow()
        return list(found.column("record").to_pylist())

    return put, ask


def _edge(folder: Path) -> tuple[Put, Ask]:
    import qdrant_edge as edge

    from evervec.indexes.qdrant.edge import open_folder
    from evervec.indexes.qdrant.engine import Shape

    engine = open_folder(str(folder), "")
    engine.ensure("notes", Shape(DIMENSIONS, "", 0, 0))
    shard = engine._shards["notes"]._engine

    def point(row: Row) -> edge.Point:
        payload = {
            "tenant": row.tenant, "kind": "note", "version": 1, "record": row.number,
            "id": str(row.number), "seq": row.seq, "metadata": row.metadata, "weight": 1.0,
            "updated_at": 0.0, "hash": hash_text(row.text).hex(), "position": 0, "text": row.text,
        }  # fmt: skip
        return edge.Point(str(uuid.UUID(int=row.number)), row.vector.tolist(), payload)

    def put(rows: list[Row]) -> None:
        shard.update(edge.UpdateOperation.upsert_points([point(row) for row in rows]))

    def ask(tenant: str, shelf: int, vector: Vector) -> list[int]:
        conditions: list[Any] = [
            edge.FieldCondition("tenant", match=edge.MatchValue(tenant)),
            edge.FieldCondition("metadata.agent", match=edge.MatchValue(f"agent-{shelf}")),
        ]
        request = edge.QueryRequest(
            2 * _LIMIT + 8, query=edge.Query.Nearest(vector.tolist()),
            filter=edge.Filter(must=conditions), with_payload=["record", "hash"],
        )  # fmt: skip
        return [point.payload["record"] for point in shard.query(request) if point.payload]

    return put, ask


# what many edits leave behind
def _edits(count: int) -> Iterator[Line]:
    """A table of 10,000 rows, then so many commits that change one record each, and as many more
    as it takes until it is about to be tidied, beside one that stays as it was: both are asked in
    turns."""
    rows = _rows(10_000)
    with (
        TemporaryDirectory(prefix="evervec-bench-") as name,
        TemporaryDirectory(prefix="evervec-bench-") as untouched,
    ):
        folder = Path(name)
        ev, put, ask = _filled(folder, rows)
        other, _, ask_other = _filled(Path(untouched), rows)
        with ev, other:
            spent: list[float] = []
            most = 0
            for seq in itertools.count(2):
                if len(spent) >= count and _nearly_untidy(ev):
                    break
                old = rows[seq * 7919 % len(rows)]
                start = time.perf_counter()
                put([Row(old.number, f"{old.text} {seq}", old.vector, seq)])
                spent.append(time.perf_counter() - start)
                if seq % 10 == 0:
                    most = max(most, _files(folder))
            asked = _in_turns(_questions({"edited": ask, "untouched": ask_other}, 200))
            took = {n: percentiles(s)[0] for n, s in asked.items()}
            what = f"LanceDB after {count:,} single edits"
            yield Line(
                f"{what}: search, p50", "ms", took["edited"], "as at the start",
                took["untouched"], at_most(1.5),
            )  # fmt: skip
            yield Line(f"{what}: files", "", _files(folder), target=at_most(200), own=True)
            yield Line(f"{what}: most files on the way", "", most, target=at_most(200), own=True)
            yield Line(f"{what}: one edit, p50", "ms", percentiles(spent)[0])


def _filled(folder: Path, rows: list[Row]) -> tuple[evervec.Evervec, Put, Ask]:
    ev, version = _open(folder, "lancedb://{}/vectors")
    put, ask = _ways(ev, version)
    for batch in _batches(rows):
        put(batch)
    ev.index._tables[version].writer.tidy()  # type: ignore[attr-defined]
    return ev, put, ask


def _nearly_untidy(ev: evervec.Evervec) -> bool:
    (table,) = ev.index._tables.values()  # type: ignore[attr-defined]
    return bool(table.writer._mine - table.writer._tidied == table.writer._patience - 1)


def _files(folder: Path) -> int:
    return sum(path.is_file() for path in folder.rglob("*"))
