"""A machine or database server that crashes loses the last commits that nobody waited for. An
index apart from it has seen them, and must take every later change all the same."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import evervec
from evervec import Evervec
from evervec.embedders.hashing import HashingEmbedder
from support import postgres
from support.engines import STORES
from support.oracle import Application, Oracle
from support.power import Disk
from support.processes import until
from support.qdrant_server import QdrantServer
from support.stepping import LEASE, settle, take, write
from support.world import World, work

RECORDS = 12


def repair(world: World, ev: Evervec, disk: Disk) -> None:
    """The index lost everything, and is mended."""
    (collection,) = ev.store.versions.collections()
    ev.index.remove(collection.version, ev.index.held(collection.version, None, 0, None))
    assert ev.verify(repair=True).missing
    work(ev)


def lost_leases(world: World, ev: Evervec, disk: Disk) -> None:
    """A worker was too slow to finish what it had written, and asks for another look."""
    worker = world.open()
    disk.watch(worker)
    ev.queue.enqueue_many("note", range(RECORDS))

    def meanwhile() -> None:
        world.clock.move(LEASE + 1)
        assert ev.queue.recover_stuck() == RECORDS
        work(ev)

    write(worker, take(worker), "applied", meanwhile)
    settle(world, ev)


def test_what_was_acknowledged_outlives_a_power_cut(tmp_path: Path) -> None:
    world = World(("sqlite", "sqlite"), tmp_path)
    disk = Disk(Path(STORES["sqlite"].url(tmp_path)))
    ev = world.ev
    list(ev.add_many("note", [{"id": id, "text": "before"} for id in ("gone", "failed")]))
    work(ev)
    steps: list[Callable[[Evervec], object]] = [
        lambda ev: ev.add("note", "added", id="added"),
        lambda ev: list(ev.add_many("note", ["one of many"])),
        lambda ev: ev.add("note", "boxed", id="boxed", boxed=True),
        lambda ev: ev.delete("note", "gone"),
        lambda ev: ev.queue.enqueue("note", "failed"),
    ]
    for step in steps:
        disk.watch(ev)
        step(ev)
        records, jobs = ev.records(), ev.queue.jobs()
        ev.close()
        disk.cut_power()
        ev = world.open()
        assert ev.records() == records
        assert ev.queue.jobs() == jobs
    world.close()


@pytest.mark.parametrize("asked", [repair, lost_leases])
@pytest.mark.parametrize("index", ["qdrant", "qdrant-edge", "lancedb"])
def test_changes_after_a_power_cut_reach_an_index_that_is_ahead_of_the_store(
    tmp_path: Path, index: str, asked: Callable[[World, Evervec, Disk], None]
) -> None:
    world = World(("sqlite", index), tmp_path)
    disk = Disk(Path(STORES["sqlite"].url(tmp_path)))
    app = Application(world.ev, Oracle())
    for n in range(RECORDS):
        app.add(str(n), f"note {n} of harbour {n}")
    work(world.ev)
    disk.watch(world.ev)
    asked(world, world.ev, disk)
    app.oracle.check(world.ev)

    for ev in world.opened:
        ev.close()
    disk.cut_power()
    app.ev = world.open()
    settle(world, app.ev)
    for n in reversed(range(RECORDS)):
        app.add(str(n), f"note {n} edited after the cut")
    settle(world, app.ev)
    app.oracle.check(app.ev)
    world.close()


@pytest.fixture
def own_server() -> Iterator[postgres.Server]:
    """A server that may crash, and that writes its log as late as it may."""
    folder = Path(f"{os.environ[postgres.FOLDER]}-crashed-{os.getpid()}")
    server = postgres.Server(folder, wal_writer_delay="'10s'")
    yield server
    server.stop()
    postgres.remove(folder)


def test_changes_after_a_crash_of_postgresql_reach_an_index_that_is_ahead_of_it(
    own_server: postgres.Server,
) -> None:
    qdrant, oracle = QdrantServer(), Oracle()

    def opened() -> Evervec:
        return evervec.open(
            own_server.url, index=qdrant.url, embedder=HashingEmbedder(64), listen=False
        )

    with opened() as ev:
        app = Application(ev, oracle)
        for n in range(RECORDS):
            app.add(str(n), f"note {n} of harbour {n}")
        ev.process_all()
        postgres.execute(own_server.url, "checkpoint")
        (collection,) = ev.store.versions.collections()
        ev.index.remove(collection.version, ev.index.held(collection.version, None, 0, None))
        assert ev.verify(repair=True).missing
        ev.process_all()
        pid = own_server.pid
        os.kill(pid, signal.SIGQUIT)  # an immediate shutdown, which recovers as after a crash
        until(lambda: not Path(f"/proc/{pid}").exists(), "the server to be gone")
    own_server.start()
    with opened() as ev:
        app = Application(ev, oracle)
        for n in reversed(range(RECORDS)):
            app.add(str(n), f"note {n} edited after the crash")
        ev.process_all()
        oracle.check(ev)
    qdrant.stop()
