"""The calls of the queue and the migration of a service, with the methods of `ev.queue` and
`Migration`."""

from __future__ import annotations

import time
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from evervec.client.connection import LARGEST_PAGE, Call, Pause, Service, read, record_path
from evervec.errors import WaitTimeout
from evervec.model.basics import as_seconds
from evervec.model.job_filters import JobFilter
from evervec.model.jobs import Attempt, Job, TimelineEvent
from evervec.model.records import Content
from evervec.model.reports import MigrationStatus, Stats


def job_of(given: dict[str, Any]) -> Job:
    """A job without its token, which stays in the service."""
    return read(Job, {**given, "token": None})


class QueueCalls:
    """The jobs that the key may see."""

    def __init__(self, service: Service) -> None:
        self._service = service

    # reading
    def stats(self) -> Call[Stats]:
        return self._service.get(Stats, "/v1/queue/stats")

    def jobs(self, *, status: str | None = None, limit: int = 100) -> Call[list[Job]]:
        """Ordered by job id."""
        return self._jobs(limit, status=status)

    def timeline(self, job_id: int) -> Call[list[TimelineEvent]]:
        """The way of a job's latest change, in order: when it was saved, claimed, embedded and
        searchable, attempt by attempt, with the seconds between."""
        found = yield from self._service.find("GET", f"/v1/jobs/{int(job_id)}/timeline")
        return [] if found is None else read(list[TimelineEvent], found.json()["events"])

    def jobs_where(
        self, filter: JobFilter, *, before: int | None = None, limit: int = 100
    ) -> Call[list[Job]]:
        """The jobs that fit a filter, the newest first. `before`: those with smaller numbers, to
        continue after the last page. A page searches at most 10,000 jobs of each status."""
        found: list[Job] = []
        while len(found) < limit:
            page = min(limit - len(found), LARGEST_PAGE)
            body = {**_conditions(filter), "before": before, "limit": page}
            answered = yield from self._service.ask("POST", "/v1/jobs/find", json_body=body)
            some = list(map(job_of, answered.json()["jobs"]))
            found += some
            if len(some) < page:
                break
            before = some[-1].job_id
        return found

    def retry_where(self, filter: JobFilter, *, dry_run: bool = False) -> Call[int]:
        """Restart the failed jobs that fit a filter, at most 10,000 in one call; returns how
        many."""
        return self._change("retry", {**_conditions(filter), "dry_run": dry_run})

    def cancel_where(self, filter: JobFilter, *, dry_run: bool = False) -> Call[int]:
        """Remove the pending and failed jobs that fit a filter, at most 10,000 in one call; returns
        how many."""
        return self._change("cancel", {**_conditions(filter), "dry_run": dry_run})

    def set_priority_where(self, filter: JobFilter, n: int, *, dry_run: bool = False) -> Call[int]:
        """Change the priority of the pending jobs that fit a filter to `n`, at most 10,000 in one
        call; returns how many."""
        return self._change("priority", {**_conditions(filter), "priority": n, "dry_run": dry_run})

    def _change(self, action: str, body: dict[str, Any]) -> Call[int]:
        found = yield from self._service.once("POST", f"/v1/jobs/{action}", json_body=body)
        return int(found["count"])

    def failed(self, limit: int = 100) -> Call[list[Job]]:
        """Dead letters."""
        return self._jobs(limit, status="failed")

    def status(self, kind: str, id: str | int) -> Call[Job | None]:
        """The record's job, or None if it has none."""
        found = yield from self._jobs(1, kind=kind, id=str(id))
        return found[0] if found else None

    def _jobs(self, limit: int, **which: Any) -> Call[list[Job]]:
        found = yield from self._service.items("/v1/jobs", "jobs", limit, **which)
        return list(map(job_of, found))

    def get(self, job_id: int) -> Call[Job | None]:
        found = yield from self._service.find("GET", f"/v1/jobs/{int(job_id)}")
        return None if found is None else job_of(found.json())

    def peek(self, job_id: int) -> Call[Content | None]:
        """The content of a job, such as the boxed record that it carries; None: the record's points
        are to be removed. Needs a writer's key."""
        answered = yield from self._service.ask("GET", f"/v1/jobs/{int(job_id)}/content")
        found = answered.json()["content"]
        return None if found is None else read(Content, found)

    def history(self, kind: str, id: str | int) -> Call[list[Attempt]]:
        """The attempts of a record, oldest first."""
        found = yield from self._service.find("GET", f"{record_path(kind, id)}/history")
        if found is None:
            return []
        return read(list[Attempt], found.json()["attempts"])

    # maintenance
    def retry(self, job_id: int) -> Call[None]:
        """Retry a failed job."""
        yield from self._service.once("POST", f"/v1/jobs/{int(job_id)}/retry")

    def cancel(self, job_id: int) -> Call[None]:
        """Remove a pending or failed job."""
        yield from self._service.once("POST", f"/v1/jobs/{int(job_id)}/cancel")

    def set_priority(self, job_id: int, n: int) -> Call[None]:
        yield from self._service.ask("PATCH", f"/v1/jobs/{int(job_id)}", json_body={"priority": n})

    def retry_failed(self, max_retries: int | None = None) -> Call[int]:
        return self._count("retry-failed", "retried", {"max_retries": max_retries})

    def recover_stuck(self, threshold: float | timedelta | None = None) -> Call[int]:
        """Recover jobs whose lease expired: the tenant's, or all for a platform admin."""
        if isinstance(threshold, timedelta):
            threshold = threshold.total_seconds()
        found = yield from self._service.ask(
            "POST", "/v1/queue/recover-stuck", json_body={"threshold": threshold}
        )
        return int(found.json()["recovered"])

    def purge_done(self, older_than: timedelta | datetime) -> Call[int]:
        body = {"status": "done", "older_than": age(older_than)}
        return self._count("purge", "purged", body)

    def purge_dead(self, older_than: timedelta | datetime, boxed: bool = False) -> Call[int]:
        body = {"status": "failed", "older_than": age(older_than), "boxed": boxed}
        return self._count("purge", "purged", body)

    def _count(self, action: str, name: str, body: dict[str, Any]) -> Call[int]:
        found = yield from self._service.once("POST", f"/v1/queue/{action}", json_body=body)
        return int(found[name])

    def pause(self) -> Call[None]:
        """Stop claims of the tenant's jobs until `resume`; for a platform admin without `tenant`,
        of all jobs."""
        yield from self._service.ask("POST", "/v1/queue/pause")

    def resume(self) -> Call[None]:
        yield from self._service.ask("POST", "/v1/queue/resume")


