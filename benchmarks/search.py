"""A search in one tenant of a hundred, over the vectors of all in one file.

Beside it, by turns, the least that the same answer costs: the product with that
tenant's matrix, held in memory and never refreshed, the best ten of it, and one SELECT
that reads their records from the same file. That knows nothing of other processes'
writes, weights, ages, chunks, deletions or kinds. The query's vector costs nothing to
either. The other modes stand beside the same, as there is no other measure of them here.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import evervec
from benchmarks.made_up import DIMENSIONS, NoCost, texts
from benchmarks.rounds import percentiles
from benchmarks.table import Line, at_most

_K = 10
_EACH = 1000
_TURN = 50


def run(*, quick: bool) -> Sequence[Line]:
    tenants, queries = (10, 200) if quick else (100, 1000)
    with TemporaryDirectory(prefix="evervec-bench-") as folder:
        path = Path(folder) / "records.db"
        _load(path, tenants)
        return list(_measure(path, f"tenant-{tenants // 2}", texts(queries, 5, seed=2)))


def _load(path: Path, tenants: int) -> None:
    made = texts(_EACH, 60)
    embedder = NoCost(f"{tenant} {text}" for tenant in range(tenants) for text in made)
    for tenant in range(tenants):
        with evervec.open(path, embedder="noop", tenant=f"tenant-{tenant}") as ev:
            records = (
                {"id": n, "text": f"{tenant} {text}", "metadata": {"shelf": n % 10}}
                for n, text in enumerate(made)
            )
            for _ in ev.add_many("note", records):
                pass
    with evervec.open(path, embedder=embedder) as ev:
        assert ev.process_all().succeeded == tenants * _EACH


class Bare:
    """One tenant's vectors in memory and a connection to the file."""

    def __init__(self, path: Path, tenant: str, embedder: NoCost) -> None:
        self._embedder = embedder
        self._conn = sqlite3.connect(path)
        rows = self._conn.execute(
            "select record, vector from evervec_points where tenant = ?", (tenant,)
        ).fetchall()
        self._records = np.array([record for record, _ in rows])
        stored = b"".join(vector for _, vector in rows)
        self._matrix = np.frombuffer(stored, np.float32).reshape(-1, DIMENSIONS).copy()
        marks = ", ".join("?" * _K)
        self._select = (
            "select record, kind, id, title, text, metadata from evervec_records "
            f"where record in ({marks})"
        )

    def search(self, query: str) -> list[str]:
        scores = self._matrix @ self._embedder.embed_query(query)
        best = np.argpartition(scores, -_K)[-_K:]
        best = best[np.argsort(-scores[best])]
        wanted = self._records[best].tolist()
        rows = {row[0]: row for row in self._conn.execute(self._select, wanted)}
        return [rows[record][2] for record in wanted]


def _measure(path: Path, tenant: str, queries: list[str]) -> Iterator[Line]:
    embedder = NoCost(queries, seed=2)
    with evervec.open(path, embedder=embedder, tenant=tenant) as ev:
        bare = Bare(path, tenant, embedder)
        ways: dict[str, Callable[[str], list[str]]] = {
            "bare": bare.search,
            "semantic": lambda q: [hit.id for hit in ev.search(q, _K, mode="semantic")],
            "semantic, filtered": lambda q: [
                hit.id for hit in ev.search(q, _K, mode="semantic", filter={"shelf": 3})
            ],
            "text": lambda q: [hit.id for hit in ev.search(q, _K, mode="text")],
            "hybrid": lambda q: [hit.id for hit in ev.search(q, _K)],
        }
        assert ways["semantic"](queries[0]) == ways["bare"](queries[0])
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        # by turns of so many that each finds the caches as it left them, as a program's own would
        for first in range(0, len(queries), _TURN):
            for name, way in ways.items():
                for query in queries[first : first + _TURN]:
                    start = time.perf_counter()
                    way(query)
                    seconds[name].append(time.perf_counter() - start)
    of = {name: percentiles(spent) for name, spent in seconds.items()}
    bare50, bare99 = of.pop("bare")
    for name, (p50, p99) in of.items():
        target = at_most(1.5) if name == "semantic" else None
        yield Line(f"{name}, p50", "ms", p50, "bare numpy", bare50, target)
        yield Line(f"{name}, p99", "ms", p99, "bare numpy", bare99)
