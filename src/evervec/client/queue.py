"""The queue of a service, with the methods of `ev.queue`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import TypeAdapter

from evervec.client.connection import Connection, record_path
from evervec.errors import EvervecError, InvalidArgument
from evervec.model.jobs import Attempt, Job
from evervec.model.reports import Stats

_attempts = TypeAdapter(list[Attempt])
_stats = TypeAdapter(Stats)
_job = TypeAdapter(Job)


def job_of(given: dict[str, Any]) -> Job:
    """A job without its token, which stays in the service."""
    return _job.validate_python({**given, "token": None})


class RemoteQueue:
    """The jobs that the key may see."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # reading
    def stats(self) -> Stats:
        return _stats.validate_json(self._connection.ask("GET", "/v1/queue/stats").content)

    def jobs(self, *, status: str | None = None, limit: int = 100) -> list[Job]:
        """Ordered by job id."""
        return self._jobs(limit, status=status)

    def failed(self, limit: int = 100) -> list[Job]:
        """Dead letters."""
        return self._jobs(limit, status="failed")

    def status(self, kind: str, id: str | int) -> Job | None:
        """The record's job, or None if it has none."""
        found = self._jobs(1, kind=kind, id=str(id))
        return found[0] if found else None

    def _jobs(self, limit: int, **which: Any) -> list[Job]:
        if limit < 1:
            raise InvalidArgument(f"limit must be at least 1, not {limit}")
        found: list[Job] = []
        for page in self._pages({"limit": min(limit, 1000), **which}):
            found += map(job_of, page)
            if len(found) >= limit:
                break
        return found[:limit]

    def _pages(self, which: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
        cursor: str | None = None
        while True:
            asked = {**which, "cursor": cursor}
            page = self._connection.ask("GET", "/v1/jobs", params=asked).json()
            yield page["jobs"]
            cursor = page["cursor"]
            if cursor is None:
                return

    def get(self, job_id: int) -> Job | None:
        try:
            return job_of(self._connection.ask("GET", f"/v1/jobs/{int(job_id)}").json())
        except EvervecError as error:
            raise_unless_absent(error)
            return None

    def history(self, kind: str, id: str | int) -> list[Attempt]:
        """The attempts of a record, oldest first."""
        try:
            found = self._connection.ask("GET", f"{record_path(kind, id)}/history").json()
        except EvervecError as error:
            raise_unless_absent(error)
            return []
        return _attempts.validate_python(found["attempts"])

    # maintenance
    def retry(self, job_id: int) -> None:
        """Retry a failed job."""
        self._connection.once("POST", f"/v1/jobs/{int(job_id)}/retry")

    def cancel(self, job_id: int) -> None:
        """Remove a pending or failed job."""
        self._connection.once("POST", f"/v1/jobs/{int(job_id)}/cancel")

    def set_priority(self, job_id: int, n: int) -> None:
        self._connection.ask("PATCH", f"/v1/jobs/{int(job_id)}", json_body={"priority": n})

    def retry_failed(self, max_retries: int | None = None) -> int:
        asked = {"max_retries": max_retries}
        found = self._connection.once("POST", "/v1/queue/retry-failed", json_body=asked)
        return int(found["retried"])

    def recover_stuck(self, threshold: float | timedelta | None = None) -> int:
        """Recover jobs whose lease expired: the tenant's, or all for a platform admin."""
        if isinstance(threshold, timedelta):
            threshold = threshold.total_seconds()
        asked = {"threshold": threshold}
        found = self._connection.ask("POST", "/v1/queue/recover-stuck", json_body=asked).json()
        return int(found["recovered"])

    def purge_done(self, older_than: timedelta | datetime) -> int:
        return self._purge({"status": "done", "older_than": _age(older_than)})

    def purge_dead(self, older_than: timedelta | datetime, boxed: bool = False) -> int:
        asked = {"status": "failed", "older_than": _age(older_than), "boxed": boxed}
        return self._purge(asked)

    def _purge(self, asked: dict[str, Any]) -> int:
        found = self._connection.once("POST", "/v1/queue/purge", json_body=asked)
        return int(found["purged"])

    def pause(self) -> None:
        """Stop claims of the tenant's jobs until `resume`; for a platform admin without `tenant`,
        of all jobs."""
        self._connection.ask("POST", "/v1/queue/pause")

    def resume(self) -> None:
        self._connection.ask("POST", "/v1/queue/resume")


def raise_unless_absent(error: EvervecError) -> None:
    """Raise the error again, unless its status is 404."""
    if getattr(error, "status", None) != 404:
        raise error


def _age(older_than: timedelta | datetime) -> float:
    if isinstance(older_than, timedelta):
        return older_than.total_seconds()
    aware = older_than if older_than.tzinfo else older_than.replace(tzinfo=UTC)
    return max(0.0, (datetime.now(UTC) - aware).total_seconds())
