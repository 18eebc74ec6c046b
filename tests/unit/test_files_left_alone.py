"""SQLite files that are only read, and files that a failed command does not leave behind."""

import os
import sqlite3
from pathlib import Path

import pytest

import evervec
from evervec import Estimate, StoreError
from evervec.facade.dry_run import plan_attachment
from evervec.opening import leaving_no_empty_store
from evervec.settings import Settings
from evervec.stores.sqlite.connections import Connections
from evervec.stores.sqlite.schema import upgrade
from evervec.stores.sqlite.store import remove_empty
from evervec.tables.base import attachment
from support.next_schema import next_schema


def make(path: Path) -> bytes:
    with evervec.open(path, embedder="hashing") as ev:
        ev.add("note", "tea grows on hills", id="1")
        ev.process_all()
    return path.read_bytes()


@pytest.mark.parametrize("ask", ["mode=ro", "immutable=1"])
def test_a_store_that_is_open_for_reading_is_searched_and_not_changed(
    tmp_path: Path, ask: str
) -> None:
    path = tmp_path / "s.db"
    before = make(path)
    with evervec.open(f"sqlite:///{path}?{ask}") as ev:
        for mode in ("hybrid", "semantic", "text"):
            assert [hit.id for hit in ev.search("hills", mode=mode)] == ["1"]
        assert ev.verify().clean
        assert ev.queue.stats().done == 1
        for write in (lambda: ev.add("note", "x"), lambda: ev.delete("note", "1"), ev.process_all):
            with pytest.raises(StoreError, match="read-only"):
                write()
    assert path.read_bytes() == before


def test_a_file_that_cannot_be_written_is_open_for_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db"
    before = make(path)
    monkeypatch.setattr(os, "access", lambda file, how: how != os.W_OK)
    with evervec.open(path) as ev:
        assert [hit.id for hit in ev.search("hills")] == ["1"]
        assert ev.store.read_only
    assert path.read_bytes() == before


def test_what_is_no_store_or_of_another_schema_is_not_made_one_by_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "app.db"
    with pytest.raises(StoreError, match="does not exist"):
        evervec.open(f"sqlite:///{path}?mode=ro")
    sqlite3.connect(path).execute("create table t (id)").connection.close()
    with pytest.raises(StoreError, match="is not a store"):
        evervec.open(f"sqlite:///{path}?mode=ro")
    make(tmp_path / "s.db")
    monkeypatch.setattr("evervec.stores.sqlite.schema.SCHEMA", next_schema("sqlite"))
    with pytest.raises(StoreError, match="has schema 1, and this version needs 2"):
        evervec.open(f"sqlite:///{tmp_path / 's.db'}?mode=ro")


def test_a_plan_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with sqlite3.connect(path) as conn:
        conn.execute("create table docs (id integer primary key, body text)")
        conn.execute("insert into docs values (1, 'tea')")
    conn.close()
    before = path.read_bytes()
    wanted = attachment("docs", None, "id", "body")
    made = plan_attachment(path, wanted, Settings.load({}), "hashing")
    assert (made.kind, len(made.sql)) == ("docs", 3)
    assert made.estimate == Estimate(records=1, chunks=1, tokens=2, money=0.0, seconds=None)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["app.db"]


def test_a_new_store_goes_when_nothing_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with (
        pytest.raises(RuntimeError),
        leaving_no_empty_store(path),
        evervec.open(path, embedder="hashing"),
    ):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with (  # noqa: PT012
        pytest.raises(RuntimeError),
        leaving_no_empty_store(path),
        evervec.open(path, embedder="hashing") as ev,
    ):
        ev.add("note", "saved")
        raise RuntimeError
    assert path.exists()


def test_a_store_that_was_there_stays(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    evervec.open(path, embedder="hashing").close()
    with pytest.raises(RuntimeError), leaving_no_empty_store(path):
        raise RuntimeError
    assert path.exists()


def test_an_empty_store_that_another_process_has_open_stays(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with evervec.open(path, embedder="hashing") as ev:
        assert not remove_empty(path)
        ev.add("note", "saved", id="1")
    assert not remove_empty(path)
    with evervec.open(path, embedder="hashing") as ev:
        assert ev.get("note", "1")


def test_a_store_that_is_removed_while_it_is_opened_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, left = tmp_path / "s.db", [1]

    def late(db: Connections) -> None:
        if left:
            path.unlink()
            left.clear()
        upgrade(db)

    monkeypatch.setattr("evervec.stores.sqlite.store.upgrade", late)
    with evervec.open(path, embedder="hashing") as ev:
        ev.add("note", "saved", id="1")
    with evervec.open(path, embedder="hashing") as ev:
        assert ev.get("note", "1")
