"""The contract that every store keeps: records, jobs, ledger and versions in one place.

Calls work on batches, and each is one transaction. A store knows nothing of
providers or vectors; it keeps the order of changes (`seq`), hands out jobs under
leases, and lets only the holder of a token finish one. `tests/conformance` says
the same in tests, which every engine passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

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
    """Where records, jobs, ledger, versions and locks live."""

    url: str
    poll_seconds: float
    """how often to look for what other processes wrote, where nobody says otherwise"""
    reads_at_once: bool
    """a small read takes microseconds and waits for nobody: neither network nor lock"""
    read_only: bool
    """every write raises `StoreError`"""
    folder: Path | None
    """where its files are on this machine, if it has any"""

    def now(self) -> float:
        """The clock that rules leases and schedules."""

    def connection(self) -> Any:
        """A connection of the store's own for `conn=`, where callers cannot open one themselves;
        `InvalidArgument` where they can."""
        ...

    def try_write(self) -> None:
        """Write something, and undo it: raises what a write would meet."""

    def close(self) -> None: ...

    # changes
    def save(
        self, tenant: str, kind: str, drafts: Sequence[Draft], conn: Any = None
    ) -> list[Ticket]:
        """Write records and their jobs. What is the same as before enqueues nothing; what has
        a `version` not newer than the last is not accepted. The later of two drafts with one
        id wins, and each gets its ticket, in order. `QuotaExceeded`, and nothing is changed, where
        the tenant has no room for all of them."""
        ...

    def delete(
        self,
        tenant: str,
        kind: str,
        ids: Sequence[str],
        conn: Any = None,
        if_seq: int | None = None,
    ) -> list[Ticket]:
        """Records disappear at once, their points by a job. An unknown id is not accepted, nor
        one that is no longer of `if_seq`."""
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
        """Jobs for records as they stand; `loaded`: for rows that the kind's loader fetches. A
        row or box that a job has yet to read stays to be read, unless `owing` is False: then
        nobody can read it any more. `app`: only a process that registered the kind can do
        them. `bounded`: `QuotaExceeded` where the tenant has no room for them."""
        ...

    # the worker's way
    def collections(self) -> list[Collection]:
        """One for each kind and embedding version, the oldest first. The same list until one of
        them changes: leave it as it is."""
        ...

    def collections_of(self, tenant: str) -> list[Collection]:
        """Those of the tenant's kinds alone."""
        ...

    def kinds(self, tenant: str) -> list[str]:
        """The kinds of which the tenant has records, or had until their last traces are purged."""
        ...

    def adopt(self, model: ModelSpec) -> None:
        """Collections that no embedder has yet are of this model from now on."""

    def describe(self, ways: Mapping[int, KindSpec]) -> None:
        """Leave word, by version, of how texts are cut."""

    def claim(
        self,
        limit: int,
        *,
        worker: str,
        lease: float,
        versions: Sequence[int] | None = None,
        suspects: bool = True,
    ) -> list[Job]:
        """Lease due jobs: highest priority first, then by time, then by arrival. All share a
        new token. A job whose claims ended in crashes comes with fewer others, at last alone,
        and not at all without `suspects`."""
        ...

    def load(self, jobs: Sequence[Job], budget: int) -> list[Loaded | Unreadable | None]:
        """The records of the first so many claimed jobs, at least one, whose texts are not
        longer than `budget` characters together; None where one is gone. One that cannot be
        read does not keep the others from being read."""
        ...

    def finish(self, finishes: Sequence[Finish], apply: Apply | None = None) -> list[bool]:
        """Finish those whose token still holds (True), with their ledger and attempt rows;
        `apply` writes the points in the same transaction. A finish that was already taken
        is True again and changes nothing. `ChunksMissing`, and nothing is changed, where the
        index lacks chunks that were to be kept."""
        ...

    def fail(self, failures: Sequence[Failure]) -> list[Status | None]:
        """Where each job went: failed, or pending for another try; None: its lease was lost."""
        ...

    def release(
        self, jobs: Sequence[Job], *, error: str | None = None, due: float | None = None
    ) -> list[bool]:
        """Give jobs back with their attempt, due at once or then."""
        ...

    def renew(self, jobs: Sequence[Job], lease: float) -> list[bool]: ...

    def fence(self, jobs: Sequence[Job], lease: float, above: int = 0) -> tuple[int, list[bool]]:
        """Call it before an index outside of the store is written. Renews leases; for those
        jobs that are still held (True) the ledger entry is in doubt until their finish. The
        number is larger than that of any earlier holder of these jobs, and than `above`, and
        is on disk: the index takes it as the seq of the write."""
        ...

    def next_due(self, versions: Sequence[int] | None = None) -> float | None:
        """When the next pending job is due, or a lease runs out; None when nothing waits."""
        ...

    # care
    def any_expired(self) -> bool: ...

    def recover(
        self, *, threshold: float | None = None, tenant: str | None = None, limit: int = 1000
    ) -> list[Job]:
        """Take back jobs whose lease ran out (or that started more than `threshold` seconds
        ago): pending again, or failed when their attempts are spent."""
        ...

    def retry(self, tenant: str | None, job_id: int) -> None: ...

    def retry_failed(self, tenant: str | None, max_retries: int | None = None) -> int:
        """Failed jobs start anew: all, or those with fewer attempts than `max_retries`."""
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
        """Drop jobs of a settled status that completed before then; at most `limit`."""
        ...

    def purge_orphans(self, limit: int = 1000) -> int:
        """Drop jobs of versions that do not exist; at most `limit`."""
        ...

    def purge_history(self, before: float, limit: int = 1000) -> int:
        """Drop attempts and the last traces of deleted records older than that."""
        ...

    def forget_gone(self, spent_before: str) -> None:
        """Drop locks that ran out, workers that were not heard of for long, and the sums of days
        before that one."""

    def tend(self) -> None:
        """What the engine itself needs from time to time."""

    def troubles(self, seconds: float) -> list[str]:
        """What has been in the engine's way for longer than that, and is not evervec's doing."""
        ...

    def check(self) -> str | None:
        """What is wrong with the store's own files; None when they are sound."""
        ...

    def paused(self, tenant: str | None = None) -> bool:
        """Whether all jobs are held back, or at least the tenant's."""
        ...

    def set_paused(self, paused: bool, tenant: str | None = None) -> None:
        """Let no more jobs be claimed, of one tenant or of all, or let them go on. The two stand
        side by side: a tenant's pause outlives that of all."""

    # looking
    def get(self, tenant: str, kind: str, id: str) -> Record | None: ...

    def records(
        self,
        tenant: str,
        *,
        kind: str | None = None,
        embedded: bool | None = None,
        filter: Mapping[str, Any] | None = None,
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
        """Jobs as their status orders them; with `after`, those behind that number in order of
        their numbers, to go on where a page ended."""
        ...

    def history(self, tenant: str, kind: str, id: str) -> list[Attempt]: ...

    def stats(self, tenant: str | None) -> Stats: ...

    def failed_count(self) -> int: ...

    def waiting_since(self, above: int) -> float | None:
        """When the first pending job of a higher priority was or will be due."""
        ...

    def settled(self, asked: Sequence[tuple[str, Ticket]]) -> list[Status | None]:
        """Of tenants' tickets, all at the same moment: done once the version that serves has the
        ticket's change or a later one, failed when it will not (a cancelled job counts as failed),
        None while it may still be, or while the change is not committed."""
        ...

    def is_saved(self, tenant: str, ticket: Ticket) -> bool:
        """Whether a ticket's change was committed, as far as the store has a trace of it."""
        ...

    def serving_job(self, tenant: str, kind: str, id: str) -> Job | None:
        """The record's job of the version that serves."""
        ...

    def versions(self) -> list[Version]: ...

    # another model
    def begin_versions(self, model: ModelSpec, kinds: Sequence[str]) -> None:
        """A second version of each kind: it is built beside the one that serves, and from now on
        every change is meant for both."""

    def all_know(self, version: int, state: str = "building") -> bool:
        """Whether every transaction has ended that began before the version entered the state
        that it is in, and so may write for others than it should."""
        ...

    def join_version(self, version: int, limit: int = 1000) -> int:
        """Give a version that is being built the jobs for records that have yet to be loaded, a
        slice of them; how many it was."""
        ...

    def progress(self, version: int) -> Progress: ...

    def switch_versions(self, serve: Sequence[int], *, force: bool = False) -> int:
        """Let those versions serve, and those that did so stand by, in one step. While they lack
        records that the others have, nothing is changed but by `force`; how many they lack.
        Boxed records that wait are passed on to them."""
        ...

    def retire_versions(self, versions: Sequence[int]) -> None:
        """Changes are no longer meant for them."""

    def drop_version(self, version: int, limit: int = 1000) -> int | None:
        """Drop a slice of the jobs and ledger of a retired version; 0 when none are left. None, and
        nothing is dropped, while a worker holds a job of it: it may be about to write its points."""
        ...

    def forget_version(self, version: int) -> None:
        """A retired version of which nothing is left was never there."""

    def holdings(self, tenant: str) -> dict[tuple[str, str], Holding]:
        """By kind and name, the versions of the kinds of which the tenant has records."""
        ...

    # search
    def mark(self) -> int:
        """A number that is another one after any change of records, versions or points."""
        ...

    def search_text(
        self,
        tenant: str,
        kind: str | None,
        query: str,
        limit: int,
        filter: Mapping[str, Any] | None,
    ) -> list[tuple[int, float]]:
        """Live records that match by words and how well, best first."""
        ...

    def candidates(self, tenant: str, records: Sequence[int]) -> dict[int, Candidate]:
        """Those of `records` that are live and the tenant's own."""
        ...

    def found(self, records: Sequence[int]) -> dict[int, Found]:
        """Those of `records` that are live, as hits show them."""
        ...

    def ledgers(self, records: Sequence[int], versions: Sequence[int]) -> dict[int, bytes]:
        """Packed chunks of those records whose vectors are of their present text."""
        ...

    def digests(self, tenant: str, kind: str, ids: Sequence[str]) -> dict[str, Digest]:
        """What those of the records are that live or have a job on its way."""
        ...

    # backfill
    def sizes(self, records: Sequence[int]) -> int:
        """The characters of records, titles and texts together."""
        ...

    def typed(self, kind: str, after: int, limit: int) -> list[Typed]:
        """Live records that were rendered from typed objects, in order of their number."""
        ...

    # verify
    def expected(self, tenant: str | None, version: int, after: int, limit: int) -> list[Expected]:
        """Records in order of their number, from the one behind `after`."""
        ...

    def reopen(
        self, version: int, records: Sequence[int], *, forget: bool, priority: int = 0
    ) -> int:
        """Enqueue records anew for a version; `forget` drops what the ledger says of them, so
        that everything is embedded again."""
        ...

    # what tenants may and do have
    def limits(self, tenant: str) -> Limits:
        """As they are in force; what another process changed is known within a second."""
        ...

    def own_limits(self, tenant: str) -> Limits:
        """Those that are set for the tenant itself."""
        ...

    def set_limits(self, tenant: str, limits: Limits) -> None:
        """In the place of all that was set before; what was held back may go on."""

    def limited_tenants(self) -> list[str]:
        """Those that have limits of their own."""
        ...

    def usage(self, tenant: str) -> Usage: ...

    def fold_usage(self, limit: int = 10_000) -> int:
        """Add up what was counted, where it is noted change by change; how many those were."""
        ...

    def hold_spent(self, tenants: Iterable[str]) -> set[str]:
        """Let no more jobs of those be claimed today who used up what they may use in a day; who
        they are."""
        ...

    # what processes share
    def note(self, name: str) -> Note | None: ...

    def put_note(self, name: str, value: str | None, revision: int | None) -> bool:
        """Set a note, or drop it with None, if its revision is still the one that was read
        (None: there was none). False: somebody was faster, and nothing is changed."""
        ...

    def add_spend(self, spent: Sequence[Spend]) -> None:
        """Add to the day's sums."""

    def spend(self, tenant: str | None, since: str) -> list[Spend]:
        """The sums of each day from `since` on, the latest first."""
        ...

    def cached(self, model: str, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        """Vectors that were kept of chunks of any record."""
        ...

    def cache(self, model: str, vectors: Mapping[bytes, bytes], most: int) -> None:
        """Keep vectors by chunk hash, at most so many of all models: the oldest go first."""

    # the fleet
    def beat(self, worker: str, *, version: str, held: int, done: int) -> None:
        """Say that a worker lives, how much it holds and has done."""

    def leave(self, worker: str) -> None:
        """A worker ends in good order."""

    def workers(self) -> list[WorkerState]:
        """Those that were heard of in the last hour."""
        ...

    # the service
    def add_key(self, key: StoredKey) -> None: ...

    def keys(self, tenant: str | None) -> list[StoredKey]:
        """All of a tenant, or of all, the oldest first; revoked and expired ones too. No tokens."""
        ...

    def any_keys(self) -> bool: ...

    def find_keys(self, ids: Sequence[str]) -> dict[str, StoredKey]: ...

    def revoke_key(self, id: str) -> bool:
        """False: there is none, or it was revoked before."""
        ...

    def rotate_key(self, id: str, until: float, key: StoredKey) -> bool:
        """Add a key, and let the old one expire then if not before. False: there is no such key,
        or it opens nothing any more; then nothing is added."""
        ...

    def add_token(self, token: StoredKey, since: float, most: int) -> bool:
        """False: the token's parent has made so many since then already."""
        ...

    def forget_tokens(self, before: float) -> int:
        """Tokens that expired before then."""
        ...

    def use_keys(self, used: Mapping[str, float]) -> None:
        """Note when keys were last used."""

    def add_audit(self, entries: Sequence[StoredEntry]) -> None: ...

    def audit(self, chosen: AuditChoice, limit: int) -> list[StoredEntry]:
        """Entries of the audit log, the newest first."""
        ...

    def forget_audit(self, before: float) -> int: ...

    def ask(self, tenant: str, name: str, fingerprint: str) -> Asked:
        """Remember a request by the name that its caller gave it; what is known of it, from now
        or from before."""
        ...

    def asked(self, tenant: str, name: str) -> Asked | None:
        """What is known of a request; None when it was not asked before."""
        ...

    def count_asked(self, tenant: str, most: int) -> int:
        """How many requests of a tenant are remembered, counted up to `most`."""
        ...

    def answer(self, tenant: str, name: str, answer: str) -> None:
        """Remember what it was answered."""

    def forget_asked(self, before: float) -> int: ...

    # waking and locks
    def wake(self) -> None:
        """Tell waiting threads of this process that something changed."""

    def wait(self, seen: int, timeout: float) -> int:
        """Wait for the next `wake` after number `seen`; returns the number of wakes so far."""
        ...

    def lock(self, name: str, holder: str, seconds: float) -> str | None:
        """Take or renew a named lock that expires by itself; a token, or None when another
        holds it."""
        ...

    def unlock(self, name: str, token: str) -> None:
        """Release a lock; nothing happens if the token is no longer the current one. Each
        renewal makes a new token."""

    def lock_holder(self, name: str) -> LockHolder | None:
        """Who took or renewed a lock last, even if it has expired since; None: it is free."""
        ...
