"""A task may be cancelled at any await: the store stays right, and no thread or connection is lost."""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import evervec
from aio.conftest import Run
from evervec import AsyncEvervec
from evervec.aio.facade import AsyncOpener
from evervec.stores.sqlite.connections import Reader
from support.processes import until
from support.world import KIND, World


@pytest.fixture(params=[("sqlite", "sqlite"), ("postgres", "pgvector")], ids=lambda pair: pair[0])
def file_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    world = World(request.param, tmp_path)
    yield world
    world.close()


class CancelledAt(Awaitable[Any]):
    """Awaits a coroutine, and cancels the task that does so when it waits for the n-th time."""

    def __init__(self, inner: Coroutine[Any, Any, Any], place: int) -> None:
        self._inner = inner
        self._left = place
        self.reached = False

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._inner.__await__()
        task = asyncio.current_task()
        assert task is not None
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                waits_for = steps.send(value) if error is None else steps.throw(error)
            except StopIteration as ended:
                return ended.value
            if self._left == 0:
                self.reached = True
                asyncio.get_running_loop().call_soon(task.cancel)
            self._left -= 1
            value, error = None, None
            try:
                value = yield waits_for
            except BaseException as met:
                error = met


async def cancel_everywhere(
    make: Callable[[int], Coroutine[Any, Any, Any]], ev: AsyncEvervec
) -> int:
    """Run a coroutine again and again, cancelled at its first await, its second, and so on, until
    it ends by itself; returns at how many."""
    place = 0
    while True:
        waits = CancelledAt(make(place), place)

        async def run(waits: CancelledAt = waits) -> None:
            await waits

        with suppress(asyncio.CancelledError):
            await asyncio.create_task(run())
        if not waits.reached:
            return place
        runner = ev._runner
        while runner.operations._handed or runner.calls._handed:  # one at a time may migrate
            await asyncio.sleep(0)
        place += 1
        assert place < 1000


async def check(ev: AsyncEvervec) -> None:
    """Nothing is in use, and the store works and agrees with itself."""
    runner = ev._runner
    async with asyncio.timeout(60):
        while runner.calls._handed or runner.queries._handed or runner.operations._handed:
            await asyncio.sleep(0)
        while runner._save._waiting or runner._save._under_way:
            await asyncio.sleep(0)
    assert not runner._active
    assert not runner._live
    assert not runner.waiter._waiting
    check_idle(ev.sync.store.db)  # type: ignore[attr-defined]
    await ev.process_all()
    report = await ev.verify()
    assert report.complete, report
    assert await ev.count() == report.checked


def check_idle(db: Any) -> None:
    """No connection is in use."""
    if hasattr(db, "pool"):
        until(lambda: db.pool.get_stats()["pool_available"] == db.pool.get_stats()["pool_size"])
        return
    made = [r for r in gc.get_objects() if isinstance(r, Reader) and r._db is db]
    assert {id(reader) for reader in made} == {id(reader) for reader in (db._own, *db._idle)}


def test_a_call_can_be_cancelled_at_every_await(run: Run) -> None:
    async def test(ev: AsyncEvervec) -> None:
        tickets = [t async for t in ev.add_many(KIND, (f"text {n}" for n in range(20)))]
        await ev.process_all()

        async def listed(stream: Any) -> list[Any]:
            return [item async for item in stream]

        async def later(place: int) -> Any:
            for n in range(10):
                await asyncio.sleep(0)
                yield {"id": f"later-{place}-{n}", "text": "text"}

        async def works(_: int) -> None:
            async with ev.worker():
                await ev.add(KIND, "for the worker", wait=60)

        async def migrates(_: int) -> None:
            migration = await ev.migrate("hashing:32", switch=False)
            await migration.status()
            await migration.cancel()

        calls: dict[str, Callable[[int], Coroutine[Any, Any, Any]]] = {
            "add": lambda n: ev.add(KIND, f"new {n}"),
            "add and wait": lambda n: ev.add(KIND, f"new {n}", wait=0.01),
            "add by itself": lambda n: _by_itself(ev, n),
            "add_many": lambda n: listed(ev.add_many(KIND, [f"many {n} {m}" for m in range(10)])),
            "add_many later": lambda n: listed(ev.add_many(KIND, later(n))),
            "delete": lambda n: ev.delete(KIND, tickets[n].id),
            "delete_where": lambda n: ev.delete_where({"none": n}),
            "search": lambda n: ev.search("text"),
            "search after": lambda n: ev.search("text", after=tickets[0], wait=60),
            "get": lambda n: ev.get(KIND, tickets[0].id),
            "records": lambda n: listed(ev.records(limit=7)),
            "wait": lambda n: ev.wait(tickets[0], 60),
            "stats": lambda n: ev.queue.stats(),
            "verify": lambda n: ev.verify(),
            "process_all": lambda n: ev.process_all(),
            "worker": works,
            "migrate": migrates,
        }
        for name, call in calls.items():
            places = await cancel_everywhere(_ending_well(call), ev)
            assert places > 0, name
            await check(ev)
        assert (await ev.migration()) is None

    run(test, add_batch=3)


