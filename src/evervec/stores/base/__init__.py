"""The port that every store implements: records, jobs, ledger and versions in one database.

A store has parts, each with a protocol of its own; callers take the part that they need. Calls
take batches, and each call is one transaction. A store knows nothing about providers or vectors.
It orders changes (`seq`), leases jobs to workers, and lets only the holder of a job's token finish
it. `tests/conformance` tests this contract on every engine.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from evervec.stores.base.failures import Failures
from evervec.stores.base.history import History
from evervec.stores.base.jobs import Jobs, Leases
from evervec.stores.base.records import Changes, Records
from evervec.stores.base.selection import Selection
from evervec.stores.base.service import Service
from evervec.stores.base.shared import Shared, Tenants, Workers
from evervec.stores.base.streams import Streams
from evervec.stores.base.versions import Versions

__all__ = [
    "Changes",
    "Failures",
    "History",
    "Jobs",
    "Leases",
    "Records",
    "Selection",
    "Service",
    "Shared",
    "Store",
    "Streams",
    "Tenants",
    "Versions",
    "Workers",
]


T = TypeVar("T")


class Store(Protocol):
    """A database that holds records, jobs, ledger, versions and locks."""

    url: str
    poll_seconds: float
    """default interval between polls for changes that other processes wrote"""
    reads_at_once: bool
    """a small read takes microseconds: it waits for neither the network nor a lock"""
    read_only: bool
    """every write raises `StoreError`"""
    is_local: bool
    """it computes in this process, not in a server"""
    folder: Path | None
    """the folder of the store's files on this machine; None if it has none"""

    changes: Changes
    records: Records
    jobs: Jobs
    leases: Leases
    selection: Selection
    versions: Versions
    tenants: Tenants
    shared: Shared
    workers: Workers
    service: Service
    streams: Streams
    history: History
    failures: Failures

    def now(self) -> float:
        """The current time by the clock that leases and schedules use."""

    def connection(self) -> Any:
        """The store's connection to pass as `conn=`, for engines where callers cannot open one
        themselves. Raises `InvalidArgument` for engines where they can."""

    def try_write(self) -> None:
        """Write a value and roll it back; raises the error that a real write would raise."""

    def close(self) -> None: ...

    def mark(self) -> int:
        """A number that differs after any change of records, versions or points."""

    def searching(self, search: Callable[[], T], *, fresh: bool) -> T:
        """Run a search where it may read from a replica. `fresh`: it must find everything that is
        in the store now."""

    def wake(self) -> None:
        """Wake the threads of this process that wait for a change."""

    def wait(self, seen: int, timeout: float) -> int:
        """Wait for the next `wake` after number `seen`; returns the number of wakes so far."""

    def forget_gone(self, spent_before: str) -> None:
        """Purge expired locks, workers that were not seen for long, and the spend of days before
        `spent_before`."""

    def uninstall(self) -> None:
        """Drop all that evervec made in the database: its tables, and its triggers on tables of the
        application, which stay."""

    def partition(self, parts: int, progress: Callable[[str, int, int], object]) -> list[str]:
        """Split the tables into so many partitions, while others work on them; 0: drop what an
        unfinished call has copied. Returns their names. `progress` is called with a table, how much
        of it is copied, and its size. Raises `InvalidArgument` for engines that have none."""

    def maintain(self) -> None:
        """Run the engine's own periodic maintenance."""

    def troubles(self, seconds: float) -> list[str]:
        """Conditions not caused by evervec that have blocked the engine for longer than this."""

    def check(self) -> str | None:
        """What is damaged in the store's own files; None if they are intact."""
