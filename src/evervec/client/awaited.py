"""AsyncClient: the calls of a service, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from evervec.client.access import AuditCalls, KeyCalls, TokenCalls
from evervec.client.batch import Batch
from evervec.client.calls import Calls
from evervec.client.connection import Call, Pause, Sent, Service, Step
from evervec.client.operations import MigrationCalls, QueueCalls
from evervec.model.jobs import Ticket
from evervec.model.records import Record, Records
from evervec.records.frames import ArrowStream, read_records
from evervec.records.streams import AsyncTickets, RecordPages, each
from evervec.runtime.http import ConnectionsClosed, HttpFailure

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")


class AsyncConnection:
    """Takes the steps of calls."""

    def __init__(self, service: Service) -> None:
        from evervec.runtime.async_http import AsyncConnections  # when it is used: an extra

        self._http = service.connect(AsyncConnections)

    async def run(self, call: Call[R]) -> R:
        """The result of a call."""
        answer: Sent = None
        while True:
            try:
                step = call.send(answer)
            except StopIteration as end:
                result: R = end.value
                return result
            answer = await self._take(step)

    async def _take(self, step: Step) -> Sent:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        try:
            return await self._http.exchange(*step)
        except (HttpFailure, TimeoutError, ConnectionsClosed) as error:
            return error

    async def close(self) -> None:
        await self._http.close()


class Awaited(Generic[S]):
    """Calls whose results are awaited."""

    def __init__(self, calls: S, connection: AsyncConnection) -> None:
        self._calls = calls
        self._connection = connection


def awaited(
    method: Callable[Concatenate[S, P], Call[R]],
) -> Callable[Concatenate[Awaited[S], P], Coroutine[Any, Any, R]]:
    """The awaited form of a call."""

    @wraps(method)
    async def run(self: Awaited[S], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._connection.run(method(self._calls, *args, **kwargs))

    return run


class AsyncRemoteQueue(Awaited[QueueCalls]):
    """The jobs that the key may see."""

    stats = awaited(QueueCalls.stats)
    jobs = awaited(QueueCalls.jobs)
    timeline = awaited(QueueCalls.timeline)
    jobs_where = awaited(QueueCalls.jobs_where)
    retry_where = awaited(QueueCalls.retry_where)
    cancel_where = awaited(QueueCalls.cancel_where)
    set_priority_where = awaited(QueueCalls.set_priority_where)
    failed = awaited(QueueCalls.failed)
    status = awaited(QueueCalls.status)
    get = awaited(QueueCalls.get)
    peek = awaited(QueueCalls.peek)
    history = awaited(QueueCalls.history)
    retry = awaited(QueueCalls.retry)
    cancel = awaited(QueueCalls.cancel)
    set_priority = awaited(QueueCalls.set_priority)
    retry_failed = awaited(QueueCalls.retry_failed)
    recover_stuck = awaited(QueueCalls.recover_stuck)
    purge_done = awaited(QueueCalls.purge_done)
    purge_dead = awaited(QueueCalls.purge_dead)
    pause = awaited(QueueCalls.pause)
    resume = awaited(QueueCalls.resume)


class AsyncRemoteKeys(Awaited[KeyCalls]):
    """The keys of the service; needs a platform admin's key."""

    list = awaited(KeyCalls.list)
    create = awaited(KeyCalls.create)
    rotate = awaited(KeyCalls.rotate)
    revoke = awaited(KeyCalls.revoke)


class AsyncRemoteTokens(Awaited[TokenCalls]):
    """The tokens of the client's key."""

    create = awaited(TokenCalls.create)
    revoke = awaited(TokenCalls.revoke)


class AsyncRemoteAudit(Awaited[AuditCalls]):
    """The audit log of the service; needs a platform admin's key."""

    list = awaited(AuditCalls.list)


class AsyncRemoteMigration(Awaited[MigrationCalls]):
    """The migration that is in progress or can be rolled back; needs a platform admin's key."""

    status = awaited(MigrationCalls.status)
    wait = awaited(MigrationCalls.wait)
    switch = awaited(MigrationCalls.switch)
    rollback = awaited(MigrationCalls.rollback)
    retire = awaited(MigrationCalls.retire)
    cancel = awaited(MigrationCalls.cancel)


