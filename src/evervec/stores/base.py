"""The port that every store implements: records, jobs, ledger and versions in one database.

Calls take batches, and each call is one transaction. A store knows nothing about
providers or vectors. It orders changes (`seq`), leases jobs to workers, and lets only
the holder of a job's token finish it. `tests/conformance` tests this contract on
every engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from evervec.model.filters import Conditions
from evervec.model.jobs import Attempt, EnqueueResult, Job, Status, Ticket
from evervec.model.records import ModelSpec, Record, Version
from evervec.model.reports import Limits, Spend, Stats, Usage, WorkerState
from evervec.stores.values import (
    Apply,
    Asked,
    AuditChoice,
    Candidate,
    Collection,
    Digest,
    Draft,
    Expected,
    Failure,
    Finish,
    Found,
    Holding,
    KindSpec,
    Loaded,
    LockHolder,
    Note,
    Progress,
    StoredEntry,
    StoredKey,
    Typed,
    Unreadable,
)


class Store(Protocol):
    """A database that holds records, jobs, ledger, versions and locks."""

    url: str
    poll_seconds: float
    """default interval between polls for changes that other processes wrote"""
    reads_at_once: bool
    """a small read takes microseconds: it waits for neither the network nor a lock"""
    read_only: bool
    """every write raises `StoreError`"""
    folder: Path | None
    """the folder of the store's files on this machine; None if it has none"""

    def now(self) -> float:
        """The current time by the clock that leases and schedules use."""

    def connection(self) -> Any:
        """The store's connection to pass as `conn=`, for engines where callers cannot open one
        themselves. Raises `InvalidArgument` for engines where they can."""
        ...

    def try_write(self) -> None:
        """Write a value and roll it back; raises the error that a real write would raise."""

    def close(self) -> None: ...

    # changes
    def save(
        self, tenant: str, kind: str, drafts: Sequence[Draft], conn: Any = None
    ) -> list[Ticket]:
        """Write records and their jobs. An unchanged record enqueues nothing. A draft whose
        `version` is not newer than the stored one is not accepted. Of two drafts with the same
        id the later wins; every draft gets a ticket, in order. If the tenant's quota has no room
        for all of them, raises `QuotaExceeded` and changes nothing."""
        ...

    def delete(
        self,
        tenant: str,
        kind: str,
        ids: Sequence[str],
        conn: Any = None,
        if_seq: int | None = None,
    ) -> list[Ticket]:
        """Delete records immediately; a job deletes their points. An unknown id is not accepted,
        nor a record whose seq is no longer `if_seq`."""
        ...

    def enqueue(
        self,
        tenant: str,
        kind: str,
        ids: Sequence[str],
        *,
        loaded: bool,
        owing: bool = True,
        app: bool = False,
        priority: int = 0,
        delay: float = 0.0,
        max_attempts: int | None = None,
        bounded: bool = False,
        conn: Any = None,
    ) -> list[EnqueueResult]:
        """Enqueue jobs for records as they are now; with `loaded`, for rows that the kind's loader
        fetches. A job keeps its debt (a row to load, a box to open), unless `owing` is False: then
        the debt can no longer be read. `app`: only a process that registered the kind can do the
        jobs. `bounded`: raise `QuotaExceeded` if the tenant's quota has no room for them."""
        ...

    # used by workers
    def collections(self) -> list[Collection]:
        """One collection for each kind and embedding version, the oldest first. The list is cached
        until a collection changes: callers must not modify it."""
        ...

    def collections_of(self, tenant: str) -> list[Collection]:
        """The collections of the tenant's kinds."""
        ...

    def kinds(self, tenant: str) -> list[str]:
        """The kinds of the tenant's records, including deleted records that are not purged yet."""
        ...

    def adopt(self, model: ModelSpec) -> None:
        """Assign this model to every collection that has no model yet."""

    def describe(self, ways: Mapping[int, KindSpec]) -> None:
        """Save, by version, how texts are split into chunks."""

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
        ...

    def load(self, jobs: Sequence[Job], budget: int) -> list[Loaded | Unreadable | None]:
        """Load the records of the first claimed jobs, as many as fit into `budget` characters of
        text, but at least one. None for a record that no longer exists. An unreadable record
        does not prevent the others from being loaded."""
        ...

    def finish(self, finishes: Sequence[Finish], apply: Apply | None = None) -> list[bool]:
        """Finish the jobs whose token is still valid (True), with their ledger and attempt rows;
        `apply` writes the points in the same transaction. Repeating a finish that was accepted
        returns True and changes nothing. If the index lacks chunks that should be kept, raises
        `ChunksMissing` and changes nothing."""
        ...

    def fail(self, failures: Sequence[Failure]) -> list[Status | None]:
        """The new status of each job: failed, or pending for a retry; None: its lease was lost."""
        ...

    def release(
        self, jobs: Sequence[Job], *, error: str | None = None, due: float | None = None
    ) -> list[bool]:
        """Return jobs to the queue without spending the attempt; due at once, or at `due`."""
        ...

    def renew(self, jobs: Sequence[Job], lease: float) -> list[bool]: ...

    def fence(self, jobs: Sequence[Job], lease: float, above: int = 0) -> tuple[int, list[bool]]:
        """Must be called before a write to an index outside the store. Renews the leases, and
        marks the ledger entries of the jobs that are still held (True) as in doubt until their
        finish. The returned number is greater than `above` and than the number of any earlier
        holder of these jobs, and it is durable: the index uses it as the seq of the write."""
        ...

    def next_due(self, versions: Sequence[int] | None = None) -> float | None:
        """When the next pending job is due or the next lease expires; None if there is neither."""
        ...

    # maintenance
    def any_expired(self) -> bool: ...

    def recover(
        self, *, threshold: float | None = None, tenant: str | None = None, limit: int = 1000
    ) -> list[Job]:
        """Recover jobs whose lease expired (or that started more than `threshold` seconds ago):
        they become pending again, or failed if no attempts are left."""
        ...

    def retry(self, tenant: str | None, job_id: int) -> None: ...

    def retry_failed(self, tenant: str | None, max_retries: int | None = None) -> int:
        """Retry failed jobs: all, or those with fewer attempts than `max_retries`."""
        ...

    def cancel(self, tenant: str | None, job_id: int) -> None: ...

    def set_priority(self, tenant: str | None, job_id: int, priority: int) -> None: ...

    def purge(
        self,
        status: Status,
        before: float,
        *,
        tenant: str | None = None,
        boxed: bool = False,
        limit: int = 1000,
    ) -> int:
        """Purge at most `limit` jobs of a final status that completed before `before`."""
        ...

    def purge_orphans(self, limit: int = 1000) -> int:
        """Purge at most `limit` jobs of versions that do not exist."""
        ...

    def purge_history(self, before: float, limit: int = 1000) -> int:
        """Purge attempts and the remaining rows of deleted records older than `before`."""
        ...

    def forget_gone(self, spent_before: str) -> None:
        """Purge expired locks, workers that were not seen for long, and the spend of days before
        `spent_before`."""

    def tend(self) -> None:
        """Run the engine's own periodic maintenance."""

    def troubles(self, seconds: float) -> list[str]:
        """Conditions not caused by evervec that have blocked the engine for longer than this."""
        ...

    def check(self) -> str | None:
        """What is damaged in the store's own files; None if they are intact."""
        ...

    def paused(self, tenant: str | None = None) -> bool:
        """Whether all jobs are paused, or the tenant's."""
        ...

    def set_paused(self, paused: bool, tenant: str | None = None) -> None:
        """Pause or resume the claiming of jobs, for one tenant or for all. The two pauses are
        independent: a tenant's pause remains when the pause of all ends."""

    # reading
    def get(self, tenant: str, kind: str, id: str) -> Record | None: ...

    def records(
        self,
        tenant: str,
        *,
        kind: str | None = None,
        embedded: bool | None = None,
        filter: Conditions = (),
        after: tuple[str, str] | None = None,
        limit: int = 100,
    ) -> list[Record]: ...

    def job(self, tenant: str | None, job_id: int) -> Job | None: ...

    def jobs(
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
        ...

    def history(self, tenant: str, kind: str, id: str) -> list[Attempt]: ...

    def stats(self, tenant: str | None) -> Stats: ...

    def failed_count(self) -> int: ...

    def waiting_since(self, above: int) -> float | None:
        """The earliest due time of a pending job with a priority higher than `above`."""
        ...

    def settled(self, asked: Sequence[tuple[str, Ticket]]) -> list[Status | None]:
        """The status of tenants' tickets, all read in one snapshot: done once the serving version
        has the ticket's change or a later one, failed if it never will (a cancelled job counts as
        failed), None while it is still open or the change is not committed."""
        ...

    def is_saved(self, tenant: str, ticket: Ticket) -> bool:
        """Whether a ticket's change was committed, as far as the store still has rows of it."""
        ...

    def serving_job(self, tenant: str, kind: str, id: str) -> Job | None:
        """The record's job of the serving version."""
        ...

    def versions(self) -> list[Version]: ...

    # embedding versions
    def begin_versions(self, model: ModelSpec, kinds: Sequence[str]) -> None:
        """Create a second version of each kind. It is built beside the serving version; from now
        on every change enqueues jobs for both."""

    def all_know(self, version: int, state: str = "building") -> bool:
        """Whether every transaction that began before the version entered its current state has
        ended. Such a transaction may still enqueue jobs for the wrong set of versions."""
        ...

    def join_version(self, version: int, limit: int = 1000) -> int:
        """Enqueue jobs for a version that is being built, for records that are not loaded yet; at
        most `limit` of them. Returns how many."""
        ...

    def progress(self, version: int) -> Progress: ...

    def switch_versions(self, serve: Sequence[int], *, force: bool = False) -> int:
        """Make these versions serve and put the ones that served on standby, in one transaction.
        Returns how many records they lack that the serving versions have; if any are lacking,
        nothing changes unless `force` is set. Waiting boxed records are passed on to them."""
        ...

    def retire_versions(self, versions: Sequence[int]) -> None:
        """Changes no longer enqueue jobs for these versions."""

    def drop_version(
        self, version: int, limit: int = 1000, *, even_held: bool = False
    ) -> int | None:
        """Drop at most `limit` jobs and ledger entries of a retired version; 0 when none are left.
        While a worker holds a job of it, returns None and drops nothing, because the worker may be
        about to write its points; `even_held`: drops all the same."""
        ...

    def forget_version(self, version: int) -> None:
        """Delete the row of a retired version that has no jobs and no ledger entries left."""

    def holdings(self, tenant: str) -> dict[tuple[str, str], Holding]:
        """By kind and name, what the versions of the tenant's kinds hold of the tenant."""
        ...

    # search
    def mark(self) -> int:
        """A number that differs after any change of records, versions or points."""
        ...

    def search_text(
        self,
        tenant: str,
        kind: str | None,
        query: str,
        limit: int,
        filter: Conditions,
    ) -> list[tuple[int, float]]:
        """Live records that match the query's words, with their scores, best first."""
        ...

    def candidates(self, tenant: str, records: Sequence[int]) -> dict[int, Candidate]:
        """Those of `records` that are live and belong to the tenant."""
        ...

    def found(self, records: Sequence[int]) -> dict[int, Found]:
        """Those of `records` that are live, as hits show them."""
        ...

    def ledgers(self, records: Sequence[int], versions: Sequence[int]) -> dict[int, bytes]:
        """Packed chunks of those records whose vectors match their current text."""
        ...

    def digests(self, tenant: str, kind: str, ids: Sequence[str]) -> dict[str, Digest]:
        """Digests of those records that are live or have an open job."""
        ...

    # backfill
    def sizes(self, records: Sequence[int]) -> int:
        """How many characters the titles and texts of these records have in total."""
        ...

    def typed(self, kind: str, after: int, limit: int) -> list[Typed]:
        """Live records that were rendered from typed objects, in order of their number."""
        ...

    # verify
    def expected(self, tenant: str | None, version: int, after: int, limit: int) -> list[Expected]:
        """Records in order of their number, starting after number `after`."""
        ...

    def reopen(
        self, version: int, records: Sequence[int], *, forget: bool, priority: int = 0
    ) -> int:
        """Enqueue records again for a version. `forget` drops their ledger entries, so that every
        chunk is embedded again."""
        ...

    # limits and usage of tenants
    def limits(self, tenant: str) -> Limits:
        """The limits in force for the tenant; changes by other processes show within a second."""
        ...

    def own_limits(self, tenant: str) -> Limits:
        """The limits that are set for this tenant."""
        ...

    def set_limits(self, tenant: str, limits: Limits) -> None:
        """Replace all limits of the tenant; jobs that a limit held back become claimable again."""

    def limited_tenants(self) -> list[str]:
        """Tenants for which limits are set."""
        ...

    def usage(self, tenant: str) -> Usage: ...

    def fold_usage(self, limit: int = 10_000) -> int:
        """Add logged usage changes to the totals, in engines that log each change; returns how
        many changes were added."""
        ...

    def hold_spent(self, tenants: Iterable[str]) -> set[str]:
        """Stop claims for the rest of the day for tenants that have used up their daily limits;
        returns those tenants."""
        ...

    # state that processes share
    def note(self, name: str) -> Note | None: ...

    def put_note(self, name: str, value: str | None, revision: int | None) -> bool:
        """Set a note, or delete it with None, if its revision is still the one that was read
        (None: there was no note). False: another writer changed it first; nothing is changed."""
        ...

    def add_spend(self, spent: Sequence[Spend]) -> None:
        """Add to the daily totals."""

    def spend(self, tenant: str | None, since: str) -> list[Spend]:
        """The totals of each day from `since` on, the latest first."""
        ...

    def cached(self, model: str, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        """Cached vectors by chunk hash, whichever record they came from."""
        ...

    def cache(self, model: str, vectors: Mapping[bytes, bytes], most: int) -> None:
        """Cache vectors by chunk hash; over all models at most `most`, the oldest are evicted."""

    # the fleet
    def beat(self, worker: str, *, version: str, held: int, done: int) -> None:
        """Record that a worker is alive, how many jobs it holds and how many it has done."""

    def leave(self, worker: str) -> None:
        """Remove a worker that shuts down normally."""

    def workers(self) -> list[WorkerState]:
        """Workers that were seen in the last hour."""
        ...

    # the service
    def add_key(self, key: StoredKey) -> None: ...

    def keys(self, tenant: str | None) -> list[StoredKey]:
        """The keys of one tenant or of all, the oldest first, with revoked and expired ones; no
        tokens."""
        ...

    def any_keys(self) -> bool: ...

    def find_keys(self, ids: Sequence[str]) -> dict[str, StoredKey]: ...

    def revoke_key(self, id: str) -> bool:
        """False: the key does not exist or was already revoked."""
        ...

    def rotate_key(self, id: str, until: float, key: StoredKey) -> bool:
        """Add a key; the old one expires at `until` at the latest. False, and nothing is added: the
        old key does not exist or is no longer valid."""
        ...

    def add_token(self, token: StoredKey, since: float, most: int) -> bool:
        """False: the token's parent key has already made `most` tokens since `since`."""
        ...

    def forget_tokens(self, before: float) -> int:
        """Delete tokens that expired before `before`; returns how many."""
        ...

    def use_keys(self, used: Mapping[str, float]) -> None:
        """Save when keys were last used."""

    def add_audit(self, entries: Sequence[StoredEntry]) -> None: ...

    def audit(self, chosen: AuditChoice, limit: int) -> list[StoredEntry]:
        """Entries of the audit log, the newest first."""
        ...

    def forget_audit(self, before: float) -> int: ...

    def ask(self, tenant: str, name: str, fingerprint: str) -> Asked:
        """Save a request under the idempotency key that its caller gave it; returns the saved
        request, whether it is new or from an earlier call."""
        ...

    def asked(self, tenant: str, name: str) -> Asked | None:
        """The saved request; None if there is none."""
        ...

    def count_asked(self, tenant: str, most: int) -> int:
        """How many requests of a tenant are saved, counted up to `most`."""
        ...

    def answer(self, tenant: str, name: str, answer: str) -> None:
        """Save the answer to a request."""

    def forget_asked(self, before: float) -> int: ...

    # waking and locks
    def wake(self) -> None:
        """Wake the threads of this process that wait for a change."""

    def wait(self, seen: int, timeout: float) -> int:
        """Wait for the next `wake` after number `seen`; returns the number of wakes so far."""
        ...

    def lock(self, name: str, holder: str, seconds: float) -> str | None:
        """Take or renew a named lock that expires after `seconds`. Returns a token, or None if
        another holder has it."""
        ...

    def unlock(self, name: str, token: str) -> None:
        """Release a lock. Does nothing if the token is not the current one: each renewal makes a
        new token."""

    def lock_holder(self, name: str) -> LockHolder | None:
        """The last holder to take or renew a lock, even if it has expired since; None: unlocked."""
        ...
