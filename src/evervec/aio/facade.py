"""AsyncEvervec: the methods of `Evervec` for asyncio, over threads of its own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Generator, Iterable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from functools import partial, wraps
from typing import Any, ParamSpec

from evervec.aio.connections import CallersConnection
from evervec.aio.methods import Awaited, awaited, in_loop, like, operated
from evervec.aio.migration import AsyncMigration
from evervec.aio.queue import AsyncQueue
from evervec.aio.runner import Runner
from evervec.aio.streams import saved
from evervec.aio.worker import AsyncWorker, work
from evervec.embedders.base import Embedder
from evervec.embedding.prepared import using
from evervec.facade import Evervec
from evervec.model.deadlines import current
from evervec.model.jobs import Job, Ticket
from evervec.model.records import Hits, Record
from evervec.model.reports import ProcessResult
from evervec.opening import open
from evervec.queue.ticket_waiter import check_seconds, check_ticket, check_wait
from evervec.records.drafts import OPTIONS
from evervec.records.frames import ArrowStream
from evervec.records.streams import AsyncTickets, RecordPages
from evervec.runtime.threads import submit
from evervec.settings import Settings
from evervec.versions.migration import Migration

P = ParamSpec("P")


def _defaults(method: Callable[..., Any]) -> dict[str, Any]:
    return {name: given.default for name, given in inspect.signature(method).parameters.items()}


_SEARCH, _RECORDS = _defaults(Evervec.search), _defaults(Evervec.records)


class AsyncEvervec(Awaited[Evervec], AbstractAsyncContextManager["AsyncEvervec"]):
    """The records of one tenant, for the event loop that opened the store. Created by
    `evervec.aopen`; its methods are those of `Evervec`, awaited."""

    def __init__(self, ev: Evervec, runner: Runner | None = None) -> None:
        super().__init__(ev, runner or Runner(ev), ev.tenant)
        self.queue = AsyncQueue(ev.queue, self._runner, ev.tenant)

    @property
    def sync(self) -> Evervec:
        """The same store with blocking methods, for use in threads. Do not close it."""
        return self._inner

    @property
    def tenant(self) -> str:
        return self._inner.tenant

    @property
    def settings(self) -> Settings:
        return self._inner.settings

    @property
    def embedder(self) -> Embedder:
        return self._inner.embedder

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all calls in progress and close the store."""
        await self._runner.close()

    @like(Evervec.of)
    def of(self, tenant: str) -> AsyncEvervec:
        return AsyncEvervec(self._inner.of(tenant), self._runner)

    @like(Evervec.queue_of)
    def queue_of(self, tenant: str | None) -> AsyncQueue:
        return AsyncQueue(self._inner.queue_of(tenant), self._runner, tenant or "")

    connection = awaited(Evervec.connection)
    register = awaited(Evervec.register)

    # writing
    @like(Evervec.add)
    async def add(self, kind: str, data: Any, **options: Any) -> Ticket:
        """Save a record and enqueue its embedding job. When the call returns, both are durable.
        Records that several tasks add at the same time are saved in one transaction."""
        wait, conn = options.pop("wait", None), options.pop("conn", None)
        check_wait(wait, conn)
        if conn is not None or current() is not None or not options.keys() <= OPTIONS:
            ticket = await self._call(Evervec.add, kind, data, **options, conn=conn)
        else:
            ticket = await self._runner.save(self._inner, kind, data, options)
        if wait is not None and ticket.accepted:
            await self.wait(ticket, wait)
        return ticket

    draft = awaited(Evervec.draft)
    chunks = awaited(Evervec.chunks)

    def add_many(
        self,
        kind: str,
        records: Iterable[Any] | AsyncIterable[Any] | ArrowStream,
        *,
        conn: Any = None,
    ) -> AsyncIterator[Ticket]:
        """Save many records as a stream, of any iterable, asynchronous iterable or data frame: yields tickets
        in order, and saves one batch per transaction. An invalid record raises `InvalidRecord`
        with its position, after all records before it were saved and their tickets yielded."""
        call: Callable[[Callable[[], Any]], Awaitable[Any]]
        if conn is None:
            add_many = partial(self._inner.add_many, kind)
            # a thread reads an iterable of the caller, which may take as long as it likes
            is_awaited = isinstance(records, AsyncIterable)
            pool = self._runner.calls if is_awaited else self._runner.operations
            call = partial(self._runner.run, pool, self._tenant)
        else:
            caller = CallersConnection(conn)
            add_many = partial(self._inner.add_many, kind, conn=caller.inner)
            call = partial(self._runner.join, caller)
        return AsyncTickets(saved(add_many, records, self.settings.add_batch, call), kind)

    @like(Evervec.delete)
    async def delete(self, kind: str, id: str | int, **options: Any) -> Ticket:
        wait = options.pop("wait", None)
        check_wait(wait, options.get("conn"))
        ticket = await self._call(Evervec.delete, kind, id, **options)
        if wait is not None and ticket.accepted:
            await self.wait(ticket, wait)
        return ticket

    delete_where = operated(Evervec.delete_where)

    # reading
    count = awaited(Evervec.count)
    get = awaited(Evervec.get)

    @like(Evervec.records)
    def records(self, kind: str | None = None, **options: Any) -> RecordPages:
        """Records ordered by kind and id: `await` it for the list, or use `async for` to iterate
        over all, in pages of `limit`."""
        given = _RECORDS | options
        fetch = partial(self._call, Evervec.records, kind)

        async def page(after: Any) -> tuple[list[Record], Record | None]:
            found = await fetch(**options | {"after": after})
            return found, found[-1] if len(found) == given["limit"] else None

        return RecordPages(lambda: fetch(**options), page, given["after"])

    @like(Evervec.search)
    async def search(self, query: Any = None, *args: Any, **options: Any) -> Hits:
        after, wait = options.pop("after", None), options.pop("wait", _SEARCH["wait"])
        if after is not None:
            await self.wait(check_ticket(after), check_seconds("wait", wait))
            options |= {"after": after, "wait": 0.0}
        do = partial(self._inner.search, query, *args, **options)
        asked = {name: options.get(name, _SEARCH[name]) for name in ("kind", "mode", "version")}
        if query is not None and options.get("vector") is None and asked["mode"] != "text":
            prepare = partial(self._inner.prepare, query, **asked)
            vectors = await self._runner.run(self._runner.queries, self._tenant, prepare)
            do = partial(_using, vectors, do)
        reranker = options.get("rerank")
        if reranker is None:
            reranker = self.settings.reranker
        is_slow = query is not None and bool(reranker)
        pool = self._runner.reranked if is_slow else self._runner.calls
        return await self._runner.run(pool, self._tenant, do)

    similar = awaited(Evervec.similar)
    vectors = awaited(Evervec.vectors)
    kinds = awaited(Evervec.kinds)

    @like(Evervec.wait)
    async def wait(self, ticket: Ticket, timeout: float | None = None) -> Job:
        """Wait until a change is in the index; no thread is held. Raises `WaitTimeout` or
        `JobFailed`."""
        given = self.settings.wait_seconds if timeout is None else timeout
        seconds = check_seconds("timeout", given)
        return await self._runner.wait(self._tenant, ticket, seconds)

    export = operated(Evervec.export)
    import_ = operated(Evervec.import_)
    export_pending = operated(Evervec.export_pending)
    import_vectors = operated(Evervec.import_vectors)
    versions = awaited(Evervec.versions)
    usage = awaited(Evervec.usage)
    limits = awaited(Evervec.limits)
    set_limits = awaited(Evervec.set_limits)

    # another model
    @like(Evervec.migrate)
    async def migrate(self, *args: Any, **options: Any) -> AsyncMigration:
        return self._migration(await self._operate(Evervec.migrate, *args, **options))

    @like(Evervec.migration)
    async def migration(self) -> AsyncMigration | None:
        found = await self._call(Evervec.migration)
        return None if found is None else self._migration(found)

    def _migration(self, found: Migration) -> AsyncMigration:
        return AsyncMigration(found, self._runner, self._tenant)

    estimate = operated(Evervec.estimate)
    drop_retired = operated(Evervec.drop_retired)

    # working
    @like(Evervec.process_all)
    async def process_all(self, progress: Callable[[int], object] | None = None) -> ProcessResult:
        """Process jobs until none is due, in threads; see `Evervec.process_all`. `progress` is
        called in the event loop."""
        worker = await self._call(Evervec.worker)
        return await work(worker, partial(worker.process_all, in_loop(progress)))

    @like(Evervec.worker)
    def worker(self, concurrency: int | None = None) -> AsyncWorker:
        """A worker for an `async with` block: it runs in the background and is drained at the
        end."""
        return AsyncWorker(lambda: self._call(Evervec.worker, concurrency))

    @like(Evervec.run_worker)
    async def run_worker(self, concurrency: int | None = None) -> None:
        worker = await self._call(Evervec.worker, concurrency)
        with worker.stopped_by_signals():
            await work(worker, worker.run)

    backfill = operated(Evervec.backfill)
    alerts = awaited(Evervec.alerts)
    summary = awaited(Evervec.summary)
    workers = awaited(Evervec.workers)
    pause_worker = awaited(Evervec.pause_worker)
    resume_worker = awaited(Evervec.resume_worker)
    history = awaited(Evervec.history)
    failures = awaited(Evervec.failures)
    dismiss_failures = awaited(Evervec.dismiss_failures)

    # tables of the application
    attach = operated(Evervec.attach)
    attach_again = operated(Evervec.attach_again)
    detach = operated(Evervec.detach)
    tables = operated(Evervec.tables)

    verify = operated(Evervec.verify)


