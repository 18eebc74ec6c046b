"""Protocols of the parts that lease and manage jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from evervec.model.jobs import Attempt, Job, Status, Ticket
from evervec.model.reports import Stats
from evervec.stores.values import Apply, Failure, Finish, Loaded, Unreadable

MOST_COUNTED = 100_000


class Backlog(NamedTuple):
    """How many jobs are open or failed; see `Jobs.backlog`."""

    pending: int
    processing: int
    failed: int


class Leases(Protocol):
    """The part that workers use: leased jobs, from the claim to the finish."""

    def claim(
        self,
        limit: int,
        *,
        worker: str,
        lease: float,
        versions: Sequence[int] | None = None,
        suspects: bool = True,
    ) -> list[Job]:
        """Lease due jobs: highest priority first, then by due time, then by arrival. All share a
        new token. A job whose earlier claims ended in crashes is claimed in smaller batches, in
        the end alone, and not at all if `suspects` is False."""

    def claim_chosen(
        self, jobs: Sequence[int], *, tenant: str, worker: str, lease: float
    ) -> list[Job]:
        """Lease those of a tenant's jobs that are due and not leased, whatever their turn, with a
        new token for all. Jobs whose earlier claims ended in crashes, and those of a paused queue
        or tenant, are left out."""

    def load(self, jobs: Sequence[Job], budget: int) -> list[Loaded | Unreadable | None]:
        """Load the records of the first claimed jobs, as many as fit into `budget` characters of
        text, but at least one. None for a record that no longer exists. An unreadable record
        does not prevent the others from being loaded."""

    def finish(
        self,
        finishes: Sequence[Finish],
        apply: Apply | None = None,
        generation: int | None = None,
    ) -> list[bool]:
        """Finish the jobs whose token is still valid (True), with their ledger and attempt rows;
        `apply` writes the points in the same transaction. `generation`: that of the index which
        has the points; if the store has another one now, raises `IndexMismatch` and changes
        nothing. Repeating a finish that was accepted
        returns True and changes nothing. If the index lacks chunks that should be kept, raises
        `ChunksMissing` and changes nothing."""

    def fail(self, failures: Sequence[Failure]) -> list[Status | None]:
        """The new status of each job: failed, or pending for a retry; None: its lease was lost."""

    def release(
        self, jobs: Sequence[Job], *, error: str | None = None, due: float | None = None
    ) -> list[bool]:
        """Return jobs to the queue without spending the attempt; due at once, or at `due`."""

    def renew(self, jobs: Sequence[Job], lease: float) -> list[bool]:
        """Extend the leases of the jobs whose token is still valid (True) to `lease` seconds from
        now; the others (False) belong to nobody or to another worker, and stay as they are."""

    def fence(self, jobs: Sequence[Job], lease: float, above: int = 0) -> tuple[int, list[bool]]:
        """Must be called before a write to an index outside the store. Renews the leases, and
        marks the ledger entries of the jobs that are still held (True) as in doubt until their
        finish. The returned number is greater than `above` and than the number of any earlier
        holder of these jobs, and it is durable: the index uses it as the seq of the write."""

    def next_due(self, versions: Sequence[int] | None = None) -> float | None:
        """When the next pending job is due or the next lease expires; None if there is neither."""

    def look_for_expired(self) -> bool:
        """Whether `recover` would find a job. PostgreSQL tidies the leases that it looks through."""

    def recover(
        self, *, threshold: float | None = None, tenant: str | None = None, limit: int = 1000
    ) -> list[Job]:
        """Recover jobs whose lease expired (or that started more than `threshold` seconds ago):
        they become pending again, or failed if no attempts are left."""


class Jobs(Protocol):
    """The part that reads and manages jobs."""

    def get(self, tenant: str | None, job_id: int) -> Job | None: ...

    def page(
        self,
        tenant: str | None,
        *,
        status: Status | None = None,
        kind: str | None = None,
        id: str | None = None,
        after: int | None = None,
        limit: int = 100,
    ) -> list[Job]:
        """Jobs in the order defined for `status`; with `after`, the jobs with greater numbers in
        order of their numbers, to continue after the last page."""

    def history(self, tenant: str, kind: str, id: str, limit: int) -> list[Attempt]:
        """The latest attempts of a record, oldest first."""

    def way(self, job: Job, most: int) -> tuple[float, list[Attempt]]:
        """When the latest change of a job's record was saved, and the latest attempts at it, in
        order."""

    def stats(self, tenant: str | None) -> Stats: ...

    def backlog(self, tenant: str | None) -> Backlog:
        """How many jobs are open or failed. In engines that have to count them, at most
        `MOST_COUNTED` of each."""

    def open_jobs(self, version: int) -> int:
        """How many jobs of an embedding version are pending, counted like `backlog`."""

    def fold_counts(self, limit: int = 10_000) -> int:
        """Add logged changes of the counts of jobs to the totals, in engines that log each change;
        returns how many changes were added."""

    def failed_count(self) -> int: ...

    def waiting_since(self, above: int) -> float | None:
        """The earliest due time of a pending job with a priority higher than `above`."""

    def settled(self, asked: Sequence[tuple[str, Ticket]]) -> list[Status | None]:
        """The status of tenants' tickets, all read in one snapshot: done once the serving version
        has the ticket's change or a later one, failed if it never will (a cancelled job counts as
        failed), None while it is still open or the change is not committed."""

    def is_saved(self, tenant: str, ticket: Ticket) -> bool:
        """Whether a ticket's change was committed, as far as the store still has rows of it."""

    def serving_job(self, tenant: str, kind: str, id: str) -> Job | None:
        """The record's job of the serving version."""

    def retry(self, tenant: str | None, job_id: int) -> None: ...

    def retry_failed(self, tenant: str | None, max_retries: int | None = None) -> int:
        """Retry failed jobs: all, or those with fewer attempts than `max_retries`."""

    def cancel(self, tenant: str | None, job_id: int) -> None: ...

    def set_priority(self, tenant: str | None, job_id: int, priority: int) -> None: ...

    def paused(self, tenant: str | None = None) -> bool:
        """Whether all jobs are paused, or the tenant's."""

    def paused_tenants(self) -> frozenset[str]:
        """The tenants that are paused individually, and the empty name if all are."""

    def set_paused(self, paused: bool, tenant: str | None = None) -> None:
        """Pause or resume the claiming of jobs, for one tenant or for all. The two pauses are
        independent: a tenant's pause remains when the pause of all ends."""

    def purge(
        self,
        status: Status,
        before: float,
        *,
        tenant: str | None = None,
        boxed: bool = False,
        limit: int = 1000,
    ) -> int:
        """Purge at most `limit` jobs of a final status that completed before `before`; returns how
        many. When 0 is returned, none is left."""

    def purge_ended(self, before: float, limit: int = 1000) -> tuple[int, int]:
        """Purge done jobs that completed before `before`, and attempts from before, about `limit`
        of each; returns how many jobs and attempts. When both are 0, none is left for now: a large
        table may be searched in several sweeps."""

    def purge_orphans(self, limit: int = 1000) -> int:
        """Purge at most `limit` jobs of versions that do not exist."""

    def purge_history(self, before: float, limit: int = 1000) -> int:
        """Purge removals and the remaining rows of deleted records older than `before`."""
