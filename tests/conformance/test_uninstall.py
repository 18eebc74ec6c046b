"""Evervec leaves a database as it found it."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import evervec
from evervec import Evervec
from support.application import App
from support.world import KIND, ScriptedEmbedder, World, add_all, work

OBJECTS = {
    "sqlite": "select type, name from sqlite_schema where name not like 'sqlite_%'",
    "postgres": (
        "select 'schema', nspname::text from pg_namespace where nspname = 'evervec' "
        "union all select 'trigger', tgname::text from pg_trigger where not tgisinternal"
    ),
}


@pytest.fixture(params=["sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    app = App(request.param, tmp_path)
    yield app
    app.close()


def objects(app: App) -> set[Any]:
    return {tuple(row) for row in app.execute(OBJECTS[app.engine])}


def test_an_application_keeps_its_tables_and_nothing_of_evervec(app: App) -> None:
    if app.engine == "postgres":  # the database has an empty store already
        app.execute("drop schema evervec cascade")
    before = objects(app)
    with evervec.open(app.url, embedder=ScriptedEmbedder()) as ev:
        app.execute("insert into articles (id, body) values (1, 'one'), (2, 'two')")
        ev.attach("articles", text="body", kind="article")
        ev.add(KIND, "by hand")
        ev.process_all()
        assert objects(app) > before
        ev.store.uninstall()
    assert objects(app) == before
    app.execute("update articles set body = 'three' where id = 1")
    assert {tuple(row) for row in app.execute("select id, body from articles")} == {
        (1, "three"),
        (2, "two"),
    }
    with evervec.open(app.url, embedder=ScriptedEmbedder()) as again:
        assert again.records() == []


def test_a_store_can_be_made_again_in_the_same_place(world: World) -> None:
    add_all(world.ev, KIND, "alpha", "beta")
    work(world.ev)
    if not world.ev.index.shares_store:
        for collection in world.ev.store.versions.collections():
            world.ev.index.drop(collection.version)
    world.ev.store.uninstall()
    if world.store_name == "memory":  # it ends when it is closed
        return
    world.ev.close()
    again: Evervec = world.open()
    add_all(again, KIND, "gamma")
    work(again)
    assert [hit.text for hit in again.search("gamma", k=5)] == ["gamma"]
    assert again.verify().complete


def test_tables_of_others_with_such_a_name_inside_stay(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with sqlite3.connect(path) as conn:
        conn.execute("create table my_evervec_notes (id)")
        conn.execute("create table evervecnotes (id)")
    conn.close()
    with evervec.open(path, embedder="hashing") as ev:
        ev.store.uninstall()
    conn = sqlite3.connect(path)
    names = {name for (name,) in conn.execute("select name from sqlite_schema")}
    conn.close()
    assert names == {"my_evervec_notes", "evervecnotes"}
