"""PostgreSQL with 16 partitions beside one table: claims, finishes, purges, HNSW, and the move itself.

1,000,000 records with a job each, made by the database; of the vectors (384 dimensions), 100,000. One
process claims and finishes 500 at a time. Then the store of one table is split while one thread adds.
Quick: 50,000 records, 5,000 vectors.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import psycopg

import evervec
from benchmarks.made_up import DIMENSIONS, vectors
from benchmarks.pgsize import _purged
from benchmarks.postgres_server import FILL, database, execute, server
from benchmarks.rounds import Measured, percentiles, stopwatch
from benchmarks.table import Line
from evervec.indexes.pgvector import PgvectorIndex
from evervec.indexes.pgvector.table import PointsTable
from evervec.indexes.pgvector.vectors import pack_vectors
from evervec.stores.postgres.connections import Session

_PARTS = 16
_BATCH = 500
_AT_ONCE = 100_000


def run(*, quick: bool) -> Sequence[Line]:
    size = (50_000, 5_000, 5_000) if quick else (1_000_000, 100_000, 100_000)
    with server() as url:
        one, many = measure(url, 1, *size), measure(url, _PARTS, *size)
    name = "one table"
    lines = [
        Line(f"{what}, {_PARTS} partitions", unit, many[what], name, one[what])
        for what, unit in (
            ("claim of 500", "ms"), ("finish of 500", "ms"), ("drain", "jobs/s"),
            ("purge", "jobs/s"), ("HNSW build", "s"), ("add, p50", "ms"),
        )
    ]  # fmt: skip
    return [
        *lines,
        Line(f"move to {_PARTS}", "rows/s", one["move"], own=True),
        Line("add beside the move, p50", "ms", one["beside"], "without", one["add, p50"]),
        Line("add beside the move, longest", "ms", one["longest"], own=True),
    ]


def measure(url: str, parts: int, records: int, jobs: int, points: int) -> Measured:
    """One store; `jobs`: how many are claimed, finished and purged."""
    found: Measured = {}
    with (
        database(url) as place,
        evervec.open(place, embedder="noop", postgres_partitions=parts, hnsw_rows=1) as ev,
    ):
        ev.queue.enqueue("article", "first")
        ev.queue.finish(ev.queue.claim(1)[0])
        fill(place, records)
        claims, finishes = [], []
        for _ in range(jobs // _BATCH):
            with stopwatch() as watch:
                claimed = ev.queue.claim(_BATCH)
            claims.append(watch.seconds)
            with stopwatch() as watch:
                assert all(ev.queue.finish_many(claimed))
            finishes.append(watch.seconds)
        found["claim of 500"], _ = percentiles(claims)
        found["finish of 500"], _ = percentiles(finishes)
        found["drain"] = jobs / (sum(claims) + sum(finishes))
        execute(place, "update evervec.jobs set completed_at = 1 where status = 'done'")
        found["purge"] = _purged(ev, jobs)
        found["HNSW build"] = build_seconds(ev, place, parts, points)
        found["add, p50"], _ = adds(ev, 200)
        if parts == 1:
            found |= move(ev, records)
    return found


def fill(place: str, records: int) -> None:
    with psycopg.connect(place, autocommit=True) as conn:
        first = 10_000
        while first < records:
            upto = min(first + _AT_ONCE, records)
            conn.execute(FILL.format(first=first + 1, last=upto).encode())
            first = upto
        conn.execute(f"alter sequence evervec.numbers restart with {records + 1}".encode())
        conn.execute("vacuum analyze evervec.jobs, evervec.records, evervec.ready")


def build_seconds(ev: evervec.Evervec, place: str, parts: int, points: int) -> float:
    """To build the HNSW index, or those of all partitions."""
    assert isinstance(ev.index, PgvectorIndex)
    (collection,) = ev.store.versions.collections()
    table = PointsTable(
        collection.version, f"vector({DIMENSIONS})", parts=parts if parts > 1 else 0
    )
    with psycopg.connect(place, autocommit=True) as raw:
        conn = Session(raw)
        conn.execute("create extension vector")
        for statement in table.creation():
            conn.execute(statement)
        (element,) = conn.execute("select 'vector'::regtype::oid::bigint").fetchone()
        for start in range(0, points, 1000):
            packed = pack_vectors(vectors(1000, seed=start), element)
            conn.execute(
                f"insert into evervec.{table.name} select n, 1, 0, 'default', int8send(n), v "
                f"from unnest($1::vector[]) with ordinality as u (v, place), "
                f"lateral (select {start} + place as n) as numbered",
                (packed,),
            )
        conn.execute(f"analyze evervec.{table.name}")
    with stopwatch() as watch:
        assert ev.index.build_hnsw(collection.version)
    return watch.seconds


def adds(
    ev: evervec.Evervec, count: int, stop: threading.Event | None = None
) -> tuple[float, float]:
    """Milliseconds of one add, median and longest; until `stop`, if it is given."""
    found: list[float] = []
    while (len(found) < count) if stop is None else not stop.is_set():
        with stopwatch() as watch:
            ev.add("letter", "a few words", id=f"{time.time_ns()}")
        found.append(watch.seconds)
    return percentiles(found)[0], 1000 * max(found)


def move(ev: evervec.Evervec, records: int) -> Measured:
    """Split the store while a thread adds."""
    stop, found = threading.Event(), list[tuple[float, float]]()
    beside = threading.Thread(target=lambda: found.append(adds(ev, 0, stop)))
    beside.start()
    with stopwatch() as watch:
        ev.store.partition(_PARTS, lambda *_: None)
    stop.set()
    beside.join()
    ((median, longest),) = found
    return {"move": 2 * records / watch.seconds, "beside": median, "longest": longest}
