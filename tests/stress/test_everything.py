"""Everything at once: models change, tables change, templates change, and care goes on.

Migrations begin, switch, go back, are retired and cancelled; `verify` repairs; backfills run;
an attached table is rewritten, moved between tenants and emptied; records come, go and come back.
When all of that stops, the oracle and `verify` agree that everything is as it was written last.
"""

import random

import pytest

import evervec.versions.lifecycle
from evervec import Evervec, Kind, StoreError
from support.migrating import Migrating
from support.oracle import Application, Key, Oracle, Wanted
from support.stress import SECONDS, Editor, Site, Threads, Unhurried, settle
from support.table_writer import Table
from support.texts import passage

pytestmark = pytest.mark.every_index

SHORT = 2.0
TENANTS = ("default", "other")
PAIRS = [
    ("sqlite", "sqlite"), ("sqlite", "lancedb"), ("sqlite", "qdrant"), ("sqlite", "qdrant-edge"),
    ("postgres", "pgvector"), ("postgres", "lancedb"), ("postgres", "qdrant"),
]  # fmt: skip
SHORT_PAIRS = [("sqlite", "qdrant-edge"), ("postgres", "pgvector")]
MODELS = ("hashing:64", "hashing:48", "hashing:32")
TEMPLATES = ("{head}: {body}", "{body} ({head})", "{head}")


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
    monkeypatch.setattr(evervec.versions.lifecycle, "_GRACE", 0.5)  # no search takes longer here
    chance = random.Random(seed)
    threads = Threads(oracle)

    def own() -> random.Random:
        return random.Random(chance.random())

    # at the priority of live work, so that versions are built while that goes on
    options = {"embedder": Unhurried(64, seed, 0.003), "backfill_priority": 0}
    with site.open(**options) as ev, site.open(**options) as other:
        table, pages = Table(site.store, own(), TENANTS), Pages(ev, oracle, own())
        migrating = Migrating(ev, own(), MODELS)
        table.create()
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
        ev._lifecycle.drop_retired()
    except StoreError as error:
        oracle.blame(None, f"retired versions could not be taken away: {error}")
