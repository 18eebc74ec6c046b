"""Verifications that run beside requests, with progress to watch.

A run belongs to a scope: one tenant, or all of them. Its state is a note of the store, which the
process that runs it updates every second. So every process of the store shows it, one runs at a
time in each scope, any process can cancel it, and its result survives a restart. A run whose
process no longer reports is interrupted, and another may start.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from evervec.errors import EvervecError
from evervec.model.deadlines import Deadline, bounded
from evervec.model.findings import VerifyReport
from evervec.model.verification import VerifyResult, VerifyRun, records_to_check, repair_target
from evervec.runtime.threads import submit
from evervec.server.audit import EVERY_TENANT
from evervec.server.problems import Problem, problem_of
from evervec.stores import notes
from evervec.stores.service_values import StoredEntry

if TYPE_CHECKING:
    from evervec.facade import Evervec
    from evervec.server.service import Service

log = logging.getLogger("evervec.server")

_AT_ONCE = 2
"""runs of one process; others wait for their turn"""
_REPORT_SECONDS = 1.0
LOST_SECONDS = 20.0
"""a run without a report for so long is interrupted"""
_LONGEST = 7 * 86400.0
_CANCELLED = "the verification was cancelled"
_STOPPED = "the service stopped"
_CLOSE_SECONDS = 5.0


class Verified(NamedTuple):
    """What is known of a scope."""

    run: VerifyRun | None
    result: VerifyResult | None
    interrupted: bool
    """the process that runs it no longer reports"""
    now: float

    @property
    def active(self) -> bool:
        return self.run is not None and not self.run.over and not self.interrupted


class Verifications:
    """The verifications of a service. A scope is a tenant, or None: all tenants."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._here: dict[str, _Work] = {}
        """the runs of this process, by id"""

    def read(self, scope: str | None) -> Verified:
        """The last run and the last result; blocks."""
        shared, now = self._service.ev.store.shared, self._service.ev.store.now()
        run = _run_note(scope).get(shared)
        lost = run is not None and not run.over and now - run.seen_at > LOST_SECONDS
        return Verified(run, _result_note(scope).get(shared), lost, now)

    async def start(self, scope: str | None, wanted: VerifyRun) -> VerifyRun:
        """Start a run, of which `wanted` says who wants what; raises a `Problem` if one runs
        already."""
        run = await self._service.run(self._claim, scope, wanted)
        if self._service.stopping.is_set():
            raise Problem(503, "the service is stopping: try again later")
        # outside of the request's deadline and request id: the run outlives it
        task = asyncio.get_running_loop().create_task(
            self._run(scope, run), context=contextvars.Context()
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return run

    def _claim(self, scope: str | None, wanted: VerifyRun) -> VerifyRun:
        store, note = self._service.ev.store, _run_note(scope)
        before, revision = note.read(store.shared)
        now = store.now()
        if before is None or before.over or now - before.seen_at > LOST_SECONDS:
            run = replace(wanted, id=secrets.token_hex(8), started_at=now, seen_at=now)
            if note.swap(store.shared, run, revision):
                return run
        raise Problem(409, "a verification is running already: watch it, or cancel it first")

    async def cancel(self, scope: str | None, agent: str) -> bool:
        """Stop a run, or ask the process that runs it to stop; False: nothing runs."""
        run = await self._service.run(self._ask_to_cancel, scope, agent)
        if run is not None and (work := self._here.get(run.id)):
            work.deadline.cancel(_CANCELLED)
        return run is not None

    def _ask_to_cancel(self, scope: str | None, agent: str) -> VerifyRun | None:
        shared, note = self._service.ev.store.shared, _run_note(scope)
        while True:
            run, revision = note.read(shared)
            if run is None or run.over:
                return None
            if note.swap(shared, replace(run, cancelled_by=agent), revision):
                return run

    async def close(self) -> None:
        """Wait a moment for the runs, which end because the service stops."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_SECONDS)

    async def _run(self, scope: str | None, run: VerifyRun) -> None:
        work = _Work(self._service.ev if scope is None else self._service.of(scope), scope, run)
        self._here[run.id] = work
        task = asyncio.ensure_future(self._in_turn(work))
        stopping = asyncio.ensure_future(self._service.stopping.wait())
        try:
            while not task.done():
                await asyncio.wait(
                    [task] if stopping.done() else [task, stopping],
                    timeout=_REPORT_SECONDS,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if stopping.done():
                    work.deadline.cancel(_STOPPED)
                await self._report(scope, work)
            await self._service.run(self._finish, scope, work, _error_of(task))
            await self._audit(scope, work)
        except Exception:
            log.exception("a verification ended unexpectedly")
        finally:
            stopping.cancel()
            del self._here[run.id]

    async def _in_turn(self, work: _Work) -> VerifyReport:
        async with self._slots:
            work.deadline.check()
            return await asyncio.wrap_future(submit("evervec-verify", work.do))

    async def _report(self, scope: str | None, work: _Work) -> None:
        try:
            await self._service.run(self._write, scope, work)
        except EvervecError as error:
            log.warning("the progress of a verification was not saved: %s", error)

    def _write(self, scope: str | None, work: _Work) -> None:
        shared, note = self._service.ev.store.shared, _run_note(scope)
        found, revision = note.read(shared)
        if found is None or found.id != work.run.id:
            work.deadline.cancel(_CANCELLED)  # another process took this one for interrupted
            return
        if found.cancelled_by is not None:
            work.deadline.cancel(_CANCELLED)
        run = replace(work.run, seen_at=work.now(), cancelled_by=found.cancelled_by)
        note.swap(shared, run, revision)  # if somebody cancels it just now, it is seen next time

    def _finish(self, scope: str | None, work: _Work, error: BaseException | None) -> None:
        shared, note = self._service.ev.store.shared, _run_note(scope)
        if work.report is not None:
            self._keep(scope, work)
        while True:
            found, revision = note.read(shared)
            if found is None or found.id != work.run.id:
                return
            now = work.now()
            run = replace(work.run, seen_at=now, ended_at=now, cancelled_by=found.cancelled_by)
            if note.swap(shared, _ended(run, work, error), revision):
                work.run = _ended(run, work, error)
                return

    def _keep(self, scope: str | None, work: _Work) -> None:
        shared, note = self._service.ev.store.shared, _result_note(scope)
        run, report = work.run, work.report
        assert report is not None
        while True:
            before, revision = note.read(shared)
            if run.kind is None or before is None:
                found = VerifyResult.of(run, report, work.now())
            else:
                found = before.after(run, report, work.now())
            if note.swap(shared, found, revision):
                return

    async def _audit(self, scope: str | None, work: _Work) -> None:
        """Note the end of a repair: how many records it repaired."""
        run = work.run
        if run.repair:
            outcome = f"{run.state}: {run.repaired:,} repaired"
            tenant, what = scope or EVERY_TENANT, repair_target(run.kind, run.faults)
            entry = StoredEntry(
                work.now(), run.key_id, run.agent, tenant, "index.repair", what, outcome
            )
            await self._service.audit.note(entry)


class _Work:
    """A run in a thread of this process."""

    def __init__(self, ev: Evervec, scope: str | None, run: VerifyRun) -> None:
        self.run = run
        self.report: VerifyReport | None = None
        self.deadline = Deadline(_LONGEST)
        self.now = ev.store.now
        self._ev = ev
        self._everyone = scope is None

    def do(self) -> VerifyReport:
        with bounded(self.deadline):
            run = self.run
            total = records_to_check(self._ev.versions(all_tenants=self._everyone), run.kind)
            self.run = replace(run, state="running", total=total, began_at=self.now())
            self.report = self._ev.verify(
                run.repair, quick=run.quick, all_tenants=self._everyone, kind=run.kind,
                faults=run.faults or None, progress=self._advance,
            )  # fmt: skip
        return self.report

    def _advance(self, count: int) -> None:
        self.deadline.check()
        self.run = replace(self.run, checked=self.run.checked + count)


def _run_note(scope: str | None) -> notes.NoteKey[VerifyRun]:
    return notes.VERIFY_RUN.of(_name(scope))


def _result_note(scope: str | None) -> notes.NoteKey[VerifyResult]:
    return notes.VERIFY_RESULT.of(_name(scope))


def _name(scope: str | None) -> str:
    return "all tenants" if scope is None else f"tenant {scope}"


def _error_of(task: asyncio.Future[VerifyReport]) -> BaseException | None:
    return None if task.cancelled() else task.exception()


def _ended(run: VerifyRun, work: _Work, error: BaseException | None) -> VerifyRun:
    """The run with its final state."""
    if work.report is not None:
        return replace(run, state="done", repaired=work.report.repaired, cancelled_by=None)
    if work.deadline.over:
        why = None if run.cancelled_by else _STOPPED
        return replace(run, state="cancelled", error=why, tenant_error=why)
    if isinstance(error, EvervecError):
        return replace(
            run, state="failed", error=str(error), tenant_error=problem_of(error, None).detail
        )
    log.error("a verification failed", exc_info=error)
    why = "internal error: see the service's log"
    return replace(run, state="failed", error=why, tenant_error=why)
