"""Everything at once: models change, tables change, templates change, and care goes on.

Migrations begin, switch, go back, are retired and cancelled; `verify` repairs; backfills run;
an attached table is rewritten, moved between tenants and emptied; records come, go and come back.
When all of that stops, the oracle and `verify` agree that everything is as it was written last.
"""

import random
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import evervec.migrations
from evervec import Evervec, InvalidTransition, Kind, StoreError, WaitTimeout
from support.oracle import Application, Key, Oracle, Wanted
from support.stress import SECONDS, Editor, Site, Threads, Unhurried, passage, settle

SHORT = 2.0
TENANTS = ("default", "other")
PAIRS = [
    ("sqlite", "sqlite"), ("sqlite", "lancedb"), ("sqlite", "qdrant"), ("sqlite", "qdrant-edge"),
    ("postgres", "pgvector"), ("postgres", "lancedb"), ("postgres", "qdrant"),
]  # fmt: skip
SHORT_PAIRS = [("sqlite", "qdrant-edge"), ("postgres", "pgvector")]
MODELS = ("hashing:64", "hashing:48", "hashing:32")
TEMPLATES = ("{head}: {body}", "{body} ({head})", "{head}")


class Table:
    """An application's table, which knows nothing of evervec."""

    kind = "item"

    def __init__(self, site: Site, chance: random.Random) -> None:
        self._chance = chance
        self._is_file = site.store_name == "sqlite"
        self._url = site.store
        self._edition = 0
        with self._connected() as conn:
            conn.execute("create table items (id integer primary key, body text, team text)")
            for id in range(20):
                conn.execute(f"insert into items values {self._row(id)}")

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        conn: Any = (
            sqlite3.connect(self._url, isolation_level=None, timeout=60)
            if self._is_file
            else psycopg.connect(self._url, autocommit=True)
        )
        try:
            yield conn
        finally:
            conn.close()

    def _row(self, id: int) -> str:
        self._edition += 1
        edition = self._chance.choice((0, 1, self._edition))  # some texts come back
        return f"({id}, '{passage(f'{id} {edition}')}', '{self._chance.choice(TENANTS)}')"

    def change(self) -> None:
        """One transaction of a few statements."""
        with self._connected() as conn:
            conn.execute("begin immediate" if self._is_file else "begin")
            for _ in range(self._chance.choice((1, 1, 4))):
                conn.execute(self._statement())
            conn.execute("rollback" if self._chance.random() < 0.1 else "commit")

    def _statement(self) -> str:
        id, dice = self._chance.randrange(20), self._chance.random()
        if dice < 0.5:
            return (
                f"insert into items values {self._row(id)} on conflict (id) do update "
                "set body = excluded.body"
            )
        if dice < 0.65:
            return f"update items set team = '{self._chance.choice(TENANTS)}' where id = {id}"
        if dice < 0.8:
            return f"delete from items where id = {id}"
        if dice < 0.9:
            self._edition += 1
            return f"update items set id = {100 + self._edition} where id = {id}"
        if dice < 0.93:
            return "delete from items" if self._is_file else "truncate items"
        return f"delete from items where id >= 100 or id between {id} and {id + 3}"

    def rows(self) -> dict[Key, Wanted]:
        with self._connected() as conn:
            found = conn.execute("select id, body, team from items").fetchall()
        return {Key(team, self.kind, str(id)): Wanted(body, {}) for id, body, team in found}

    def drop(self) -> None:
        with self._connected() as conn:
            conn.execute("drop table items")


class Pages:
    """Records of a kind whose template changes."""

    kind = "page"

    def __init__(self, ev: Evervec, oracle: Oracle, chance: random.Random) -> None:
        self._ev = ev
        self._oracle = oracle
        self._chance = chance
        self._data: dict[str, dict[str, str]] = {}
        self._edition = 0
        self.use(TEMPLATES[0])

    def use(self, template: str) -> None:
        self._template = template
        self._ev.register(Kind(self.kind, text=template))

    def change_template(self) -> None:
        self.use(self._chance.choice(TEMPLATES))
        self._ev.backfill(self.kind)

    def change(self) -> None:
        id = str(self._chance.randrange(6))
        self._edition += 1
        key = Key(self._ev.tenant, self.kind, id)
        if self._chance.random() < 0.2:
            self._oracle.note(key, f"delete {self._ev.delete(self.kind, id)}")
            self._data.pop(id, None)
            return
        edition = self._chance.choice((0, 1, self._edition))
        data = {"head": f"head{edition}", "body": passage(f"page {id} {edition}")}
        self._oracle.note(key, f"add {data} {self._ev.add(self.kind, data, id=id)}")
        self._data[id] = data

    def rows(self) -> dict[Key, Wanted]:
        return {
            Key(self._ev.tenant, self.kind, id): Wanted(self._template.format_map(data), {})
            for id, data in self._data.items()
        }


