"""A table rewritten by plain SQL while workers are killed: at the end everything agrees."""

import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from evervec import Evervec
from support import postgres
from support.fault_checks import open_store, settle
from support.places import Place
from support.processes import Child, Start, children, until

SEED = 6
SETTINGS = {"poll_seconds": 0.1, "max_attempts": 1000, "hnsw_rows": 0}
"""as many attempts as it takes: no record is to be buried because its workers were killed"""


class Writer:
    """An application that knows nothing of evervec, and changes its table without pause."""

    def __init__(self, place: Place, rows: int) -> None:
        self._place, self._rows = place, rows
        self._chance = random.Random(SEED)
        self._next = rows
        self._stop = threading.Event()
        self._crash: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self.statements = 0

    def _connect(self) -> Any:
        if isinstance(self._place, Path):
            return sqlite3.connect(self._place, isolation_level=None, timeout=60)
        return psycopg.connect(self._place, autocommit=True)

    def fill(self) -> None:
        conn = self._connect()
        conn.execute("create table items (id bigint primary key, body text, author text)")
        conn.execute("begin")
        for start in range(0, self._rows, 500):
            values = ", ".join(
                f"({n}, 'row {n} as it was', 'a{n % 7}')"
                for n in range(start, min(start + 500, self._rows))
            )
            conn.execute(f"insert into items values {values}")
        conn.execute("commit")
        conn.close()

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._crash is not None:
            raise self._crash

    def _run(self) -> None:
        conn = self._connect()
        try:
            while not self._stop.wait(0.01):
                conn.execute("begin" if isinstance(self._place, str) else "begin immediate")
                for _ in range(self._chance.choice((1, 1, 5))):
                    conn.execute(self._statement())
                    self.statements += 1
                conn.execute("rollback" if self._chance.random() < 0.1 else "commit")
        except BaseException as error:
            self._crash = error
        finally:
            conn.close()

    def _statement(self) -> str:
        at, dice = self._chance.randrange(self._rows), self._chance.random()
        if dice < 0.5:
            return (
                f"update items set body = 'row {at}, statement {self.statements}' where id = {at}"
            )
        if dice < 0.6:
            return f"update items set author = 'b{dice}' where id between {at} and {at + 20}"
        if dice < 0.7:
            return f"update items set body = body || ' +' where id between {at} and {at + 100}"
        if dice < 0.8:
            return f"delete from items where id between {at} and {at + 5}"
        self._next += 50
        if dice < 0.9:  # another key for each, which nobody has
            return (
                f"update items set id = {self._next} + id - {at} "
                f"where id between {at} and {at + 10}"
            )
        rows = ", ".join(f"({self._next + n}, 'new row {self._next + n}', null)" for n in range(20))
        return f"insert into items values {rows}"

    def rows(self) -> dict[str, tuple[str, str | None]]:
        conn = self._connect()
        found = conn.execute("select id, body, author from items").fetchall()
        conn.close()
        return {str(id): (body, author) for id, body, author in found}


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return tmp_path / "app.db" if request.param == "sqlite" else postgres.DATABASES.create()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with children(tmp_path) as starter:
        yield starter


def rewritten_under_load(
    place: Place, start: Start, *, rows: int, kill_every: float, seconds: float, lease: float
) -> None:
    writer, settings = Writer(place, rows), {**SETTINGS, "lease_seconds": lease}

    def worker() -> Child:
        return start("work", place, settings=settings)

    with open_store(place, **settings) as ev:
        writer.fill()
        ev.attach("items", kind="item", text="body", metadata=["author"])
        workers = [worker(), worker()]
        with writer:
            end = time.monotonic() + seconds
            while time.monotonic() < end or not ev.attachments.attached()[0].backfilled:
                workers[0].at("embedding")  # it is at work, and is killed wherever it comes to
                threading.Event().wait(kill_every)
                workers.pop(0).kill()
                workers.append(worker())
        assert writer.statements > 20
        until(lambda: _is_quiet(ev), "the queue to be empty", seconds=60 + rows / 20)
        for child in workers:
            child.terminate()
        settle(ev)
        assert ev.queue.stats().failed == 0
        _assert_same(ev, writer)


def _is_quiet(ev: Evervec) -> bool:
    threading.Event().wait(0.2)
    stats = ev.queue.stats()
    return stats.pending == stats.processing == 0


def _assert_same(ev: Evervec, writer: Writer) -> None:
    report = ev.verify()
    assert report.clean, report
    there = writer.rows()
    assert report.checked == len(there)
    records = ev.records("item", limit=10 * len(there))
    assert {r.id: (r.text, r.metadata["author"]) for r in records} == there
    assert all(record.embedded for record in records)


def test_a_table_rewritten_while_workers_are_killed(place: Place, start: Start) -> None:
    rewritten_under_load(place, start, rows=2000, kill_every=1.0, seconds=2, lease=1.0)


@pytest.mark.long
def test_a_large_table_rewritten_while_workers_are_killed(place: Place, start: Start) -> None:
    rows = 20_000 if isinstance(place, Path) else 100_000
    rewritten_under_load(place, start, rows=rows, kill_every=4.0, seconds=60, lease=10.0)
