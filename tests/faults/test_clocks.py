"""A worker's clock is wrong, or the database's steps back: leases follow the latter."""

import time
from collections.abc import Iterator

import pytest

from evervec import Evervec, LeaseLost
from support.fault_checks import assert_true_to, open_store, settle
from support.places import Place
from support.postgres import DATABASES, DatabaseClock

HOUR = 3600.0


@pytest.fixture
def path() -> Iterator[Place]:
    """Where the store has a clock of its own."""
    url = DATABASES.borrow()
    yield url
    DATABASES.give_back(url)


@pytest.mark.parametrize("off", [-HOUR, HOUR])
def test_a_worker_whose_clock_is_wrong_neither_steals_nor_overstays(
    ev: Evervec, path: Place, off: float
) -> None:
    """It cannot claim what another holds, holds its own lease just as long as others do, and
    what it adds is due at once."""
    with open_store(path, clock=lambda: time.time() + off) as wrong:
        assert abs(wrong.store.now() - time.time()) < HOUR / 2
        wrong.add("note", "the first", id="a")
        mine = ev.queue.claim(1)
        assert [job.record_id for job in mine] == ["a"]
        assert wrong.queue.claim(1) == []
        assert wrong.queue.recover_stuck() == 0
        wrong.add("note", "the second", id="b")
        theirs = wrong.queue.claim(1)
        assert [job.record_id for job in theirs] == ["b"]
        assert ev.queue.recover_stuck() == 0
        for job in (*mine, *theirs):
            assert job.lease_expires_at is not None
            left = job.lease_expires_at.timestamp() - time.time()
            assert abs(left - ev.settings.lease_seconds) < HOUR / 2
        wrong.queue.finish(theirs[0])
        ev.queue.release(mine[0])
    settle(ev)


def test_a_database_clock_that_steps_back_only_delays(ev: Evervec, path: str) -> None:
    """A lease is held longer then, never by two; once its time comes, the job is taken over."""
    clock = DatabaseClock(path, 1_800_000_000.0)
    ev.add("note", "the text", id="a")
    job = ev.queue.claim(1)[0]
    clock.move(-HOUR)
    assert ev.queue.claim(1) == []
    assert ev.queue.recover_stuck() == 0
    assert not ev.store.leases.look_for_expired()
    ev.queue.renew(job)  # by the clock as it is now
    clock.move(ev.settings.lease_seconds + 1)
    assert ev.store.leases.look_for_expired()
    assert ev.queue.recover_stuck() == 1
    with pytest.raises(LeaseLost):
        ev.queue.finish(job)
    clock.move(2 * HOUR)  # what was due before the step is due again
    settle(ev)
    assert_true_to(ev, path, {"a": "the text"})
