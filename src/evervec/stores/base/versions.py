"""Protocol of the part that keeps embedding versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from evervec.model.ranking import Rescore
from evervec.model.records import ModelSpec, Version
from evervec.stores.values import Collection, KindSpec, Progress, VersionCount


class Versions(Protocol):
    """The part that keeps the embedding versions of each kind."""

    def collections(self) -> list[Collection]:
        """One collection for each kind and embedding version, the oldest first. The list is cached
        until a collection changes: callers must not modify it."""

    def collections_of(self, tenant: str) -> list[Collection]:
        """The collections of the tenant's kinds."""

    def kinds(self, tenant: str) -> list[str]:
        """The kinds of the tenant's records, including deleted records that are not purged yet."""

    def all(self) -> list[Version]: ...

    def holdings(self, tenant: str) -> dict[tuple[str, str], VersionCount]:
        """By kind and name, what the versions of the tenant's kinds hold of the tenant."""

    def adopt(self, model: ModelSpec) -> None:
        """Assign this model to every collection that has no model yet."""

    def describe(self, ways: Mapping[int, KindSpec]) -> None:
        """Save, by version, how texts are split into chunks."""

    def set_rescore(self, kind: str, rescore: Rescore) -> None:
        """Save how weight and age change the relevance of a kind's records."""

    def begin(self, model: ModelSpec, kinds: Sequence[str]) -> None:
        """Create a second version of each kind. It is built beside the serving version; from now
        on every change enqueues jobs for both."""

    def track_unaware(self, version: int, state: str = "building") -> bool:
        """Track the transactions that may not see the state that the version has now: they may
        still enqueue jobs for the wrong set of versions. Returns whether all of them have ended;
        call it until they have."""

    def join(self, version: int, limit: int = 1000) -> int:
        """Enqueue jobs for a version that is being built, for records that are not loaded yet; at
        most `limit` of them. Returns how many."""

    def progress(self, version: int) -> Progress:
        """On PostgreSQL it reads only records with unfinished jobs; there, records whose job was
        cancelled count as current if they have an entry in the ledger. Elsewhere it reads all
        records of the kind."""

    def behind(self, version: int) -> int:
        """How many records the serving version has in a later state than this one."""

    def await_finishes(self) -> None:
        """Wait for the finishes that have begun to write the ledger. Those that begin later see
        what was committed before this call."""

    def switch(self, serve: Sequence[int], *, force: bool = False) -> int:
        """Make these versions serve and put the ones that served on standby, in one transaction.
        Returns how many records they lack that the serving versions have; if any are lacking,
        nothing changes unless `force` is set. Waiting boxed records are passed on to them.
        Raises `InvalidTransition` if one of them was retired."""

    def retire(self, versions: Sequence[int]) -> None:
        """Changes no longer enqueue jobs for these versions."""

    def drop(self, version: int, limit: int = 1000, *, even_held: bool = False) -> int | None:
        """Drop at most `limit` jobs and ledger entries of a retired version; 0 when none are left.
        While a worker holds a job of it, returns None and drops nothing, because the worker may be
        about to write its points; `even_held`: drops all the same."""

    def forget(self, version: int) -> None:
        """Delete the row of a retired version that has no jobs and no ledger entries left."""
