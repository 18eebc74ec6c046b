"""Versions that come and go beside transactions which do not know of it."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from evervec import Evervec, InvalidTransition, Migration
from evervec.stores.values import Collection
from support import postgres
from support.processes import until
from support.world import KIND, World, assert_in_step, work


def drive(ev: Evervec, times: int = 5) -> None:
    """What workers do, some rounds of it."""
    for _ in range(times):
        while ev._lifecycle.step() or work(ev).processed:
            pass


def begun(world: World) -> Migration:
    return world.ev.migrate("hashing:32")


def new_version(ev: Evervec) -> Collection:
    return ev.store.versions.collections()[-1]


def built(ev: Evervec) -> None:
    def done() -> bool:
        drive(ev, 1)
        return ev._lifecycle.is_filled(new_version(ev))

    until(done, "the version to be built")


def test_a_version_is_not_filled_before_those_who_do_not_know_it_have_ended(world: World) -> None:
    ev = world.ev
    ev.add(KIND, "alpha", id="1")
    work(ev)
    with closing(world.connect()) as conn:
        ev.add(KIND, "late", id="late", conn=conn)
        migration = begun(world)
        drive(ev)
        assert not ev._lifecycle.is_filled(new_version(ev))
        conn.commit()
    built(ev)
    migration.switch()
    assert ev.verify().clean
    assert ev.get(KIND, "late").embedded  # type: ignore[union-attr]


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[World]:
    """PostgreSQL prepares no transaction that tells others of its work."""
    world = World(("postgres", "pgvector"), tmp_path, listen=False)
    yield world
    world.close()


def test_a_version_waits_for_prepared_transactions(silent: World) -> None:
    ev = silent.ev
    ev.add(KIND, "alpha", id="1")
    work(ev)
    with closing(silent.connect()) as conn:
        conn.tpc_begin(conn.xid(1, "evervec-test", "before"))
        ev.add(KIND, "late", id="late", conn=conn)
        conn.tpc_prepare()
        migration = begun(silent)
        drive(ev)
        filled = ev._lifecycle.is_filled(new_version(ev))
        conn.tpc_commit()
    assert not filled
    built(ev)
    migration.switch()
    assert ev.get(KIND, "late").embedded  # type: ignore[union-attr]


def test_a_version_waits_for_what_is_prepared_while_it_waits(silent: World) -> None:
    ev = silent.ev
    ev.add(KIND, "alpha", id="1")
    work(ev)
    with closing(silent.connect()) as conn:
        conn.tpc_begin(conn.xid(1, "evervec-test", "meanwhile"))
        ev.add(KIND, "late", id="late", conn=conn)
        migration = begun(silent)
        drive(ev)
        conn.tpc_prepare()
        drive(ev)
        filled = ev._lifecycle.is_filled(new_version(ev))
        conn.tpc_commit()
    assert not filled
    built(ev)
    migration.switch()
    assert ev.get(KIND, "late").embedded  # type: ignore[union-attr]


def gone(ev: Evervec, version: int) -> bool:
    drive(ev, 1)
    return version not in {c.version for c in ev.store.versions.collections()}


def test_a_cancelled_version_stays_for_transactions_that_write_for_it(world: World) -> None:
    """Whom it waited for while it was built says nothing of who knows that it was cancelled."""
    ev = world.ev
    ev.add(KIND, "alpha", id="1")
    work(ev)
    with closing(world.connect()) as old, closing(world.connect()) as long:
        old.execute("select count(*) from evervec.jobs")
        migration = begun(world)
        version = new_version(ev).version
        drive(ev)
        ev.add(KIND, "long", id="long", conn=long)  # for both versions
        migration.cancel()
        old.rollback()
        world.clock.move(10)
        drive(ev)
        assert not gone(ev, version)
        long.commit()
    until(lambda: gone(ev, version), "the version to go")
    assert {job.embedding_version for job in ev.queue.jobs()} == {"hashing-64"}
    assert_in_step(ev, {"1": "alpha", "long": "long"})


def test_a_name_is_not_used_again_while_a_transaction_writes_for_the_old(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ev = world.ev
    ev.add(KIND, "alpha", id="1")
    work(ev)
    first = begun(world)
    version = new_version(ev).version
    with closing(world.connect()) as long:
        ev.add(KIND, "long", id="long", conn=long)
        first.cancel()
        monkeypatch.setattr("evervec.versions.lifecycle._MAKES_WAY", 0.1)
        with pytest.raises(InvalidTransition, match="open transaction"):
            begun(world)
        assert version in {c.version for c in ev.store.versions.collections()}
        long.commit()
    monkeypatch.undo()
    again = begun(world)
    assert again.version == first.version
    built(ev)
    again.switch()
    assert {job.embedding_version for job in ev.queue.jobs()} == {"hashing-64", "hashing-32"}
    assert ev.verify().clean
    assert ev.get(KIND, "long").embedded  # type: ignore[union-attr]


def test_nothing_is_left_of_what_a_version_waited_for(world: World, url: str) -> None:
    ev = world.ev
    ev.add(KIND, "alpha", id="1")
    work(ev)
    with closing(world.connect()) as old:
        old.execute("select count(*) from evervec.jobs")
        migration = begun(world)
        version = new_version(ev).version
        drive(ev)
        migration.cancel()
        world.clock.move(10)
        drive(ev)
    until(lambda: gone(ev, version), "the version to go")
    with psycopg.connect(url) as conn:
        assert (
            conn.execute("select name from evervec.notes where name ~ 'unaware'").fetchall() == []
        )


def test_a_kind_has_one_serving_version_however_many_begin_it(world: World) -> None:
    """One caller begins it and a process gives it its model, while another waits to begin it."""
    ev = world.ev
    with closing(world.connect()) as conn:
        conn.execute(ev.store.changes.sql.add_version.replace("$1", "%s"), (KIND, KIND))  # type: ignore[attr-defined]
        conn.execute("update evervec.versions set name = 'named' where kind = %s", (KIND,))
        other = threading.Thread(target=ev.add, args=(KIND, "alpha"), kwargs={"id": "1"})
        other.start()
        blocked = (
            "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query ~ 'versions'"
        )
        with closing(world.connect()) as watch:
            watch.autocommit = True
            until(lambda: watch.execute(blocked).fetchone(), "the other to wait")
        conn.commit()
        other.join()
        states = conn.execute("select state from evervec.versions where kind = %s", (KIND,))
        assert states.fetchall() == [("serving",)]
    assert ev.get(KIND, "1") is not None


_COUNTED = """
select count(*), coalesce(sum(case when l.seq >= r.seq and l.doubt is null then 1 else 0 end), 0)
from evervec.versions as v
join evervec.records as r on r.kind = v.kind and r.state = 'live'
left join evervec.ledger as l on l.record = r.record and l.version = v.version
where v.version = $1
"""


def test_progress_by_kept_counts_is_that_of_counting_records(world: World, url: str) -> None:
    ev = world.ev

    def check() -> None:
        for c in ev.store.versions.collections():
            found = ev.store.versions.progress(c.version)
            assert [(found.records, found.current)] == postgres.execute(url, _COUNTED, c.version)

    for n in range(8):
        ev.add(KIND, f"alpha {n}", id=n)
    ev.add("other", "beta", id="of another kind")
    check()
    work(ev)
    check()
    ev.add(KIND, "alpha changed", id=1)  # pending, with an entry of the former text
    ev.delete(KIND, "2")
    ev.add(KIND, "alpha new", id="new")
    check()
    migration = begun(world)
    check()
    ev.queue.claim(2)
    check()
    drive(ev, 1)
    check()
    built(ev)
    check()
    ev.add(KIND, "alpha again", id=3)
    ev.delete(KIND, "4")
    check()
    work(ev)
    status = migration.status()
    assert (status.records, status.current) == (8, 8)  # one is of the other kind
    check()
    for hidden in ("a", "b"):
        ev.queue.enqueue(KIND, hidden)
    check()
    migration.switch()
    check()
    work(ev)
    check()


def test_a_migration_tells_how_long_it_will_take(world: World) -> None:
    ev = world.ev
    for n in range(20):
        ev.add(KIND, f"alpha {n}", id=n)
    work(ev)
    migration = begun(world)
    until(lambda: ev._lifecycle.step() or migration.status().pending, "records to be enqueued")
    ev.queue.recorder.flush()
    status = migration.status()
    assert status.rate is not None
    assert 20 / 180 < status.rate <= 20 / 60
    assert status.seconds_left == pytest.approx(20 / status.rate)
    drive(ev)
    assert migration.status().seconds_left is None
