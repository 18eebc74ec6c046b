"""Verify: index and records compared, beside merely reading both.

A process of its own opens a store of so many records, a chunk each, and verifies it; another
reads the same rows of records, ledger and points in the same order, texts and vectors
included, and throws them away; the quick form of either leaves the texts out. Memory is the peak of the process; SQLite's page cache (64 MB) is part of it,
so it is held against a store that fills that cache, too.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import evervec
from benchmarks.backlog_worker import peak
from benchmarks.made_up import NoCost, texts
from benchmarks.table import Line, at_most

_QUICK = (
    """select r.record, r.tenant, r.kind, r.id, r.state, r.seq, l.seq, l.chunks
       from evervec_records as r left join evervec_ledger as l on l.record = r.record
       order by r.record""",
    "select record, tenant, hash, seq, point, vector from evervec_points order by record",
)
_WHOLE = (*_QUICK, "select record, kind, id, title, text, metadata from evervec_records")


def run(*, quick: bool) -> Sequence[Line]:
    few, many = (20_000, 40_000) if quick else (50_000, 100_000)
    with TemporaryDirectory(prefix="evervec-bench-") as folder:
        shorter, whole = (_filled(Path(folder) / f"{n}.db", n) for n in (few, many))
        read, _ = _measured("read", whole)
        read_quick, _ = _measured("read quick", whole)
        seconds, memory = _measured("verify", whole)
        seconds_quick, _ = _measured("verify quick", whole)
        _, less = _measured("verify", shorter)
    what = f"{many:,} records"
    return [
        Line(what, "s", seconds, target=at_most(60), own=True),
        Line(what, "s", seconds, "reading both", read),
        Line(f"quick, {what}", "s", seconds_quick, "reading both", read_quick),
        Line(f"peak, {what}", "MB", memory, f"{few:,}", less, at_most(1.1)),
    ]


def _filled(path: Path, records: int) -> Path:
    made = texts(1000, 20)
    with evervec.open(path, embedder=NoCost()) as ev:
        for _ in ev.add_many("note", ({"text": f"{n} {made[n % 1000]}"} for n in range(records))):
            pass
        assert ev.process_all().succeeded == records
    return path


def _measured(what: str, path: Path) -> tuple[float, float]:
    """Seconds, of three runs the best, and megabytes at most."""
    command = [sys.executable, "-m", "benchmarks.verify", what, str(path)]
    root = Path(__file__).parents[1]
    runs = []
    for _ in range(3):
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
        runs.append([float(figure) for figure in done.stdout.split()])
    seconds, memory = zip(*runs, strict=True)
    return min(seconds), max(memory)


def _verify(path: str, *, quick: bool) -> None:
    with evervec.open(path, embedder=NoCost()) as ev:
        assert ev.verify(quick=quick).clean


def _read(path: str, *, quick: bool) -> None:
    conn = sqlite3.connect(path)
    for query in _QUICK if quick else _WHOLE:
        for _ in conn.execute(query):
            pass
    conn.close()


if __name__ == "__main__":
    start = time.perf_counter()
    job, _, form = sys.argv[1].partition(" ")
    {"verify": _verify, "read": _read}[job](sys.argv[2], quick=form == "quick")
    print(time.perf_counter() - start, peak())
