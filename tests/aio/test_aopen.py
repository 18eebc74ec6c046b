"""A store opened for an event loop: what runs in which thread, and what waits for what."""

import asyncio
import contextvars
import os
import signal
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import evervec
from aio.conftest import Run
from evervec import (
    AsyncEvervec,
    DeadlineExceeded,
    InvalidArgument,
    InvalidRecord,
    JobFailed,
    Kind,
    StoreError,
    Ticket,
    WaitTimeout,
)
from support.processes import until
from support.world import KIND, World, fail_for_good


class Threads:
    """Which threads used the connections of a store."""

    def __init__(self, ev: AsyncEvervec, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: Counter[str] = Counter()
        db: Any = ev.sync.store.db  # type: ignore[attr-defined]
        for name in ("reading", "writing", "snapshot", "commits"):
            monkeypatch.setattr(db, name, self._noting(getattr(db, name)))

    def _noting(self, use: Any) -> Any:
        def noted(*args: Any, **kwargs: Any) -> Any:
            self.seen[threading.current_thread().name] += 1
            return use(*args, **kwargs)

        return noted


def test_no_call_of_the_store_runs_in_the_thread_of_the_loop(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(ev: AsyncEvervec) -> None:
        threads = Threads(ev, monkeypatch)
        tickets = await asyncio.gather(*(ev.add(KIND, f"tea {n}", id=n) for n in range(50)))
        async with ev.worker():
            await asyncio.gather(*(ev.wait(ticket) for ticket in tickets))
            await ev.add(KIND, "coffee", id="c", wait=30)
        await asyncio.gather(*(ev.search(f"tea {n}", after=tickets[n]) for n in range(50)))
        assert [ticket.id async for ticket in ev.add_many(KIND, [{"text": "x", "id": "many"}])]
        assert len([record async for record in ev.records(limit=10)]) == 52
        await ev.register(Kind("plain"))
        await ev.delete(KIND, "c")
        await ev.delete_where({"a": 1})
        await ev.get(KIND, "1")
        await ev.count()
        await ev.versions()
        await ev.usage()
        await ev.limits()
        await ev.process_all()
        await ev.verify()
        await ev.backfill()
        await ev.alerts()
        await ev.estimate("hashing:32")
        migration = await ev.migrate("hashing:32")
        await ev.process_all()
        await migration.wait(30)
        await migration.switch()
        await migration.rollback()
        assert await ev.migration() is not None
        await migration.cancel()
        await ev.drop_retired()
        await ev.queue.stats()
        await ev.queue.release_many(await ev.queue.claim(5))
        assert threads.seen.keys().isdisjoint({threading.main_thread().name})
        assert threads.seen.total() > 100

    run(test)


def test_adds_of_many_tasks_are_saved_together(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(ev: AsyncEvervec) -> None:
        changes, sizes, hold = ev.sync.store.changes, [], threading.Event()
        save = changes.save

        def held(tenant: str, kind: str, drafts: Sequence[Any], *rest: Any) -> Any:
            sizes.append(len(drafts))
            hold.wait(60)
            return save(tenant, kind, drafts, *rest)

        monkeypatch.setattr(changes, "save", held)
        first = asyncio.create_task(ev.add(KIND, "first", id="first"))
        while not sizes:
            await asyncio.sleep(0)
        others = [asyncio.create_task(ev.add(KIND, f"text {n}", id=n)) for n in range(100)]
        bad = asyncio.create_task(ev.add(KIND, ""))
        await asyncio.sleep(0)
        hold.set()
        tickets = await asyncio.gather(first, *others)
        with pytest.raises(InvalidRecord, match="is empty"):
            await bad
        assert sizes == [1, 100]
        assert [ticket.id for ticket in tickets] == ["first", *map(str, range(100))]
        assert await ev.count() == 101

    run(test)


@pytest.mark.parametrize("raised", [asyncio.CancelledError, StopIteration, GeneratorExit])
def test_whatever_a_kind_raises_fails_its_own_record_alone(
    run: Run, raised: type[BaseException]
) -> None:
    def text(data: Any) -> str:
        if data["text"] == "bad":
            raise raised
        return str(data["text"])

    async def test(ev: AsyncEvervec) -> None:
        await ev.register(Kind(KIND, text=text))
        adds = [ev.add(KIND, {"text": text}) for text in ("one", "bad", "two")]
        one, bad, two = await asyncio.gather(*adds, return_exceptions=True)
        assert isinstance(one, Ticket)
        assert isinstance(bad, BaseException)
        assert isinstance(two, Ticket)
        assert (await ev.add(KIND, {"text": "three"})).is_new  # the thread is still there
        assert await ev.count() == 3

    run(test)


def test_waiting_tasks_hold_no_thread(run: Run) -> None:
    async def test(ev: AsyncEvervec) -> None:
        tickets = [ticket async for ticket in ev.add_many(KIND, (f"text {n}" for n in range(300)))]
        before = threading.active_count()
        waits = [asyncio.create_task(ev.wait(ticket, 60)) for ticket in tickets]
        looked = ev._runner.waiter._waiting
        while len(looked) < 300:
            await asyncio.sleep(0)
        assert threading.active_count() < before + 10
        assert await ev.count() == 300  # and calls of the store go on
        await ev.process_all()
        assert {job.status for job in await asyncio.gather(*waits)} == {"done"}
        until(lambda: ev._runner.waiter._thread is None, "the thread that polled to end")

    run(test)


def test_a_wait_ends_in_time_or_with_the_error_of_the_job(run: Run) -> None:
    async def test(ev: AsyncEvervec) -> None:
        ticket = await ev.add(KIND, "text", id="1")
        with pytest.raises(WaitTimeout, match="saved and waiting"):
            await ev.wait(ticket, 0)
        with pytest.raises(WaitTimeout, match=r"within 0\.01 s"):
            await ev.add(KIND, "other", id="2", wait=0.01)
        with pytest.raises(WaitTimeout):
            await ev.search("text", after=ticket, wait=0)
        waits = asyncio.create_task(ev.wait(ticket, 60))
        await asyncio.to_thread(fail_for_good, ev.sync, "1")
        with pytest.raises(JobFailed, match="it is bad"):
            await waits

    run(test)


def test_a_slow_embedder_of_queries_delays_no_other_call(run: Run, file_world: World) -> None:
    """Even with more searches than there are threads."""
    hold = threading.Event()

    async def test(ev: AsyncEvervec) -> None:
        await ev.add(KIND, "tea grows on hills", id="1")
        await ev.process_all()
        file_world.embedder.before = lambda _: hold.wait(60)
        searches = [asyncio.create_task(ev.search("tea")) for _ in range(40)]
        while len(file_world.embedder.calls) < 2:
            await asyncio.sleep(0)
        assert await ev.get(KIND, "1") is not None
        assert (await ev.search("tea", mode="text"))[0].id == "1"
        assert (await ev.add(KIND, "coffee")).is_new
        assert not any(search.done() for search in searches)
        hold.set()
        found = await asyncio.gather(*searches)
        assert {(hits.via, hits[0].id) for hits in found} == {("hybrid", "1")}
        assert len(file_world.embedder.calls) == 41

    run(test)


def test_a_query_is_embedded_only_by_the_model_of_the_searched_version(
    run: Run, file_world: World
) -> None:
    async def test(ev: AsyncEvervec) -> None:
        await ev.add(KIND, "tea grows on hills", id="1")
        await ev.process_all()
        migration = await ev.migrate("hashing:32", version="next")
        await ev.process_all()
        before = len(file_world.embedder.calls)
        hits = await ev.search("tea", version="next")
        assert (hits.version, hits[0].id) == ("next", "1")
        assert len(file_world.embedder.calls) == before
        await migration.cancel()

    run(test)


def test_a_query_that_cannot_be_embedded_is_answered_by_text(run: Run, file_world: World) -> None:
    async def test(ev: AsyncEvervec) -> None:
        await ev.add(KIND, "tea grows on hills", id="1")
        await ev.process_all()

        def fail(_: Sequence[str]) -> None:
            raise evervec.ProviderUnavailable("away")

        file_world.embedder.before = fail
        hits = await ev.search("tea")
        assert (hits.via, hits[0].id) == ("text", "1")

    run(test)


def test_context_and_deadline_of_a_task_hold_in_its_threads(run: Run) -> None:
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")

    async def test(ev: AsyncEvervec) -> None:
        await ev.register(Kind("signed", text=lambda data: f"{data} by {who.get()}"))

        async def add(name: str) -> None:
            who.set(name)
            await ev.add("signed", "text", id=name)

        await asyncio.gather(*map(add, ("ann", "bob")))
        texts = [record.text async for record in ev.records("signed")]
        assert texts == ["text by ann", "text by bob"]
        with evervec.deadline(0), pytest.raises(DeadlineExceeded):
            await ev.add(KIND, "too late")
        with evervec.deadline(0), pytest.raises(DeadlineExceeded):
            await ev.search("too late")
        assert await ev.count(KIND) == 0

    run(test)


def test_many_records_are_saved_from_both_kinds_of_iterables(run: Run) -> None:
    async def test(ev: AsyncEvervec) -> None:
        read: list[int] = []

        def records() -> Iterator[dict[str, Any]]:
            for n in range(250):
                read.append(n)
                yield {"id": n, "text": f"text {n}"}

        async def later() -> AsyncIterator[dict[str, Any]]:
            for record in records():
                await asyncio.sleep(0)
                yield record

        for source in (records, later):
            read.clear()
            tickets = ev.add_many(KIND, source())
            assert (await anext(tickets)).id == "0"
            assert len(read) == 100  # lazily, one batch at a time
            assert [ticket.id async for ticket in tickets] == [str(n) for n in range(1, 250)]
        assert await ev.count() == 250

    run(test, add_batch=100)


def test_iterables_that_wait_delay_no_other_call(run: Run) -> None:
    """Even more of them than there are threads for calls."""

    async def test(ev: AsyncEvervec) -> None:
        goes_on = threading.Event()

        def slow(number: int) -> Iterator[dict[str, Any]]:
            assert goes_on.wait(60)
            yield {"id": number, "text": "text"}

        async def add(number: int) -> list[Any]:
            return [ticket async for ticket in ev.add_many(KIND, slow(number))]

        adds = [asyncio.create_task(add(number)) for number in range(3)]
        assert await ev.get(KIND, "0") is None
        assert (await ev.search("text")).via
        goes_on.set()
        assert [len(tickets) for tickets in await asyncio.gather(*adds)] == [1, 1, 1]

    run(test, async_threads=2)


def test_an_invalid_record_of_many_is_named_after_those_before_it(run: Run) -> None:
    async def test(ev: AsyncEvervec) -> None:
        async def records() -> AsyncIterator[dict[str, Any]]:
            for n in range(20):
                yield {"id": n, "text": "" if n == 13 else f"text {n}"}

        for source in (records(), ({"id": n, "text": "x" * (n != 13)} for n in range(20))):
            tickets = ev.add_many(KIND, source)
            assert [(await anext(tickets)).id for _ in range(13)] == [str(n) for n in range(13)]
            with pytest.raises(InvalidRecord, match="position 13") as raised:
                await anext(tickets)
            assert raised.value.position == 13

    run(test, add_batch=5)


def test_tickets_that_nobody_reads_are_warned_of(run: Run) -> None:
    async def test(ev: AsyncEvervec) -> None:
        with pytest.warns(RuntimeWarning, match="never iterated"):
            ev.add_many(KIND, [])

    run(test)


def test_all_records_are_read_in_pages(run: Run) -> None:
    async def test(ev: AsyncEvervec) -> None:
        records = (
            {"id": n, "text": "x", "metadata": {"even": n % 2 == 0}} for n in range(100, 125)
        )
        assert len([ticket async for ticket in ev.add_many(KIND, records)]) == 25
        assert [record.id for record in await ev.records(limit=3)] == ["100", "101", "102"]
        page = await ev.records(limit=10, after=(KIND, "119"))
        assert [record.id for record in page] == [str(n) for n in range(120, 125)]
        for limit in (5, 7, 25, 100):
            ids = [record.id async for record in ev.records(KIND, limit=limit)]
            assert ids == [str(n) for n in range(100, 125)]
        assert len([r async for r in ev.records(filter={"even": True}, limit=4)]) == 13
        with pytest.raises(InvalidArgument, match="limit"):
            await ev.records(limit=0)

    run(test)


def test_tenants_share_threads_and_see_their_own_records(run: Run) -> None:
    async def test(ev: AsyncEvervec) -> None:
        names = ["a", "b", "default"]
        views = [ev.of(name) for name in names]
        await asyncio.gather(
            *chain.from_iterable(
                (view.add(KIND, f"{view.tenant} {n}", id=n) for n in range(30)) for view in views
            )
        )
        for view in views:
            texts = {record.text async for record in view.records()}
            assert texts == {f"{view.tenant} {n}" for n in range(30)}
            assert (await view.queue.stats()).pending == 30
        assert (await ev.queue_of(None).stats()).pending == 90

    run(test)


def test_the_queue_can_be_worked_by_hand(run: Run) -> None:
    async def test(ev: AsyncEvervec) -> None:
        await asyncio.gather(*(ev.add(KIND, f"text {n}", id=n) for n in range(3)))
        jobs = await ev.queue.claim(3)
        assert len(jobs) == 3
        await ev.queue.finish(jobs[0])
        await ev.queue.fail(jobs[1], "it is bad", permanent=True)
        await ev.queue.renew(jobs[2])
        await ev.queue.release(jobs[2])
        with pytest.raises(evervec.LeaseLost):
            await ev.queue.finish(jobs[2])
        assert [job.job_id for job in await ev.queue.failed()] == [jobs[1].job_id]

    run(test)


def test_progress_is_called_in_the_loop(run: Run) -> None:
    async def test(ev: AsyncEvervec) -> None:
        await ev.add(KIND, "text")
        calls: list[tuple[int, threading.Thread]] = []

        def progress(count: int) -> None:
            calls.append((count, threading.current_thread()))

        await ev.process_all(progress)
        await ev.verify(progress=progress)
        await asyncio.sleep(0)
        assert {thread for _, thread in calls} == {threading.main_thread()}
        assert sum(count for count, _ in calls) >= 2

    run(test)


def test_a_store_is_used_only_in_the_loop_that_opened_it(file_world: World) -> None:
    async def make() -> AsyncEvervec:
        return await evervec.aopen(file_world.folder / "other.db", embedder="noop")

    async def use(ev: AsyncEvervec) -> None:
        with pytest.raises(InvalidArgument, match="another event loop"):
            await ev.count()

    with asyncio.Runner() as first, asyncio.Runner() as second:
        ev = first.run(make())
        second.run(use(ev))
        first.run(ev.close())


def test_a_closed_store_fails_those_who_wait_and_those_who_come(run: Run) -> None:
    async def test(ev: AsyncEvervec) -> None:
        ticket = await ev.add(KIND, "text")
        waits = [asyncio.create_task(ev.wait(ticket, 60)) for _ in range(3)]
        while len(ev._runner.waiter._waiting) < 3:
            await asyncio.sleep(0)
        await ev.close()
        for failed in await asyncio.gather(*waits, return_exceptions=True):
            assert isinstance(failed, StoreError)
        for call in (ev.count(), ev.add(KIND, "text"), ev.wait(ticket), ev.process_all()):
            with pytest.raises(StoreError, match="is closed"):
                await call
        await ev.close()

    run(test)


def test_what_was_added_before_the_end_of_the_block_is_saved(
    file_world: World, tmp_path: Path
) -> None:
    async def main() -> list[asyncio.Task[Any]]:
        async with evervec.aopen(tmp_path / "a.db", embedder="noop") as ev:
            adds = [asyncio.create_task(ev.add(KIND, f"text {n}", id=n)) for n in range(2000)]
            await asyncio.sleep(0)
        return adds

    adds = asyncio.run(main())
    with evervec.open(tmp_path / "a.db", embedder="noop") as ev:
        assert all(task.result().accepted for task in adds)
        assert ev.count() == 2000


def test_a_worker_ends_with_a_signal(run: Run) -> None:
    async def test(ev: AsyncEvervec) -> None:
        before = signal.getsignal(signal.SIGTERM)
        works = asyncio.create_task(ev.run_worker())
        await ev.add(KIND, "text", wait=30)
        os.kill(os.getpid(), signal.SIGTERM)
        await works
        assert signal.getsignal(signal.SIGTERM) is before

    run(test)


def test_an_error_of_opening_is_raised_and_nothing_is_left(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(evervec.SettingsError, match="unknown embedder"):
            async with evervec.aopen(tmp_path / "a.db", embedder="nonsense"):
                pass

    asyncio.run(main())


def test_importing_evervec_loads_no_asyncio() -> None:
    import subprocess
    import sys

    code = (
        "import sys, evervec; evervec.open; evervec.Client; "
        "print([m for m in sys.modules if m.startswith('evervec.aio')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