class Migrating:
    """Somebody who cannot decide on a model."""

    def __init__(self, ev: Evervec, chance: random.Random) -> None:
        self._ev = ev
        self._chance = chance
        self.told: list[str] = []

    def decide(self) -> None:
        """The next step of a migration, whichever is possible."""
        migration = self._ev.migration()
        try:
            if migration is None:
                model = self._chance.choice(MODELS)
                self._ev.migrate(model, switch=self._chance.random() < 0.3)
                self.told.append(f"begun {model}")
                return
            state, dice = migration.status().state, self._chance.random()
            if state == "building" and dice < 0.2:
                migration.cancel()
            elif state == "building":
                migration.wait(2.0)
                migration.switch(timeout=2.0)
            elif state == "switched":
                (migration.rollback if dice < 0.4 else migration.retire)()
            elif state == "rolled back":
                (migration.switch if dice < 0.5 else migration.cancel)()
            self.told.append(f"{state}: {migration.version} {dice:.2f}")
        except (InvalidTransition, WaitTimeout) as error:
            self.told.append(f"not now: {error}")


@pytest.mark.parametrize(
    ("site", "form"),
    [
        *((pair, "short") for pair in SHORT_PAIRS),
        *(pytest.param(pair, "long", marks=pytest.mark.long) for pair in PAIRS),
    ],
    indirect=["site"],
    ids=lambda given: given if isinstance(given, str) else "-".join(given),
)
def test_all_that_can_happen_at_once_leaves_everything_as_it_was_written_last(
    site: Site, form: str, seed: int, oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = SHORT if form == "short" else SECONDS
    monkeypatch.setattr(evervec.migrations, "_GRACE", 0.5)  # no search takes longer here
    chance = random.Random(seed)
    threads = Threads(oracle)

    def own() -> random.Random:
        return random.Random(chance.random())

    # at the priority of live work, so that versions are built while that goes on
    options = {"embedder": Unhurried(64, seed, 0.003), "backfill_priority": 0}
    with site.open(**options) as ev, site.open(**options) as other:
        table, pages, migrating = Table(site, own()), Pages(ev, oracle, own()), Migrating(ev, own())
        ev.attach("items", kind=table.kind, text="body", tenant="team")
        editors = [
            Editor(
                Application(ev.of(tenant), oracle), own(),
                [f"{tenant}{n}" for n in range(4)], [f"{tenant}shared"], reads=0,
            )
            for tenant in TENANTS
        ]  # fmt: skip
        for _ in range(5):
            pages.change()
            for editor in editors:
                editor.change()
        ev.process_all()
        with ev.worker(), other.worker(), threads.running(seconds):
            for editor in editors:
                threads.start("notes", editor.change, 0.03)
            threads.start("table", table.change, 0.03)
            threads.start("pages", pages.change, 0.05)
            threads.start("template", pages.change_template, 0.2)
            threads.start("migration", migrating.decide, 0.05)
            threads.start("repair", lambda: other.verify(repair=True, all_tenants=True), 0.1)
            threads.start("backfill", other.backfill, 0.1)
            threads.start("search", lambda: search(ev, own()), 0.01)
        come_to_rest(ev, oracle)
        oracle.rows([(tenant, table.kind) for tenant in TENANTS], table.rows())
        oracle.rows([(ev.tenant, pages.kind)], pages.rows())
        oracle.about += f"\nmigrations: {'; '.join(migrating.told[-30:])}"
        try:
            oracle.check(ev)
            report = ev.verify(all_tenants=True)
            assert report.clean, (report, oracle.about)
        finally:
            ev.detach("items")
            table.drop()


def search(ev: Evervec, chance: random.Random) -> None:
    """Whatever goes on, a search answers."""
    tenant = chance.choice(TENANTS)
    ev.of(tenant).search(
        passage(str(chance.random())), 5, mode=chance.choice(("hybrid", "semantic"))
    )


def come_to_rest(ev: Evervec, oracle: Oracle) -> None:
    """End what is under way, and do all that is left."""
    migration = ev.migration()
    if migration is not None and migration.status().state == "building":
        migration.cancel()
    settle(ev, oracle)
    ev.backfill()  # records that were rendered by the template before the last
    settle(ev, oracle)
    try:
        ev.migrations.finish()
    except StoreError as error:
        oracle.blame(None, f"retired versions could not be taken away: {error}")
