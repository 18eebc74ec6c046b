"""Work that people start from a page and that outlasts the request: it runs in the background, and
the page shows its state until the next one of its name."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from evervec.model.deadlines import deadline
from evervec.runtime.threads import submit
from evervec.server.problems import KNOWN_ERRORS, Problem, problem_of
from evervec.server.view import View

log = logging.getLogger("evervec.server")

_PATIENCE = 1.0
"""seconds for which a request waits for work that may be short"""
_MOST_SECONDS = 300.0


@dataclass(eq=False, slots=True)
class Run:
    """Work that was started, and its outcome."""

    name: str
    target: str
    agent: str
    started_at: datetime
    ended_at: datetime | None = None
    value: Any = None
    problem: Problem | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def state(self) -> str:
        if self.ended_at is None:
            return "running"
        return "done" if self.problem is None else "failed"


class Runs:
    """The last run of each name. Those of a service are its admins': they concern all tenants."""

    def __init__(self, seconds: float = _MOST_SECONDS) -> None:
        """`seconds`: after which work ends with `DeadlineExceeded`."""
        self._seconds = seconds
        self._runs: dict[str, Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def get(self, name: str) -> Run | None:
        return self._runs.get(name)

    def forget(self, name: str) -> None:
        """Drop the outcome of a run that has ended."""
        if (known := self._runs.get(name)) is not None and known.ended_at is not None:
            del self._runs[name]

    async def start(
        self, view: View, name: str, target: str, do: Callable[[], Any], action: str = ""
    ) -> Run:
        """Start work, and wait a moment for it. With `action`, it is written to the audit log.
        Raises a `Problem` if the same work is running, or has failed already."""
        known = self._runs.get(name)
        if known is not None and known.ended_at is None:
            raise Problem(409, f"{name} is still running, started by {known.agent}: wait for it")
        run = self._runs[name] = Run(name, target, view.caller.agent, datetime.now(UTC))
        # without the request's deadline
        task = asyncio.get_running_loop().create_task(
            self._work(view, run, do, action), context=contextvars.Context()
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait([task], timeout=_PATIENCE)
        if run.problem is not None:
            raise run.problem
        return run

    async def _work(self, view: View, run: Run, do: Callable[[], Any], action: str) -> None:
        def bounded() -> Any:
            with deadline(self._seconds):
                return do()

        try:
            run.value = await asyncio.wrap_future(submit(f"evervec-{run.name}", bounded))
        except KNOWN_ERRORS as error:
            run.problem = problem_of(error, view.caller)
        except Exception:
            log.exception("%s failed", run.name)
            run.problem = Problem(500, "internal error: see the log of the service")
        try:
            if action and (run.problem is None or run.problem.status_code >= 500):
                status = run.problem and f"failed ({run.problem.status_code})"
                await view.audit(action, run.target, status or "done")
        except Exception:
            log.exception("%s was not written to the audit log", run.name)
        finally:
            run.ended_at = datetime.now(UTC)
            run.ended.set()
