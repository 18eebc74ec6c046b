"""A long backlog: whether a claim costs more, and whether a worker grows.

Two stores are claimed from in turns, 256 jobs at a time: one where 1,000 jobs wait, one
where 1,000,000 do. What was claimed is finished, and as many new jobs come in at the
end, so that both stay as long as they are and every claim meets other rows; only the
claims are timed. The second line is the claim as a worker makes it, which takes only
what its model serves.

Memory is the peak of a process of its own that runs `process_all`. SQLite's page cache
(64 MB) fills up first, so the shortest backlog, which does not fill it, is shown but is no
measure of growth: the longest is held against one that does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import evervec
from benchmarks.made_up import DIMENSIONS, NoCost, texts
from benchmarks.table import Line, at_most
from evervec.model.jobs import Job

_BATCH = 256
_STEP = 50_000


def run(*, quick: bool) -> Sequence[Line]:
    few, many = 1_000, 100_000 if quick else 1_000_000
    claims = _claims(few, many, samples=25 if quick else 60)
    if quick:  # larger vectors, so that fewer records fill the page cache
        return [*claims, *_memory((1_000, 12_000, 24_000), dimensions=1536)]
    return [*claims, *_memory((2_000, 50_000, 200_000), dimensions=DIMENSIONS)]


class Waiting:
    """A store where so many jobs wait, claimed and topped up."""

    def __init__(self, path: Path, jobs: int, stack: ExitStack) -> None:
        self.ev = stack.enter_context(evervec.open(path, embedder=NoCost()))
        self._ids = count()
        self.seconds: dict[str, list[float]] = {"claim": [], "worker": []}
        for start in range(0, jobs, _STEP):
            self._enqueue(min(_STEP, jobs - start))
        self.ev.store.maintain()

    def _enqueue(self, jobs: int) -> None:
        self.ev.queue.enqueue_many("article", [next(self._ids) for _ in range(jobs)])

    def sample(self, what: str, claim: Callable[[int], Sequence[Job]]) -> None:
        start = time.perf_counter()
        jobs = claim(_BATCH)
        self.seconds[what].append((time.perf_counter() - start) / len(jobs))
        assert len(jobs) == _BATCH
        self.ev.queue.finish_many(jobs)
        self._enqueue(_BATCH)


def _claims(few: int, many: int, samples: int) -> Iterator[Line]:
    with TemporaryDirectory(prefix="evervec-bench-") as folder, ExitStack() as stack:
        stores = [Waiting(Path(folder) / f"{jobs}.db", jobs, stack) for jobs in (few, many)]
        os.sync()  # what building them left to be written would slow whoever comes first
        for _ in range(samples):
            for store in stores:
                store.sample("claim", store.ev.queue.claim)
            for store in stores:
                store.sample("worker", store.ev.pipeline.claim)
        short, long = ({w: 1e6 * median(s) for w, s in x.seconds.items()} for x in stores)
    for what, name in (("claim", "queue.claim"), ("worker", "a worker's claim")):
        yield Line(
            f"{name}, a job of {many:,}", "µs", long[what], f"of {few:,}", short[what], at_most(1.3)
        )


def _memory(backlogs: tuple[int, ...], dimensions: int) -> Iterator[Line]:
    with TemporaryDirectory(prefix="evervec-bench-") as folder:
        peaks = {n: _peak(Path(folder) / f"{n}.db", n, dimensions) for n in backlogs}
    *shorter, longest = backlogs
    for size in shorter:
        target = at_most(1.1) if size == shorter[-1] else None
        yield Line(
            f"worker's peak, {longest:,} records", "MB", peaks[longest], f"{size:,}",
            peaks[size], target,
        )  # fmt: skip


def _peak(path: Path, records: int, dimensions: int) -> float:
    """Megabytes at most that a process takes to work off so many records."""
    made = texts(1000, 20)
    with evervec.open(path, embedder="noop") as ev:
        for _ in ev.add_many("note", ({"text": f"{n} {made[n % 1000]}"} for n in range(records))):
            pass
    command = [sys.executable, "-m", "benchmarks.backlog_worker", str(path), str(dimensions)]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    succeeded, peak = done.stdout.split()
    assert int(succeeded) == records
    return float(peak)
