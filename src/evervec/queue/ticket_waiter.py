"""Waits for changes to be in the index; one waiter of this process polls for all of them.

If every waiter polled at each sign of progress, many waiters would slow down the worker that they
wait for.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from numbers import Real
from typing import Any

from evervec.errors import InvalidArgument, JobFailed, WaitTimeout
from evervec.model.bounds import shown
from evervec.model.jobs import Job, Op, Status, Ticket
from evervec.settings import Settings
from evervec.stores.base import Store

_ADVICE = "check that a worker is running (ev.worker(), or ev.run_worker() in another process)"


class _Waiter:
    def __init__(self, tenant: str, ticket: Ticket) -> None:
        self.asks = (tenant, ticket)
        self.end: Status | None = None
        self.called = threading.Event()
        """set when its change has ended, or when it becomes the one that polls"""


class TicketWaiter:
    """All waiters for changes of one store in this process."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self.poll_seconds = settings.poll_seconds or store.poll_seconds
        self._lock = threading.Lock()
        self._waiters: list[_Waiter] = []
        self._poller: _Waiter | None = None
        """the waiter that polls for all"""

    def wait(self, tenant: str, ticket: Ticket, seconds: float) -> Job:
        """Wait until a change is in the index. Raises `WaitTimeout` or `JobFailed`."""
        return self.job_of(tenant, ticket, seconds, self._await_end(tenant, ticket, seconds))

    def job_of(self, tenant: str, ticket: Ticket, seconds: float, end: Status | None) -> Job:
        """The job of a change that ended so; None: not within so many seconds. Raises `WaitTimeout`
        or `JobFailed`."""
        if end is None:
            raise timed_out(self._store, tenant, ticket, seconds, _ADVICE)
        job = self._store.jobs.serving_job(tenant, ticket.kind, ticket.id)
        if end is Status.FAILED:
            raise job_failed(ticket, job, "ev.queue.retry({})")
        return job or self._purged_job(tenant, ticket)

    def _purged_job(self, tenant: str, ticket: Ticket) -> Job:
        """A stand-in for a job that is done and purged."""
        now = datetime.fromtimestamp(self._store.now(), UTC)
        return Job(
            ticket.job_id, tenant, ticket.kind, ticket.id, "", Op.EMBED, ticket.seq, ticket.seq,
            Status.DONE, 0, 0, self._settings.max_attempts, None, None, now, now, None, None, None,
        )  # fmt: skip

    def _await_end(self, tenant: str, ticket: Ticket, seconds: float) -> Status | None:
        """The final status of a change; None when it did not end in time."""
        deadline = time.monotonic() + seconds
        me = _Waiter(tenant, ticket)
        self._join(me)
        try:
            while True:
                looks_for_all = self._poller is me
                seen = self._store.wait(-1, 0)
                self._look(self._waiters if looks_for_all else [me])
                left = deadline - time.monotonic()
                if me.end is not None or left <= 0:
                    return me.end
                if looks_for_all:
                    self._store.wait(seen, min(left, self.poll_seconds))
                else:
                    me.called.wait(left)
        finally:
            self._leave(me)

    def _look(self, waiters: list[_Waiter]) -> None:
        ask = [waiter for waiter in waiters if waiter.end is None]
        ends = self._store.jobs.settled([waiter.asks for waiter in ask]) if ask else []
        for waiter, end in zip(ask, ends, strict=True):
            if end is not None:
                waiter.end = end
                waiter.called.set()

    def _join(self, waiter: _Waiter) -> None:
        with self._lock:
            self._waiters.append(waiter)
            self._poller = self._poller or waiter

    def _leave(self, waiter: _Waiter) -> None:
        with self._lock:
            self._waiters.remove(waiter)
            if self._poller is waiter:
                self._poller = self._waiters[0] if self._waiters else None
                if self._poller:
                    self._poller.called.set()


def timed_out(
    store: Store, tenant: str, ticket: Ticket, seconds: float, advice: str
) -> WaitTimeout:
    """The error for a change that was not in the index in time."""
    what = f"{ticket.kind} {ticket.id!r}"
    if store.jobs.is_saved(tenant, ticket):
        return WaitTimeout(
            f"{what} was not embedded within {seconds:g} s; it is saved and waiting: {advice}"
        )
    return WaitTimeout(
        f"this change of {what} is not in the store: its transaction is not committed or was "
        "rolled back, or its boxed record was cancelled, or deleted and purged"
    )


def job_failed(ticket: Ticket, job: Job | None, retry: str) -> JobFailed:
    """The error for a change whose job failed; `retry`: how to retry the job."""
    what = f"{ticket.kind} {ticket.id!r} could not be embedded"
    if job is None:
        return JobFailed(f"{what}: its job was cancelled, or purged after it failed; add it again")
    return JobFailed(f"{what}: {job.error}; fix the cause, then {retry.format(job.job_id)}")


def check_ticket(given: Any) -> Ticket:
    if not isinstance(given, Ticket):
        raise InvalidArgument(f"after must be a ticket, not {shown(given)}")
    return given


def check_seconds(what: str, seconds: Any) -> float:
    """Check for how long to wait; raises `InvalidArgument`. With NaN, a wait would never end."""
    is_number = isinstance(seconds, Real)
    if not is_number or not 0 <= seconds <= threading.TIMEOUT_MAX:
        raise InvalidArgument(
            f"{what} must be a number of seconds, at least 0, not {shown(seconds)}"
        )
    return float(seconds)


def check_wait(wait: float | None, conn: Any = None) -> None:
    if wait is not None:
        check_seconds("wait", wait)
    if wait is not None and conn is not None:
        raise InvalidArgument(
            "wait= cannot be used with conn=: nothing is embedded before you commit; "
            "commit, then ev.wait(ticket)"
        )
