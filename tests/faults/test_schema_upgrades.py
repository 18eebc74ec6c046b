"""Schema upgrades that meet, and one that is killed midway."""

import itertools
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evervec import StoreError
from evervec.stores.duckdb import schema as duckdb_schema
from evervec.stores.postgres import schema as postgres_schema
from evervec.stores.sqlite import schema as sqlite_schema
from support.fault_checks import assert_true_to, open_store, settle
from support.next_schema import PREFIXES, STATEMENTS, next_schema
from support.places import Place, connect, integrity, kind_of, query
from support.postgres import DATABASES
from support.processes import Start

VERSION = "select value from evervec_meta where key = 'schema'"
NOTHING = {
    "sqlite": "select 1 from sqlite_schema",
    "duckdb": "select 1 from duckdb_tables() where not internal",
    "postgres": "select 1 from pg_namespace where nspname = 'evervec'",
}
META = {"sqlite": "evervec_meta", "duckdb": "evervec_meta", "postgres": "evervec.meta"}
SCHEMAS: dict[str, Any] = {
    "sqlite": sqlite_schema,
    "duckdb": duckdb_schema,
    "postgres": postgres_schema,
}
LATEST: dict[str, int] = {kind: schema.SCHEMA.latest for kind, schema in SCHEMAS.items()}
STEPS = {
    kind: sum(len(list(schema.SCHEMA.statements(n + 1))) for n in range(schema.SCHEMA.latest))
    for kind, schema in SCHEMAS.items()
}


def latest(place: Place) -> int:
    return LATEST[kind_of(place)]


def halfway(place: Place) -> str:
    return f"statement {STEPS[kind_of(place)] // 2};"


@pytest.fixture(params=["sqlite", "postgres"])
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Place]:
    """Makes places where nothing is yet."""
    numbers = itertools.count()
    if request.param == "sqlite":
        return lambda: tmp_path.joinpath(f"fresh-{next(numbers)}.db")
    return DATABASES.create


@pytest.fixture
def path(fresh: Callable[[], Place]) -> Place:
    return fresh()