def _using(vectors: Any, do: Callable[[], Hits]) -> Hits:
    with using(vectors):
        return do()


class AsyncOpener(AbstractAsyncContextManager[AsyncEvervec]):
    """A store that is opened by `async with`, or by `await`; then close it with `close`."""

    def __init__(self, open: Callable[[], Evervec]) -> None:
        self._open = open
        self._opened: AsyncEvervec | None = None

    def __await__(self) -> Generator[Any, None, AsyncEvervec]:
        return self._make().__await__()

    async def __aenter__(self) -> AsyncEvervec:
        self._opened = await self._make()
        return self._opened

    async def __aexit__(self, *_: object) -> None:
        assert self._opened is not None
        await self._opened.close()

    async def _make(self) -> AsyncEvervec:
        opened = submit("evervec-open", self._open)
        try:
            return AsyncEvervec(await asyncio.wrap_future(opened))
        except asyncio.CancelledError:
            opened.add_done_callback(_close)
            raise


def _close(opened: Future[Evervec]) -> None:
    if opened.exception() is None:
        opened.result().close()


def _opener(open: Callable[P, Evervec]) -> Callable[P, AsyncOpener]:
    @wraps(open)
    def aopen(*args: P.args, **kwargs: P.kwargs) -> AsyncOpener:
        return AsyncOpener(partial(open, *args, **kwargs))

    aopen.__doc__ = f"""For asyncio: `async with evervec.aopen(…) as ev`.

    {open.__doc__}"""
    return aopen


aopen = _opener(open)
