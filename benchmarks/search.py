"""A search in one tenant of a hundred, over the vectors of all in one file.

Beside it, by turns, the least that the same answer costs: the product with that
tenant's matrix, held in memory and never refreshed, the best ten of it, and one SELECT
that reads their records from the same file. That knows nothing of other processes'
writes, weights, ages, chunks, deletions or kinds. The query's vector costs nothing to
either. The other modes stand beside the same, as there is no other measure of them here.
Medians of several processes: where one happens to have its pages in memory makes a fifth.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import evervec
from benchmarks.made_up import NoCost, texts
from benchmarks.table import Line, at_most

_EACH = 1000


def run(*, quick: bool) -> Sequence[Line]:
    tenants, queries, processes = (10, 200, 1) if quick else (100, 1000, 7)
    with TemporaryDirectory(prefix="evervec-bench-") as folder:
        path = Path(folder) / "records.db"
        _load(path, tenants)
        searches = [sys.executable, "-m", "benchmarks.search_process"]
        asked = [*searches, str(path), f"tenant-{tenants // 2}", str(queries)]
        return list(_lines([json.loads(subprocess.check_output(asked)) for _ in range(processes)]))


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


def _lines(found: list[dict[str, tuple[float, float]]]) -> Iterator[Line]:
    def middle(name: str, place: int) -> float:
        return median(one[name][place] for one in found)

    for name in found[0]:
        if name != "bare":
            target = at_most(1.5) if name == "semantic" else None
            for place, which in enumerate(("p50", "p99")):
                own, bare = middle(name, place), middle("bare", place)
                goal = target if which == "p50" else None
                yield Line(f"{name}, {which}", "ms", own, "bare numpy", bare, goal)
