"""A change of the model under load, with its workers killed on the way."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import evervec
from support.places import Place
from support.postgres import DATABASES
from support.processes import Start, until
from support.qdrant_server import QdrantServer
from support.traffic import KIND, NEW, OLD, Traffic, assert_all_there, text_of

SETTINGS: dict[str, Any] = {
    "lease_seconds": 1.0, "batch_size": 40, "poll_seconds": 0.05, "writer_lock_seconds": 2,
    "max_attempts": 1000,
}  # fmt: skip
"""as many attempts as it takes: no record is to be buried because its workers were killed"""


class Where(NamedTuple):
    store: Place
    vectors: str | None

    def open(self, **settings: Any) -> evervec.Evervec:
        return evervec.open(
            self.store, index=self.vectors, embedder="hashing:512", **SETTINGS | settings
        )


@pytest.fixture
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Where]:
    store, index = request.param
    path: Place = tmp_path / "notes.db" if store == "sqlite" else DATABASES.borrow()
    server = QdrantServer() if index == "qdrant" else None
    yield Where(path, server.url if server else None)
    if server:
        server.stop()
    if isinstance(path, str):
        DATABASES.give_back(path)


def fill(ev: evervec.Evervec, records: int) -> None:
    list(ev.add_many(KIND, ({"id": n, "text": text_of(n)} for n in range(records))))
    ev.process_all()


LONG = pytest.mark.long


@pytest.mark.parametrize(
    ("where", "records"),
    [
        (("sqlite", ""), 200),
        (("postgres", ""), 200),
        (("sqlite", "qdrant"), 50),
        pytest.param(("sqlite", ""), 5000, marks=LONG),
        pytest.param(("postgres", ""), 5000, marks=LONG),
        pytest.param(("sqlite", "qdrant"), 5000, marks=LONG),
    ],
    indirect=["where"],
    ids=str,
)
def test_a_model_is_changed_under_load_while_workers_are_killed(
    where: Where, records: int, start: Start
) -> None:
    few = {"batch_size": min(40, records // 10)}
    orders = {"index": where.vectors, "embedder": "hashing:512", "settings": SETTINGS | few}
    with where.open() as ev:
        fill(ev, records)
        with Traffic(ev, records) as traffic:
            migration = ev.migrate("hashing:64")
            for kill in range(1, 4):
                # one batch after the other, so that the build is not over before the kill
                worker = start("work", where.store, pause={"applied": ""}, **orders)
                while migration.status().current <= records * kill // 5:
                    worker.at("applied")
                    worker.go("applied")
                worker.kill()
            assert migration.status().state == "building"
            start("work", where.store, **orders)
            assert migration.wait(300).settled
            assert traffic.versions == {OLD}
            migration.switch(timeout=30)
            until(lambda: traffic.last == NEW, "searches by the new version")
            count = traffic.searches
            until(lambda: traffic.searches > count + 20, "searches")
            migration.rollback()
            until(lambda: traffic.last == OLD, "searches by the old version")
            migration.switch(timeout=30)
        until(lambda: ev.queue.stats().unique_records == 0, "the queue to be empty", 60)
        assert_all_there(ev, records, traffic.wanted)
        migration.retire()
        until(lambda: migration.status().state == "finished", "the old version to go", 60)
        until(lambda: len(ev.versions()) == 1, "the old version to be gone", 60)
        assert_all_there(ev, records, traffic.wanted)


@pytest.mark.parametrize("pair", [("duckdb", "lancedb"), ("sqlite", "qdrant-edge")], ids="-".join)
@pytest.mark.parametrize("records", [100, pytest.param(5000, marks=LONG)])
def test_a_process_that_does_everything_is_killed_while_its_model_changes(
    tmp_path: Path, pair: tuple[str, str], records: int, start: Start
) -> None:
    """Some engines let one process in: writes, searches and work all die with it, and go on."""
    store, index = pair
    few = {"batch_size": 10 + records // 100}  # what a process held when it died comes slowly
    file = tmp_path / "notes.db"
    place = Where(f"duckdb:///{file}" if store == "duckdb" else file, f"{index}://{tmp_path / 'v'}")
    with place.open() as ev:
        fill(ev, records)
        ev.migrate("hashing:64")
    wanted: dict[str, str | None] = {}
    orders = {"index": place.vectors, "embedder": "hashing:512", "settings": SETTINGS | few}
    for _ in range(3):
        child = start("traffic", place.store, count=records, **orders)
        for _ in range(12):
            child.at("wrote")
        child.kill()
        _hear(child.rest(), wanted)
    with place.open(**few) as ev:
        migration = ev.migrate("hashing:64", switch=True)
        with ev.worker():
            assert migration.wait(300).state == "switched"
            with Traffic(ev, records) as traffic:
                until(lambda: traffic.last == NEW, "searches by the new version")
                migration.rollback()
                until(lambda: traffic.last == OLD, "searches by the old version")
        ev.process_all()
        assert_all_there(ev, records, wanted | traffic.wanted)


def _hear(said: list[dict[str, object]], wanted: dict[str, str | None]) -> None:
    for line in said:
        if line["at"] == "wrote":
            id, text = json.loads(str(line["about"]))
            wanted[id] = text