def _migrate(
    method: Callable[Concatenate[Calls, P], Call[MigrationCalls]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, AsyncRemoteMigration]]:
    @wraps(method)
    async def run(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> AsyncRemoteMigration:
        begun = await self._connection.run(method(self._calls, *args, **kwargs))
        return AsyncRemoteMigration(begun, self._connection)

    return run


def _pages(
    whole: Callable[Concatenate[Calls, P], Call[Records]],
    page: Callable[..., Call[tuple[list[Record], str | None]]],
) -> Callable[Concatenate[AsyncClient, P], RecordPages]:
    @wraps(whole)
    def run(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> RecordPages:
        take = self._connection.run

        async def fetch(cursor: str | None) -> tuple[list[Record], str | None]:
            return await take(page(self._calls, cursor, *args, **kwargs))

        return RecordPages(lambda: take(whole(self._calls, *args, **kwargs)), fetch)

    run.__doc__ = """Records ordered by kind and id: `await` it for the first `limit`, or use
    `async for` to iterate over all, in pages of `limit`."""
    return run


class AsyncClient(Awaited[Calls], AbstractAsyncContextManager["AsyncClient"]):
    """A client of a service for asyncio, with the methods of `Client`, awaited: use it in one event
    loop. Needs the extra `async`.

    `queue`, `keys`, `tokens` and `audit` have the methods for jobs, access and the audit log.
    `tenant`: the tenant to use with a platform admin's key. Requests are retried up to `retries`
    times after network errors, rate limits and restarts of the service.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        tenant: str | None = None,
        timeout: float = 30.0,
        retries: int = 6,
    ) -> None:
        service = Service(url, key, tenant, timeout, retries)
        super().__init__(Calls(service), AsyncConnection(service))
        self.queue = AsyncRemoteQueue(QueueCalls(service), self._connection)
        self.keys = AsyncRemoteKeys(KeyCalls(service), self._connection)
        self.tokens = AsyncRemoteTokens(TokenCalls(service), self._connection)
        self.audit = AsyncRemoteAudit(AuditCalls(service), self._connection)
        self._url = service.url

    def __repr__(self) -> str:
        return f"AsyncClient({self._url!r})"

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; requests in progress fail."""
        await self._connection.close()

    add = awaited(Calls.add)

    def add_many(
        self, kind: str, records: Iterable[Any] | AsyncIterable[Any] | ArrowStream
    ) -> AsyncIterator[Ticket]:
        """Save many records as a stream, of any iterable, asynchronous iterable or data frame: yields tickets
        in order. An invalid record raises `InvalidRecord` with its position, after all records
        before it were saved and their tickets yielded."""
        return AsyncTickets(self._saved(Batch(kind), each(read_records(records))), kind)

    async def _saved(self, batch: Batch, items: AsyncIterator[Any]) -> AsyncIterator[Ticket]:
        async for item in items:
            if batch.take(item):
                async for ticket in self._send(batch):
                    yield ticket
        async for ticket in self._send(batch):
            yield ticket

    async def _send(self, batch: Batch) -> AsyncIterator[Ticket]:
        tickets, error = await self._connection.run(self._calls.add_lines(batch))
        for ticket in tickets:
            yield ticket
        if error is not None:
            raise error

    delete = awaited(Calls.delete)
    delete_where = awaited(Calls.delete_where)
    count = awaited(Calls.count)
    get = awaited(Calls.get)
    records = _pages(Calls.records, Calls.record_page)
    search = awaited(Calls.search)
    similar = awaited(Calls.similar)
    vectors = awaited(Calls.vectors)
    wait = awaited(Calls.wait)
    versions = awaited(Calls.versions)
    usage = awaited(Calls.usage)
    summary = awaited(Calls.summary)
    workers = awaited(Calls.workers)
    pause_worker = awaited(Calls.pause_worker)
    resume_worker = awaited(Calls.resume_worker)
    history = awaited(Calls.history)
    failures = awaited(Calls.failures)
    dismiss_failures = awaited(Calls.dismiss_failures)

    migrate = _migrate(Calls.migrate)
    verify = awaited(Calls.verify)
