"""Two transactions of which one holds the row that the other wants."""

import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial

import pytest

from evervec import InvalidTransition, JobFilter, Status, Ticket
from support import postgres
from support.places import somebody_waits
from support.processes import until
from support.world import DAY, KIND, World, assert_in_step, job_of, work

CLAIM_ALL = """
with taken as (delete from evervec.ready returning job_id)
insert into evervec.claims (token, started_at, expires_at, leased_until, held, job_ids, seqs)
select 'theirs', 0, 9e9, 9e9, count(*), array_agg(job_id), array_agg(seq)
from taken join evervec.jobs using (job_id)
"""


def while_waiting(url: str, call: Callable[[], object], then: Callable[[], object]) -> list[object]:
    """Do `then` while `call` waits for a lock; what `call` gave or raised."""
    answers: list[object] = []

    def run() -> None:
        try:
            answers.append(call())
        except Exception as error:
            answers.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: somebody_waits(url), "it to wait")
    then()
    thread.join()
    return answers


def test_a_job_that_is_claimed_meanwhile_is_not_cancelled(world: World, url: str) -> None:
    ticket = world.ev.add(KIND, "alpha", id="1")
    with closing(world.connect()) as conn:
        conn.execute(CLAIM_ALL)
        (error,) = while_waiting(url, lambda: world.ev.queue.cancel(ticket.job_id), conn.commit)
    assert isinstance(error, InvalidTransition)
    assert job_of(world.ev, "1").status is Status.PROCESSING


@pytest.mark.parametrize("boxed", [False, True])
def test_a_deleted_record_that_is_added_anew_is_not_purged(
    world: World, url: str, boxed: bool
) -> None:
    """The one waits for the other, whichever is first, and the record is there."""
    ev = world.ev
    ev.add(KIND, "alpha", id="1")
    work(ev)
    ev.delete(KIND, "1")
    work(ev)
    world.clock.move(8 * DAY)
    ev.store.jobs.purge(Status.DONE, world.clock.now)
    with closing(world.connect()) as conn:
        ev.add(KIND, "beta", id="1", boxed=boxed, conn=conn)
        ev.store.jobs.purge_history(world.clock.now)  # passes over what is locked
        conn.commit()
    ev.store.jobs.purge_history(world.clock.now)
    work(ev)
    assert_in_step(ev, {"1": "beta"})


def test_a_save_that_waits_for_a_purge_makes_the_record_anew(world: World, url: str) -> None:
    ev = world.ev
    ev.add(KIND, "alpha", id="1")
    work(ev)
    ev.delete(KIND, "1")
    work(ev)
    with closing(world.connect()) as conn:
        conn.execute("delete from evervec.jobs")
        conn.execute("delete from evervec.records")  # as a purge does
        (ticket,) = while_waiting(url, lambda: ev.add(KIND, "beta", id="1"), conn.commit)
    assert ticket.is_new  # type: ignore[attr-defined]
    work(ev)
    assert_in_step(ev, {"1": "beta"})


def test_two_first_records_of_one_kind_do_not_wait_for_each_other(world: World) -> None:
    """The kind's version is no part of either caller's transaction."""
    with closing(world.connect()) as first, closing(world.connect()) as second:
        world.ev.add("fresh", "alpha", id="1", conn=first)
        world.ev.add("fresh", "beta", id="2", conn=second)
        second.commit()
        first.rollback()
    work(world.ev)
    assert_in_step(world.ev, {"2": "beta"}, "fresh")


def test_of_two_that_enqueue_the_same_in_bulk_the_later_one_finds_it(
    world: World, url: str
) -> None:
    """It believed that nobody knew them, and had inserted some of them."""
    queue = world.ev.queue
    with closing(world.connect()) as conn:
        (first,) = queue.enqueue_many(KIND, ["150"], conn=conn)
        (found,) = while_waiting(url, lambda: queue.enqueue_many(KIND, range(300)), conn.commit)
    new = {n: result.is_new for n, result in enumerate(found)}  # type: ignore[arg-type, var-annotated]
    assert [n for n, is_new in new.items() if not is_new] == [150]
    assert found[150].job_id == first.job_id  # type: ignore[index]
    assert len(queue.claim(500)) == 300


def test_of_two_that_add_the_same_in_bulk_the_later_one_changes_it(world: World, url: str) -> None:
    """It believed that nobody knew them, and had inserted some of them."""
    ev = world.ev
    texts = {str(n): f"text {n}" for n in range(300)}
    with closing(world.connect()) as conn:
        first = ev.add(KIND, "theirs", id="150", conn=conn)
        records = [{"id": id, "text": text} for id, text in texts.items()]
        (found,) = while_waiting(url, lambda: list(ev.add_many(KIND, records)), conn.commit)
    tickets = {ticket.id: ticket for ticket in found}  # type: ignore[attr-defined]
    assert [id for id, ticket in tickets.items() if not ticket.is_new] == ["150"]
    assert tickets["150"].job_id == first.job_id
    assert tickets["150"].seq > first.seq
    work(ev)
    assert_in_step(ev, texts)


def test_a_later_change_of_a_record_has_the_larger_seq(world: World, url: str) -> None:
    """Also when it was asked for before the earlier one was committed."""
    ev = world.ev
    ev.add(KIND, "alpha", id="1")
    with closing(world.connect()) as conn:
        first = ev.add(KIND, "beta", id="1", conn=conn)
        (second,) = while_waiting(url, lambda: ev.add(KIND, "gamma", id="1"), conn.commit)
    assert second.seq > first.seq  # type: ignore[attr-defined]
    work(ev)
    assert_in_step(ev, {"1": "gamma"})


def test_a_delete_of_an_unknown_record_waits_for_its_insert_and_compares(
    world: World, url: str
) -> None:
    """Whichever of the two inserts the row, the newer version stays."""
    ev = world.ev
    ev.add(KIND, "another", id="0")
    with closing(world.connect()) as conn:
        ev.add(KIND, "two", id="1", version=2, conn=conn)
        (deleted,) = while_waiting(url, lambda: ev.delete(KIND, "1", version=3), conn.commit)
    with closing(world.connect()) as conn:
        ev.delete(KIND, "2", version=3, conn=conn)
        (added,) = while_waiting(url, lambda: ev.add(KIND, "two", id="2", version=2), conn.commit)
    assert isinstance(deleted, Ticket)
    assert deleted.accepted
    assert isinstance(added, Ticket)
    assert not added.accepted
    work(ev)
    assert_in_step(ev, {"0": "another"})


def test_a_bulk_change_that_meets_a_save_in_another_order_is_repeated(
    world: World, url: str
) -> None:
    """PostgreSQL ends whichever of two finds the deadlock first."""
    name = "alter database " + url.split("/")[3].split("?", maxsplit=1)[0]
    postgres.execute(url, f"{name} set deadlock_timeout = '20ms'")
    second = world.open()
    postgres.execute(url, f"{name} reset deadlock_timeout")
    lock = "select 1 from evervec.jobs where job_id = %s for update"
    first, last = (second.add(KIND, text).job_id for text in ("alpha", "beta"))
    with closing(world.connect()) as conn:
        conn.execute("set deadlock_timeout = '1min'")
        conn.execute(lock, (last,))

        def meet() -> None:
            conn.execute(lock, (first,))
            conn.commit()

        change = partial(second.queue.set_priority_where, JobFilter(kind=KIND), 7)
        assert while_waiting(url, change, meet) == [2]
