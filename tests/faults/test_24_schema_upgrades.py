"""Fault 24: schema upgrades that meet, and one that is killed midway."""

import sqlite3
from pathlib import Path

import pytest

from evervec.stores.sqlite.schema import LATEST, statements
from support.fault_checks import assert_true_to, open_store, settle
from support.places import integrity, query
from support.processes import Start

STEPS = len(statements(LATEST))
VERSION = "select value from evervec_meta where key = 'schema'"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Only a file has these troubles."""
    return tmp_path / "notes.db"


def test_24_processes_that_open_a_new_file_at_once_make_it_once(
    tmp_path: Path, start: Start
) -> None:
    """Each opens it without an error and adds a record, and all records are there."""
    paths = [tmp_path / f"fresh-{n}.db" for n in range(12)]
    openers = [start("open", "\n".join(map(str, paths)), pause={"ready": ""}) for _ in range(4)]
    troubles = []
    for path in paths:
        for opener in openers:
            opener.at("ready")
        for opener in openers:
            opener.go("ready")
        troubles += [said["error"] for opener in openers if (said := opener.at("opened"))["error"]]
        assert query(path, VERSION) == [(LATEST,)]
    assert troubles == []
    for path in paths:
        notes = {str(opener.pid): f"written by {opener.pid}" for opener in openers}
        with open_store(path) as ev:
            settle(ev)
            assert_true_to(ev, path, notes)


def test_24_a_file_of_the_applications_own_is_waited_for_while_it_is_written(
    path: Path, start: Start
) -> None:
    """It has no write-ahead log yet, and to give it one takes the file for oneself: that waits
    as long as any other write does."""
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


@pytest.mark.parametrize("step", [0, 1, STEPS // 2, STEPS - 1])
def test_24_an_upgrade_killed_midway_leaves_a_file_that_opens(
    path: Path, start: Start, step: int
) -> None:
    """It was one transaction: the next to open the file begins it anew."""
    victim = start("open", path, pause={"upgrading": f"statement {step};"})
    victim.at("upgrading", f"statement {step};")
    victim.kill()
    assert integrity(path) == "ok"
    assert query(path, "select count(*) from sqlite_schema") == [(0,)]
    with open_store(path) as ev:
        ev.add("note", "after the crash", id="a")
        settle(ev)
        assert_true_to(ev, path, {"a": "after the crash"})
    assert query(path, VERSION) == [(LATEST,)]


def test_24_one_that_waits_for_an_upgrade_takes_over_when_it_is_killed(
    path: Path, start: Start
) -> None:
    """Several processes wait for the first; it dies; one of them makes the file."""
    half = f"statement {STEPS // 2};"
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


def test_24_one_that_cannot_wait_for_an_upgrade_says_so(path: Path, start: Start) -> None:
    """It ends with a clear error, and harms nothing."""
    half = f"statement {STEPS // 2};"
    first = start("open", path, pause={"upgrading": half})
    first.at("upgrading", half)
    hasty = start("open", path, settings={"busy_seconds": 0.1})
    error = hasty.at("opened")["error"]
    assert error is not None
    assert "write lock" in error
    first.go(f"upgrading {half}")
    assert first.at("opened")["error"] is None
    with open_store(path) as ev:
        settle(ev)
        assert_true_to(ev, path, {str(first.pid): f"written by {first.pid}"})