@pytest.fixture(params=["sqlite", "duckdb", "postgres"])
def alone(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A place where nothing is yet, for one process at a time."""
    if request.param == "postgres":
        return DATABASES.create()
    file = tmp_path / "fresh.db"
    return file if request.param == "sqlite" else f"duckdb:///{file}"


def test_processes_that_open_a_new_file_at_once_make_it_once(
    fresh: Callable[[], Place], start: Start
) -> None:
    """Each opens it without an error and adds a record, and all records are there."""
    paths = [fresh() for _ in range(5)]
    openers = [start("open", "\n".join(map(str, paths)), pause={"ready": ""}) for _ in range(4)]
    troubles = []
    for path in paths:
        for opener in openers:
            opener.at("ready")
        for opener in openers:
            opener.go("ready")
        troubles += [said["error"] for opener in openers if (said := opener.at("opened"))["error"]]
        assert query(path, VERSION) == [(latest(path),)]
    assert troubles == []
    for path in paths:
        notes = {str(opener.pid): f"written by {opener.pid}" for opener in openers}
        with open_store(path) as ev:
            settle(ev)
            assert_true_to(ev, path, notes)


def test_a_file_of_the_applications_own_is_waited_for_while_it_is_written(
    tmp_path: Path, start: Start
) -> None:
    """It has no write-ahead log yet, and to give it one takes the file for oneself: that waits
    as long as any other write does."""
    path = tmp_path / "mine.db"
    mine = sqlite3.connect(path)
    mine.execute("create table mine (x)")
    mine.close()
    holder = start("lock", path, pause={"locked": ""})
    holder.at("locked")
    opener = start("open", path, settings={"busy_seconds": 30})
    opener.at("ready")
    assert not opener.reaches("opened", seconds=0.5)  # with an error, as nothing else can be
    holder.go("locked")
    assert opener.at("opened")["error"] is None
    with open_store(path) as ev:
        settle(ev)
        assert_true_to(ev, path, {str(opener.pid): f"written by {opener.pid}"})


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_an_upgrade_killed_midway_leaves_a_file_that_opens(
    alone: Place, start: Start, share: float
) -> None:
    """It was one transaction: the next to open the file begins it anew."""
    path = alone
    step = f"statement {int(share * STEPS[kind_of(path)])};"
    victim = start("open", path, pause={"upgrading": step})
    victim.at("upgrading", step)
    victim.kill()
    assert integrity(path) == "ok"
    assert query(path, NOTHING[kind_of(path)]) == []
    with open_store(path) as ev:
        ev.add("note", "after the crash", id="a")
        settle(ev)
        assert_true_to(ev, path, {"a": "after the crash"})
    assert query(path, VERSION) == [(latest(path),)]


@pytest.mark.parametrize("step", [0, 3, STATEMENTS - 1])
def test_an_older_store_is_upgraded_with_all_that_is_in_it(
    alone: Place, start: Start, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even when the first that tries is killed midway. The step is made up: there is none yet."""
    path, kind = alone, kind_of(alone)
    with open_store(path) as ev:
        ev.add("note", "before the upgrade", id="a")
        settle(ev)
    victim = start("open", path, pause={"upgrading": f"statement {step};"}, next_schema=True)
    victim.at("upgrading", f"statement {step};")
    victim.kill()
    assert query(path, VERSION) == [(latest(path),)]
    monkeypatch.setattr(SCHEMAS[kind], "SCHEMA", next_schema(kind))
    with open_store(path) as ev:
        ev.add("note", "after the upgrade", id="b")
        settle(ev)
        assert_true_to(ev, path, {"a": "before the upgrade", "b": "after the upgrade"})
    assert query(path, VERSION) == [(latest(path) + 1,)]
    copies = f"select text from {PREFIXES[kind]}copies"
    assert query(path, copies) == [("before the upgrade",)]


def test_processes_that_upgrade_a_store_at_once_do_it_once(
    fresh: Callable[[], Place], start: Start
) -> None:
    path = fresh()
    open_store(path).close()
    openers = [start("open", path, pause={"ready": ""}, next_schema=True) for _ in range(4)]
    for opener in openers:
        opener.at("ready")
    for opener in openers:
        opener.go("ready")
    assert [opener.at("opened")["error"] for opener in openers] == [None] * 4
    assert query(path, VERSION) == [(latest(path) + 1,)]


def test_one_that_waits_for_an_upgrade_takes_over_when_it_is_killed(
    path: Place, start: Start
) -> None:
    """Several processes wait for the first; it dies; one of them makes the file."""
    half = halfway(path)
    victim = start("open", path, pause={"upgrading": half})
    victim.at("upgrading", half)
    waiting = [start("open", path, settings={"busy_seconds": 30}) for _ in range(3)]
    for opener in waiting:
        opener.at("ready")
    victim.kill()
    for opener in waiting:
        assert opener.at("opened")["error"] is None
    with open_store(path) as ev:
        settle(ev)
        assert_true_to(ev, path, {str(o.pid): f"written by {o.pid}" for o in waiting})


def test_one_that_cannot_wait_for_an_upgrade_says_so(path: Place, start: Start) -> None:
    """It ends with a clear error, and harms nothing."""
    half = halfway(path)
    first = start("open", path, pause={"upgrading": half})
    first.at("upgrading", half)
    hasty = start("open", path, settings={"busy_seconds": 0.1})
    error = hasty.at("opened")["error"]
    assert error is not None
    assert "lock" in error
    first.go(f"upgrading {half}")
    assert first.at("opened")["error"] is None
    with open_store(path) as ev:
        settle(ev)
        assert_true_to(ev, path, {str(first.pid): f"written by {first.pid}"})


def test_a_store_that_a_newer_evervec_made_is_refused(alone: Place) -> None:
    """It says so, and what to do, and changes nothing."""
    path = alone
    open_store(path).close()
    newer = latest(path) + 1
    conn = connect(path)
    conn.execute(f"update {META[kind_of(path)]} set value = {newer} where key = 'schema'")
    conn.commit()
    conn.close()
    with pytest.raises(StoreError, match=f"newer evervec.*schema is {newer}"):
        open_store(path)
