"""A process that searches a store in all modes, by turns with a bare product and SELECT, and prints
p50 and p99 of each in milliseconds."""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from collections.abc import Callable

import numpy as np

import evervec
from benchmarks.made_up import DIMENSIONS, NoCost, texts
from benchmarks.rounds import percentiles

_K = 10
_TURN = 50


class Bare:
    """One tenant's vectors in memory and a connection to the file."""

    def __init__(self, path: str, tenant: str, embedder: NoCost) -> None:
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


def main(path: str, tenant: str, count: str) -> None:
    queries = texts(int(count), 5, seed=2)
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
    print(json.dumps({name: percentiles(spent) for name, spent in seconds.items()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
