"""From `add` to being found by meaning, in one process with an idle worker.

Each record is added, then searched for by vector with `after=` its ticket: what is
measured is the save (synced to disk), the worker's wake, claim, embedding at no cost,
write, and the search that finds it. Beside it stands what one synced SQLite commit of
one row costs on this disk, which an add cannot go below.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import evervec
from benchmarks.made_up import NoCost, texts
from benchmarks.rounds import percentiles
from benchmarks.table import Line, Target

_IDLE = 0.01
"""seconds between two records, in which the worker falls asleep"""


def run(*, quick: bool) -> Sequence[Line]:
    made = texts(60 if quick else 300, 60)
    with TemporaryDirectory(prefix="evervec-bench-") as folder:
        commit = _one_row(Path(folder) / "bare.db")
        found, added, bare = [], [], []
        with (
            evervec.open(Path(folder) / "records.db", embedder=NoCost(made)) as ev,
            ev.worker(),
        ):
            for place, text in enumerate(made):
                time.sleep(_IDLE)
                start = time.perf_counter()
                ticket = ev.add("note", text, id=place)
                added.append(time.perf_counter() - start)
                hits = ev.search(text, k=1, mode="semantic", after=ticket)
                found.append(time.perf_counter() - start)
                assert hits[0].id == str(place)
                time.sleep(_IDLE)
                start = time.perf_counter()
                commit.execute("insert into notes (text) values (?)", (text,))
                bare.append(time.perf_counter() - start)
        commit.close()
    (p50, p99), (add50, add99), (bare50, bare99) = map(percentiles, (found, added, bare))
    target = Target("< 20", lambda ms: ms < 20)
    beside = "one synced commit"
    return [
        Line("add → found, p50", "ms", p50, beside, bare50, target, own=True),
        Line("add → found, p99", "ms", p99, beside, bare99),
        Line("  of it add, p50", "ms", add50, beside, bare50),
        Line("  of it add, p99", "ms", add99, beside, bare99),
    ]


def _one_row(path: Path) -> sqlite3.Connection:
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute("pragma journal_mode = wal")
    conn.execute("pragma synchronous = full")
    conn.execute("create table notes (id integer primary key, text text not null)")
    return conn
