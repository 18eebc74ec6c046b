"""Client: the calls of a service, blocking."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from evervec.client.access import AuditCalls, KeyCalls, TokenCalls
from evervec.client.batch import Batch
from evervec.client.calls import Calls
from evervec.client.connection import Call, Pause, Sent, Service, Step
from evervec.client.operations import MigrationCalls, QueueCalls
from evervec.model.jobs import Ticket
from evervec.records.frames import ArrowStream, read_records
from evervec.runtime.http import Connections, ConnectionsClosed, HttpFailure

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")


class Connection:
    """Takes the steps of calls."""

    def __init__(self, service: Service) -> None:
        self._http = service.connect(Connections)

    def run(self, call: Call[R]) -> R:
        """The result of a call."""
        answer: Sent = None
        while True:
            try:
                step = call.send(answer)
            except StopIteration as end:
                result: R = end.value
                return result
            answer = self._take(step)

    def _take(self, step: Step) -> Sent:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        try:
            return self._http.exchange(*step, streamed=True)
        except (HttpFailure, TimeoutError, ConnectionsClosed) as error:
            return error

    def close(self) -> None:
        self._http.close()


class SyncCalls(Generic[S]):
    """Calls that block until their results are there."""

    def __init__(self, calls: S, connection: Connection) -> None:
        self._calls = calls
        self._connection = connection


def blocking(
    method: Callable[Concatenate[S, P], Call[R]],
) -> Callable[Concatenate[SyncCalls[S], P], R]:
    """The blocking form of a call."""

    @wraps(method)
    def run(self: SyncCalls[S], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._connection.run(method(self._calls, *args, **kwargs))

    return run


class RemoteQueue(SyncCalls[QueueCalls]):
    """The jobs that the key may see."""

    stats = blocking(QueueCalls.stats)
    jobs = blocking(QueueCalls.jobs)
    timeline = blocking(QueueCalls.timeline)
    jobs_where = blocking(QueueCalls.jobs_where)
    retry_where = blocking(QueueCalls.retry_where)
    cancel_where = blocking(QueueCalls.cancel_where)
    set_priority_where = blocking(QueueCalls.set_priority_where)
    failed = blocking(QueueCalls.failed)
    status = blocking(QueueCalls.status)
    get = blocking(QueueCalls.get)
    peek = blocking(QueueCalls.peek)
    history = blocking(QueueCalls.history)
    retry = blocking(QueueCalls.retry)
    cancel = blocking(QueueCalls.cancel)
    set_priority = blocking(QueueCalls.set_priority)
    retry_failed = blocking(QueueCalls.retry_failed)
    recover_stuck = blocking(QueueCalls.recover_stuck)
    purge_done = blocking(QueueCalls.purge_done)
    purge_dead = blocking(QueueCalls.purge_dead)
    pause = blocking(QueueCalls.pause)
    resume = blocking(QueueCalls.resume)


class RemoteKeys(SyncCalls[KeyCalls]):
    """The keys of the service; needs a platform admin's key."""

    list = blocking(KeyCalls.list)
    create = blocking(KeyCalls.create)
    rotate = blocking(KeyCalls.rotate)
    revoke = blocking(KeyCalls.revoke)


class RemoteTokens(SyncCalls[TokenCalls]):
    """The tokens of the client's key."""

    create = blocking(TokenCalls.create)
    revoke = blocking(TokenCalls.revoke)


class RemoteAudit(SyncCalls[AuditCalls]):
    """The audit log of the service; needs a platform admin's key."""

    list = blocking(AuditCalls.list)


class RemoteMigration(SyncCalls[MigrationCalls]):
    """The migration that is in progress or can be rolled back; needs a platform admin's key."""

    status = blocking(MigrationCalls.status)
    wait = blocking(MigrationCalls.wait)
    switch = blocking(MigrationCalls.switch)
    rollback = blocking(MigrationCalls.rollback)
    retire = blocking(MigrationCalls.retire)
    cancel = blocking(MigrationCalls.cancel)


def _migrate(
    method: Callable[Concatenate[Calls, P], Call[MigrationCalls]],
) -> Callable[Concatenate[Client, P], RemoteMigration]:
    @wraps(method)
    def run(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> RemoteMigration:
        begun = self._connection.run(method(self._calls, *args, **kwargs))
        return RemoteMigration(begun, self._connection)

    return run


class Client(SyncCalls[Calls], AbstractContextManager["Client"]):
    """A client of a service, with the methods of `Evervec`.

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
        super().__init__(Calls(service), Connection(service))
        self.queue = RemoteQueue(QueueCalls(service), self._connection)
        self.keys = RemoteKeys(KeyCalls(service), self._connection)
        self.tokens = RemoteTokens(TokenCalls(service), self._connection)
        self.audit = RemoteAudit(AuditCalls(service), self._connection)
        self._url = service.url

    def __repr__(self) -> str:
        return f"Client({self._url!r})"

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    add = blocking(Calls.add)

    def add_many(self, kind: str, records: Iterable[Any] | ArrowStream) -> Iterator[Ticket]:
        """Save many records, or the rows of a data frame, as a stream: yields tickets in order. An invalid record raises
        `InvalidRecord` with its position, after all records before it were saved and their tickets
        yielded."""
        batch = Batch(kind)
        for item in read_records(records):
            if batch.take(item):
                yield from self._send(batch)
        yield from self._send(batch)

    def _send(self, batch: Batch) -> Iterator[Ticket]:
        tickets, error = self._connection.run(self._calls.add_lines(batch))
        yield from tickets
        if error is not None:
            raise error

    delete = blocking(Calls.delete)
    delete_where = blocking(Calls.delete_where)
    count = blocking(Calls.count)
    get = blocking(Calls.get)
    records = blocking(Calls.records)
    search = blocking(Calls.search)
    similar = blocking(Calls.similar)
    vectors = blocking(Calls.vectors)
    wait = blocking(Calls.wait)
    versions = blocking(Calls.versions)
    usage = blocking(Calls.usage)
    summary = blocking(Calls.summary)
    workers = blocking(Calls.workers)
    pause_worker = blocking(Calls.pause_worker)
    resume_worker = blocking(Calls.resume_worker)
    history = blocking(Calls.history)
    failures = blocking(Calls.failures)
    dismiss_failures = blocking(Calls.dismiss_failures)

    migrate = _migrate(Calls.migrate)
    verify = blocking(Calls.verify)