def _ending_well(
    call: Callable[[int], Coroutine[Any, Any, Any]],
) -> Callable[[int], Coroutine[Any, Any, Any]]:
    async def run(place: int) -> None:
        with suppress(evervec.WaitTimeout):
            await call(place)

    return run


async def _by_itself(ev: AsyncEvervec, n: int) -> None:
    with evervec.deadline(60):
        await ev.add(KIND, f"alone {n}")


class Hold:
    """Stops calls of a method until they are let go."""

    def __init__(self, target: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.held = threading.Event()
        self.go = threading.Event()
        self._method = getattr(target, name)
        self.ended = 0
        monkeypatch.setattr(target, name, self._call)

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        self.held.set()
        assert self.go.wait(60)
        try:
            return self._method(*args, **kwargs)
        finally:
            self.ended += 1

    async def until_held(self) -> None:
        while not self.held.is_set():
            await asyncio.sleep(0)


async def cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_an_add_that_has_begun_is_saved_and_one_that_has_not_is_withdrawn(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(ev: AsyncEvervec) -> None:
        hold = Hold(ev.sync.store.changes, "save", monkeypatch)
        begun = asyncio.create_task(ev.add(KIND, "begun", id="begun"))
        await hold.until_held()
        beside = [asyncio.create_task(ev.add(KIND, f"text {n}", id=n)) for n in range(3)]
        await asyncio.sleep(0)
        await cancel(begun)
        await cancel(beside[1])
        hold.go.set()
        assert [(await task).id for task in (beside[0], beside[2])] == ["0", "2"]
        assert [record.id async for record in ev.records()] == ["0", "2", "begun"]
        await check(ev)

    run(test)


def test_a_read_that_is_cancelled_frees_its_thread(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a few long calls that nobody waits for would block all others."""

    async def test(ev: AsyncEvervec) -> None:
        await ev.add(KIND, "text", id="1")
        counts = ev.sync.store.records.count
        begun = threading.Event()

        def count(*args: Any) -> int:
            begun.set()
            while True:  # until its deadline ends it
                counts(*args)

        monkeypatch.setattr(ev.sync.store.records, "count", count)
        tasks = [asyncio.create_task(ev.count()) for _ in range(50)]
        while not begun.is_set():
            await asyncio.sleep(0)
        for task in tasks:
            await cancel(task)
        assert await ev.get(KIND, "1") is not None
        await asyncio.sleep(0)
        monkeypatch.setattr(ev.sync.store.records, "count", counts)
        await check(ev)

    run(test)


def test_jobs_that_a_cancelled_task_claimed_are_released(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(ev: AsyncEvervec) -> None:
        await ev.add(KIND, "text")
        hold = Hold(ev.sync.store.leases, "claim", monkeypatch)
        claims = asyncio.create_task(ev.queue.claim(5))
        await hold.until_held()
        claims.cancel()
        await asyncio.sleep(0)
        claims.cancel()  # impatient
        hold.go.set()
        with pytest.raises(asyncio.CancelledError):
            await claims
        stats = await ev.queue.stats()
        assert (stats.pending, stats.processing) == (1, 0)
        (job,) = await ev.queue.claim(5)
        assert job.attempts == 1
        await ev.queue.release(job)

    run(test)


def test_a_worker_that_is_cancelled_releases_its_jobs(run: Run, file_world: World) -> None:
    async def test(ev: AsyncEvervec) -> None:
        held, go = threading.Event(), threading.Event()

        def hold(_: Any) -> None:
            held.set()
            assert go.wait(60)

        file_world.embedder.before = hold
        await ev.add(KIND, "text")
        works = asyncio.create_task(ev.process_all())
        while not held.is_set():
            await asyncio.sleep(0)
        works.cancel()
        await asyncio.sleep(0)
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await works
        file_world.embedder.before = None
        assert (await ev.queue.stats()).processing == 0
        await check(ev)

    run(test)


def test_a_store_whose_opening_is_cancelled_is_closed(tmp_path: Path) -> None:
    opened: list[evervec.Evervec] = []
    go = threading.Event()

    def open() -> evervec.Evervec:
        assert go.wait(60)
        opened.append(evervec.open(tmp_path / "a.db", embedder="noop"))
        return opened[0]

    async def main() -> None:
        opening = AsyncOpener(open)
        task = asyncio.ensure_future(opening.__aenter__())
        await asyncio.sleep(0)
        await cancel(task)
        go.set()
        until(lambda: opened and opened[0].store.db._closed)  # type: ignore[attr-defined]

    asyncio.run(main())


def test_a_block_that_is_cancelled_closes_its_store(tmp_path: Path) -> None:
    """Also when it is cancelled once more while it closes."""

    async def main() -> None:
        ready = asyncio.Event()
        opened: list[AsyncEvervec] = []

        async def use() -> None:
            async with evervec.aopen(tmp_path / "a.db", embedder="noop") as ev:
                opened.append(ev)
                ready.set()
                await asyncio.sleep(3600)

        task = asyncio.create_task(use())
        await ready.wait()
        task.cancel()
        await asyncio.sleep(0)
        await cancel(task)
        assert opened[0].sync.store.db._closed  # type: ignore[attr-defined]
        names = {thread.name for thread in threading.enumerate()}
        assert not {name for name in names if name.startswith(("evervec-async", "evervec-query"))}

    asyncio.run(main())
