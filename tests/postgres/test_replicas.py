"""Searches on a real read replica: what they must find they find, also when it lags, is gone, or is
promoted."""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import evervec
from evervec import Evervec
from evervec.embedders.hashing import HashingEmbedder
from evervec.runtime.threads import submit
from evervec.stores.postgres import replicas
from support import postgres
from support.processes import until
from support.replica import Replicated

pytestmark = pytest.mark.long  # two servers
REPLICA, PRIMARY = True, False


@pytest.fixture(scope="module")
def servers() -> Iterator[Replicated]:
    found = Replicated()
    yield found
    found.remove()


class Stores:
    """Stores in a database of their own, each with one record that both servers have."""

    def __init__(self, servers: Replicated) -> None:
        self._servers = servers
        self._opened: list[Evervec] = []

    def open(self, **settings: Any) -> Evervec:
        name = f"test_{time.time_ns()}"
        postgres.execute(self._servers.primary.url, f"create database {name}")
        ev = evervec.open(
            self._servers.primary.url.replace("/postgres?", f"/{name}?"),
            embedder=HashingEmbedder(), postgres_replicas=self._servers.url(name), listen=False,
            **{"replica_wait_seconds": 0.01} | settings,
        )  # fmt: skip
        self._opened.append(ev)
        ev.add("note", "the first sparrow", id="1")
        ev.process_all()
        until(lambda: answered_by(ev) is REPLICA, "the replica follows")
        return ev

    def close(self) -> None:
        for ev in self._opened:
            ev.close()


@pytest.fixture
def stores(servers: Replicated, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stores]:
    monkeypatch.setattr(replicas, "_REST", 0.0)
    monkeypatch.setattr(replicas, "_LOOK_AGAIN", 0.0)
    found = Stores(servers)
    yield found
    found.close()


def answered_by(ev: Evervec, *, fresh: bool = False) -> bool:
    """Which server answers a search now."""
    store: Any = ev.store

    def search() -> bool:
        with store.db.reading() as conn:
            (is_standby,) = conn.execute("select pg_is_in_recovery()").fetchone()
        return bool(is_standby)

    return ev.store.searching(search, fresh=fresh)


def found(ev: Evervec, words: str, **options: Any) -> list[str]:
    return [hit.id for hit in ev.search(words, **options)]


@pytest.mark.parametrize("mode", ["semantic", "text", "hybrid"])
def test_a_replica_answers_and_what_is_written_meanwhile_goes_to_the_primary(
    stores: Stores, mode: str
) -> None:
    ev = stores.open()
    assert found(ev, "sparrow", mode=mode) == ["1"]
    ticket = ev.add("note", "a second heron", id="2")
    ev.process_all()
    assert found(ev, "heron", mode=mode, after=ticket)[0] == "2"
    assert answered_by(ev) is REPLICA


def test_a_lagging_replica_is_read_without_a_ticket_and_not_with_one(
    servers: Replicated, stores: Stores
) -> None:
    ev = stores.open(replica_lag_seconds=3600.0)
    servers.pause()
    try:
        ticket = ev.add("note", "a late heron", id="2")
        ev.process_all()
        assert found(ev, "heron", mode="text") == []
        assert found(ev, "heron", mode="text", after=ticket) == ["2"]
        assert found(ev, "a late heron", mode="semantic", after=ticket)[0] == "2"
        gone = ev.delete("note", "1")
        ev.process_all()
        assert found(ev, "sparrow", mode="text") == ["1"]
        assert found(ev, "sparrow", mode="text", after=gone) == []
    finally:
        servers.go_on()
    until(lambda: found(ev, "heron", mode="text") == ["2"], "the replica has it")


def test_a_search_after_a_ticket_waits_for_the_replica(servers: Replicated, stores: Stores) -> None:
    ev = stores.open(replica_wait_seconds=60.0)
    servers.pause()
    try:
        ev.add("note", "a late heron", id="2")
        ev.process_all()
        began = threading.Event()

        def search() -> bool:
            began.set()
            return answered_by(ev, fresh=True)

        asked = submit("search", search)
        assert began.wait(10)
        assert not asked.done()
    finally:
        servers.go_on()
    assert asked.result(30) is REPLICA


def test_own_writes_are_found_while_the_replica_lags_at_random(
    servers: Replicated, stores: Stores
) -> None:
    ev = stores.open(replica_lag_seconds=3600.0, replica_wait_seconds=0.1)
    rng, stop = random.Random(3), threading.Event()
    answered: Counter[bool] = Counter()

    def lag() -> None:
        while not stop.wait(rng.uniform(0.0, 0.1)):
            servers.pause()
            stop.wait(rng.uniform(0.0, 0.3))
            servers.go_on()

    lagging = submit("lag", lag)
    try:
        with ev.worker():
            for number in range(60):
                ticket = ev.add("note", f"heron{number}", id=str(number % 20))
                ev.wait(ticket)
                answered[answered_by(ev, fresh=True)] += 1
                mode = ("text", "semantic", "hybrid")[number % 3]
                (best, *_) = ev.search(f"heron{number}", mode=mode, after=ticket)
                assert (best.id, best.text) == (str(number % 20), f"heron{number}")
                gone = ev.delete("note", str(number % 20))
                hits = ev.search(f"heron{number}", mode=mode, after=gone, k=50)
                assert f"heron{number}" not in [hit.text for hit in hits]
    finally:
        stop.set()
        lagging.result(10)
    assert set(answered) == {REPLICA, PRIMARY}


def test_a_replica_that_lags_too_much_is_not_read(servers: Replicated, stores: Stores) -> None:
    ev = stores.open(replica_lag_seconds=0.0)
    servers.pause()
    try:
        ev.add("note", "a late heron", id="2")
        ev.process_all()
        assert answered_by(ev) is PRIMARY
        assert found(ev, "heron", mode="text") == ["2"]
    finally:
        servers.go_on()
    until(lambda: answered_by(ev) is REPLICA, "the replica has caught up")


def test_a_table_that_the_replica_has_not_yet_is_read_on_the_primary(
    servers: Replicated, stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    ev = stores.open(replica_lag_seconds=3600.0)
    (collection,) = ev.store.versions.collections()
    store: Any = ev.store
    postgres.execute(store.db.url, f"drop table evervec.points_{collection.version}")
    until(lambda: answered_by(ev, fresh=True) is REPLICA, "it is dropped there")
    servers.pause()
    try:
        ev.verify(repair=True)
        ev.process_all()
        hits = ev.search("a first sparrow", mode="semantic")
    finally:
        servers.go_on()
    assert [hit.id for hit in hits] == ["1"]
    assert hits.via == "semantic"
    assert "searches do not read a replica" in caplog.text


def test_a_stopped_replica_is_left_out_until_it_is_back(
    servers: Replicated, stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    ev = stores.open()
    servers.stop()
    try:
        for _ in range(3):
            assert found(ev, "sparrow") == ["1"]
        assert caplog.text.count("searches do not read a replica") == 1
    finally:
        servers.start()
    until(lambda: answered_by(ev) is REPLICA, "the replica is back")


def test_a_promoted_replica_is_not_read(stores: Stores) -> None:
    servers = Replicated()
    try:
        mine = Stores(servers)
        ev = mine.open(replica_lag_seconds=3600.0)
        servers.promote()
        until(lambda: answered_by(ev) is PRIMARY, "it is no replica any more")
        ticket = ev.add("note", "a late heron", id="2")
        ev.process_all()
        assert found(ev, "heron", mode="text", after=ticket) == ["2"]
        mine.close()
    finally:
        servers.remove()