def _conditions(filter: JobFilter) -> dict[str, Any]:
    return {f.name: getattr(filter, f.name) for f in fields(filter)}


def age(given: timedelta | datetime | float) -> float:
    """How many seconds ago something was: of a duration, a moment, or seconds."""
    if isinstance(given, timedelta):
        return given.total_seconds()
    return max(0.0, time.time() - as_seconds(given)) if isinstance(given, datetime) else given


_PATH, _POLL_SECONDS = "/v1/migrations", 0.2


class MigrationCalls:
    """The migration that is in progress or can be rolled back; needs a platform admin's key."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @classmethod
    def begin(cls, service: Service, **asked: Any) -> Call[MigrationCalls]:
        yield from service.ask("POST", _PATH, json_body=asked)
        return cls(service)

    def status(self) -> Call[MigrationStatus]:
        return self._service.get(MigrationStatus, _PATH)

    def wait(self, timeout: float | None = None) -> Call[MigrationStatus]:
        """Wait until the new version is complete except for failed records, and, if it switches
        automatically, until the switch."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            status = yield from self.status()
            if status.ends_wait:
                return status
            if deadline is not None and time.monotonic() > deadline:
                raise WaitTimeout(f"{status.version} is not complete after {timeout:g} s")
            yield Pause(_POLL_SECONDS)

    def switch(self, *, force: bool = False) -> Call[None]:
        return self._take("switch", {"force": force})

    def rollback(self) -> Call[None]:
        return self._take("rollback")

    def retire(self) -> Call[None]:
        return self._take("retire")

    def cancel(self) -> Call[None]:
        return self._take("cancel")

    def _take(self, step: str, body: dict[str, Any] | None = None) -> Call[None]:
        yield from self._service.ask("POST", f"{_PATH}/{step}", json_body=body or {})
