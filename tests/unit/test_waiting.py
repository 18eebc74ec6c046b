"""Waiting for changes: one looks for all, and none is forgotten."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from evervec import Evervec, Status, StoreError, Ticket, WaitTimeout
from support.processes import until
from support.world import KIND, World, add_all

PATIENCE = 60.0


class Looks:
    """What is asked of the store."""

    def __init__(self, ev: Evervec) -> None:
        self.settled = ev.store.jobs.settled
        self.sizes: list[int] = []
        self.fail: StoreError | None = None

    def __call__(self, asked: Sequence[tuple[str, Ticket]]) -> list[Status | None]:
        if self.fail is not None:
            raise self.fail
        self.sizes.append(len(asked))
        return self.settled(asked)


@pytest.fixture
def ev(memory: World) -> Evervec:
    return memory.open(poll_seconds=3600.0)


@pytest.fixture
def looks(ev: Evervec) -> Looks:
    looks = Looks(ev)
    ev.store.jobs.settled = looks  # type: ignore[method-assign]
    return looks


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(10) as pool:
        yield pool


def test_one_looks_for_all(ev: Evervec, looks: Looks, threads: ThreadPoolExecutor) -> None:
    tickets = add_all(ev, KIND, *(f"text {n}" for n in range(10)))
    waits = [threads.submit(ev.wait, ticket, PATIENCE) for ticket in tickets]
    until(lambda: len(looks.sizes) == 10, "each to have looked for itself")
    ev.store.wake()
    until(lambda: looks.sizes[10:] == [10], "one to look for all")
    ev.process_all()
    assert {wait.result().status for wait in waits} == {Status.DONE}
    assert len(looks.sizes) < 30


def test_who_looked_for_all_leaves_it_to_another(
    ev: Evervec, looks: Looks, threads: ThreadPoolExecutor
) -> None:
    tickets = add_all(ev, KIND, *(f"text {n}" for n in range(3)))
    for n, ticket in enumerate(tickets):
        ev.queue.set_priority(ticket.job_id, -n)
    waits = []
    for ticket in tickets:
        waits.append(threads.submit(ev.wait, ticket, PATIENCE))
        until(lambda: len(looks.sizes) == len(waits), "it to have looked")
    for wait in waits:
        ev.queue.finish(ev.queue.claim(1)[0])
        assert wait.result().status is Status.DONE


def test_each_is_told_when_the_store_fails(
    ev: Evervec, looks: Looks, threads: ThreadPoolExecutor
) -> None:
    tickets = add_all(ev, KIND, *(f"text {n}" for n in range(3)))
    waits = [threads.submit(ev.wait, ticket, PATIENCE) for ticket in tickets]
    until(lambda: len(looks.sizes) == 3, "each to have looked for itself")
    looks.fail = StoreError("it is away")
    ev.store.wake()
    for wait in waits:
        with pytest.raises(StoreError, match="away"):
            wait.result()


def test_one_who_waited_long_enough_leaves_the_others_waiting(
    ev: Evervec, threads: ThreadPoolExecutor
) -> None:
    first, second = add_all(ev, KIND, "alpha", "beta")
    patient = threads.submit(ev.wait, second, PATIENCE)
    for _ in range(2):
        with pytest.raises(WaitTimeout, match="0"):
            ev.wait(first, 0.01)
    ev.process_all()
    assert patient.result().status is Status.DONE
    assert ev.wait(first, 0).status is Status.DONE


def test_tenants_wait_together(ev: Evervec, threads: ThreadPoolExecutor) -> None:
    views = [ev.of(tenant) for tenant in ("a", "b", "c")]
    tickets = [view.add(KIND, "alpha", id="same") for view in views]
    waits = [
        threads.submit(view.wait, ticket, PATIENCE)
        for view, ticket in zip(views, tickets, strict=True)
    ]
    ev.process_all()
    assert [wait.result().tenant for wait in waits] == ["a", "b", "c"]
