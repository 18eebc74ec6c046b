"""Protocol of the part that finds jobs by a filter and changes many of them."""

from __future__ import annotations

from typing import Protocol

from evervec.model.job_filters import JobFilter
from evervec.model.jobs import Job


class Selection(Protocol):
    """The part for jobs that fit a filter. A call searches a bounded number of jobs; a filter that
    is None fits no job."""

    def find(
        self, tenant: str | None, wanted: JobFilter | None, before: int | None, limit: int
    ) -> list[Job]:
        """The jobs, the greatest number first; `before`: only smaller numbers."""

    def retry(
        self, tenant: str | None, wanted: JobFilter | None, most: int, *, dry_run: bool
    ) -> int:
        """Restart failed jobs; returns how many, or with `dry_run` how many would be."""

    def cancel(
        self, tenant: str | None, wanted: JobFilter | None, most: int, *, dry_run: bool
    ) -> int: ...

    def set_priority(
        self,
        tenant: str | None,
        wanted: JobFilter | None,
        priority: int,
        most: int,
        *,
        dry_run: bool,
    ) -> int: ...
