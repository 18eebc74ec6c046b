"""Protocols of the parts with what processes share: notes, locks, tenants, workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from evervec.model.reports import WorkerState
from evervec.model.usage import Limits, Spend, TenantState, Usage
from evervec.stores.values import LockHolder, Note


class Shared(Protocol):
    """The part that keeps the state that processes share."""

    def note(self, name: str) -> Note | None: ...

    def put_note(self, name: str, value: str | None, revision: int | None) -> bool:
        """Set a note, or delete it with None, if its revision is still the one that was read
        (None: there was no note). False: another writer changed it first; nothing is changed."""

    def lock(self, name: str, holder: str, seconds: float) -> str | None:
        """Take or renew a named lock that expires after `seconds`. Returns a token, or None if
        another holder has it."""

    def unlock(self, name: str, token: str) -> None:
        """Release a lock. Does nothing if the token is not the current one: each renewal makes a
        new token."""

    def lock_holder(self, name: str) -> LockHolder | None:
        """The last holder to take or renew a lock, even if it has expired since; None: unlocked."""

    def add_spend(self, spent: Sequence[Spend]) -> None:
        """Add to the daily totals."""

    def spend(self, tenant: str | None, since: str) -> list[Spend]:
        """The totals of each day from `since` on, the latest first."""

    def cached(self, model: str, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        """Cached vectors by chunk hash, whichever record they came from."""

    def cache(self, model: str, vectors: Mapping[bytes, bytes], most: int) -> None:
        """Cache vectors by chunk hash; over all models at most `most`, the oldest are evicted."""

    def given(self, model: str, records: Sequence[int]) -> dict[int, tuple[int, bytes]]:
        """By record, the packed vectors of a model that came with it, and the seq with which they
        came."""

    def drop_given(self, used: Sequence[tuple[int, int]]) -> None:
        """Drop the vectors that came with records, up to a seq of each, unless a job of the record
        is not done."""

    def drop_stray_given(self, after: int, limit: int) -> int:
        """Drop vectors that no job needs, of `limit` records above number `after`; returns the last
        of these, or 0 when there are no more."""


class Tenants(Protocol):
    """The part that keeps the limits and the usage of tenants."""

    def limits(self, tenant: str) -> Limits:
        """The limits in force for the tenant; changes by other processes show within a second."""

    def own_limits(self, tenant: str) -> Limits:
        """The limits that are set for this tenant."""

    def set_limits(self, tenant: str, limits: Limits) -> None:
        """Replace all limits of the tenant; jobs that a limit held back become claimable again."""

    def limited_tenants(self) -> list[str]:
        """Tenants for which limits are set."""

    def usage(self, tenant: str) -> Usage: ...

    def page(self, first: str, limit: int) -> list[TenantState]:
        """Tenants with records, limits or a pause, in order of their names, from `first` on."""

    def records_in_all(self) -> int:
        """How many records all tenants have together."""

    def fold_usage(self, limit: int = 10_000) -> int:
        """Add logged usage changes to the totals, in engines that log each change; returns how
        many changes were added."""

    def spent_today(self, tenant: str) -> tuple[int, float]:
        """The tokens and the money that the tenant has spent today (UTC)."""

    def hold_spent(self, tenants: Iterable[str]) -> set[str]:
        """Stop claims for the rest of the day for tenants that have used up their daily limits;
        returns those tenants."""


class Workers(Protocol):
    """The part that lists the workers."""

    def beat(self, worker: str, *, version: str, held: int, done: int) -> None:
        """Record that a worker is alive, how many jobs it holds and how many it has done."""

    def leave(self, worker: str) -> None:
        """Remove a worker that shuts down normally."""

    def all(self) -> list[WorkerState]:
        """Workers that were seen in the last hour."""

    def is_paused(self, worker: str) -> bool: ...

    def set_paused(self, worker: str, paused: bool) -> bool:
        """Let a worker claim nothing more, or again; False: no such worker is listed."""
