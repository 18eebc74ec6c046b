"""An index that is down or loses its data, whichever it is, and what is told of it."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evervec import Evervec, IndexUnavailable
from evervec.opening import open_index
from support.engines import INDEXES
from support.fault_checks import open_store, settle
from support.processes import Start, until
from support.qdrant_server import server_of
from support.sabotage import run_sql
from support.webhook import Webhook
from support.world import KIND, World, add_all, assert_in_step, held, work

TEXTS = {str(n): f"note {n} about harbour {n}" for n in range(8)}


def version_of(world: World) -> int:
    (collection,) = world.ev.store.versions.collections()
    return collection.version


def reopen(world: World) -> None:
    """Engines inside this process lose their data between two openings."""
    ev = world.ev
    ev.index.close()
    shutil.rmtree(world.folder / "edge", ignore_errors=True)
    index = open_index(INDEXES[world.index_name].url(world.folder), ev.store, ev.settings)
    world.ev = Evervec(ev.store, index, world.embedder, ev.tenant, ev.settings)


LOSE: dict[str, Callable[[World], None]] = {
    "sqlite": lambda world: run_sql(world, "delete from evervec_points"),
    "duckdb": lambda world: run_sql(world, "delete from evervec_points"),
    "pgvector": lambda world: run_sql(world, f"drop table evervec.points_{version_of(world)}"),
    "qdrant": lambda world: server_of(world.folder).lose_everything(),
    "lancedb": lambda world: shutil.rmtree(world.folder / "vectors"),
    "qdrant-memory": reopen,
    "qdrant-edge": reopen,
}
"""How each index may lose all that it holds, at once and behind evervec's back."""


@pytest.fixture(params=INDEXES)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = World((INDEXES[request.param].stores[0], request.param), tmp_path)
    yield made
    made.ev.index.close()
    made.close()


def test_an_index_that_lost_everything_is_rebuilt_from_the_store(world: World) -> None:
    add_all(world.ev, KIND, *TEXTS.values())
    work(world.ev)
    LOSE[world.index_name](world)
    ev = world.ev
    assert {hit.id for hit in ev.search("harbour", 20)} == set(TEXTS), "text answers"
    assert ev.verify().found == {"missing": 8}
    assert held(ev) == {}
    assert ev.verify(repair=True).repaired == 8
    work(ev)
    assert_in_step(ev, TEXTS)
    assert [hit.id for hit in ev.search(TEXTS["5"], 1, mode="semantic")] == ["5"]


def test_a_worker_that_meets_the_loss_first_goes_on(world: World) -> None:
    """What it writes next is there; the rest is found missing."""
    add_all(world.ev, KIND, *TEXTS.values())
    work(world.ev)
    LOSE[world.index_name](world)
    ev = world.ev
    ev.add(KIND, "a new one", id="new")

    def worked() -> bool:
        try:
            ev.process_all()
        except IndexUnavailable:
            return False
        return ev.queue.stats().pending == 0

    until(worked, "the new one to be written")
    assert ev.verify(repair=True).found == {"missing": 8}
    work(ev)
    assert_in_step(ev, {**TEXTS, "new": "a new one"})


def test_a_store_put_back_from_a_backup_is_behind_its_index(tmp_path: Path) -> None:
    """Records deleted, changed and added since: the index has tombstones and numbers that the
    store has yet to come to."""
    for index in ("lancedb", "qdrant"):
        folder = tmp_path / index
        folder.mkdir()
        world = World(("sqlite", index), folder)
        add_all(world.ev, KIND, *TEXTS.values())
        work(world.ev)
        backup = folder / "backup.db"
        run_sql(world, f"vacuum into '{backup}'", alone=True)
        for turn in range(5):
            add_all(world.ev, KIND, *(f"{text}, turn {turn}" for text in TEXTS.values()))
            world.ev.add(KIND, f"added in turn {turn}")
            work(world.ev)
        for id in ("0", "1"):
            world.ev.delete(KIND, id)
        work(world.ev)
        if index == "lancedb":  # else the version that the backup knows would still be there
            for table in world.ev.index._tables.values():  # type: ignore[attr-defined]
                table.writer.tidy()
        world.ev.close()
        for path in folder.glob("store.db*"):
            path.unlink()
        backup.rename(folder / "store.db")

        world.ev = world.open()
        assert world.ev.verify(repair=True).missing == 8
        work(world.ev)
        assert_in_step(world.ev, TEXTS)
        world.close()


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    made = Webhook()
    yield made
    made.close()


def test_two_workers_wait_for_an_index_that_is_down_and_one_of_them_tells(
    tmp_path: Path, start: Start, webhook: Webhook
) -> None:
    """One alert and one all-clear from two processes; nothing fails, and all is written."""
    path, vectors = tmp_path / "notes.db", tmp_path / "vectors"
    index, away = f"lancedb://{vectors}", tmp_path / "away"
    settings = {
        "housekeeping_seconds": 0.2, "alert_away_seconds": 0.1, "alert_lag_seconds": 0,
        "alert_url": webhook.url, "backoff_seconds": 0.05,
    }  # fmt: skip
    with open_store(path, index=index, housekeeping_seconds=0.2) as ev:
        ev.add("note", "before", id="0")
        settle(ev)
        vectors.rename(away)
        vectors.write_text("a file where the folder was")
        workers = [start("work", path, index=index, settings=settings) for _ in range(2)]
        until(lambda: len(ev.store.workers.all()) == 2, "both to work")
        list(ev.add_many("note", ({"id": n, "text": text} for n, text in TEXTS.items())))
        until(lambda: webhook.told == [("index", "begun")], "the alert")
        assert [alert.name for alert in ev._housekeeping.alerts.lasting()] == ["index"]
        vectors.unlink()
        away.rename(vectors)
        until(lambda: len(webhook.told) > 1, "the all-clear")
        settle(ev)
        assert webhook.told == [("index", "begun"), ("index", "over")]
        assert "cannot be used" in webhook.posted[0]["text"]
        assert ev.queue.stats().failed == 0
        assert ev.verify().clean
        for worker in workers:
            worker.terminate()
            assert worker.exit_code() == 0
            assert "s3cret" not in worker.log
