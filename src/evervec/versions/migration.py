"""The caller's handle of a migration: a change of the embedding model without downtime."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

from evervec.errors import InvalidTransition, WaitTimeout
from evervec.model.reports import Comparison, MigrationStatus
from evervec.stores.values import Collection
from evervec.verify.verify import verify_versions
from evervec.versions.comparison import compare
from evervec.versions.lifecycle import Pair, VersionLifecycle

log = logging.getLogger("evervec")

_LOOK_AGAIN = 0.05


class Migration:
    """A change from one embedding version to another. Made by `ev.migrate` or `ev.migration`."""

    def __init__(self, migrations: VersionLifecycle, version: str) -> None:
        self._all = migrations
        self._store = migrations.store
        self.version = version
        """the name of the new version"""

    def __repr__(self) -> str:
        return f"Migration({self.version!r})"

    def status(self) -> MigrationStatus:
        """The migration's progress."""
        return self._all.status(self.version)

    def wait(
        self,
        timeout: float | None = None,
        progress: Callable[[MigrationStatus], object] | None = None,
    ) -> MigrationStatus:
        """Wait until the new version has all that the old one has, except records that failed; and
        until the switch, if it switches by itself. Workers do the work."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            seen = self._store.wait(-1, 0)
            status = self.status()
            if progress is not None:
                progress(status)
            if status.ends_wait:
                return status
            left = 1.0 if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise self.timed_out(status, timeout)
            self._store.wait(seen, min(left, self.poll_seconds))

    @property
    def poll_seconds(self) -> float:
        return self._all.settings.poll_seconds or self._store.poll_seconds

    def timed_out(self, status: MigrationStatus, timeout: float | None) -> WaitTimeout:
        """The error of a wait that took too long."""
        return WaitTimeout(
            f"{self.version} lacks {status.behind or 'some'} records after {timeout:g} s; "
            "it continues in the background: check that a worker with this model is running"
        )

    def compare(self, queries: Iterable[str] | None = None, k: int = 10) -> Comparison:
        """Compare the new version's results with the old one's: the share of the best `k` that both
        find, for given queries or for sampled texts, and whether index and records agree."""
        pairs = self._all.pairs(self.version)
        versions = {p.new.version for p in pairs}
        report = verify_versions(self._store, self._all.index, self._all.cutter_of, versions)
        both = [(p.new, p.old) for p in pairs if p.old is not None]
        return compare(self._store, self._all.index, self._all.models, both, queries, k, report)

    def switch(self, *, force: bool = False, timeout: float = 10.0) -> None:
        """Make the new version serve, in one transaction. Waits until the version lacks nothing;
        `force` switches regardless, once all that it lacks is enqueued."""
        pairs = [p for p in self._all.pairs(self.version) if p.new.state != "serving"]
        if not pairs:
            self._refuse("there is nothing to switch to", {"building", "standby"})
        unfilled = [
            p for p in pairs if p.new.state == "building" and not self._all.is_filled(p.new)
        ]
        if unfilled and not force:
            raise InvalidTransition(
                f"{self.version} is still being built: wait for it (see migration.status())"
            )
        self._enqueue_rest(unfilled, timeout)
        behind = self._all.switch(self.version, force=force, timeout=timeout)
        if behind and not force:
            self._explain(behind)

    def _enqueue_rest(self, unfilled: Sequence[Pair], timeout: float) -> None:
        """Enqueue what the version lacks before it serves: afterwards nothing would."""
        deadline = time.monotonic() + timeout
        while any(not self._all.is_filled(pair.new) for pair in unfilled):
            if self._all.step():
                continue
            if time.monotonic() > deadline:
                raise InvalidTransition(
                    f"{self.version} is still being built: what it lacks cannot be enqueued while "
                    "transactions from before the migration are open, or another process builds it"
                )
            time.sleep(_LOOK_AGAIN)

    def rollback(self) -> None:
        """Make the old version serve again, at once; the new one is kept up to date."""
        old = self._replaced("there is nothing to roll back to")
        self._all.ask_to_switch(self.version, wanted=False)
        self._store.versions.switch([c.version for c in old], force=True)
        log.info("migration: rolled back from %s", self.version, extra={"version": self.version})

    def cancel(self) -> None:
        """Give up the new version; its vectors are dropped."""
        pairs = self._all.pairs(self.version)
        new = [p.new for p in pairs if p.new.state != "serving"]
        if not new:
            self._refuse("it cannot be cancelled", {"building", "standby"})
        self._all.ask_to_switch(self.version, wanted=False)
        self._all.retire(new)

    def retire(self) -> None:
        """Give up the old version: a rollback is no longer possible, and its vectors are
        dropped."""
        self._all.retire(self._replaced("there is nothing to retire"))

    def _replaced(self, otherwise: str) -> list[Collection]:
        """The versions that the new one has replaced."""
        pairs = self._all.pairs(self.version)
        old = [p.old for p in pairs if p.old and p.new.state == "serving"]
        if not old:
            self._refuse(otherwise, {"serving"})
        return old

    def _refuse(self, what: str, needs: set[str]) -> NoReturn:
        state = self.status().state
        raise InvalidTransition(
            f"{what}: the migration to {self.version!r} is {state}; its new version must be "
            f"{' or '.join(sorted(needs))}"
        )

    def _explain(self, behind: int) -> NoReturn:
        failed = self.status().failed
        why = (
            f"{failed} of its jobs failed: see `evervec jobs --status failed`, then retry them, or "
            "switch without those records with force=True"
            if failed
            else "wait for its workers, or switch with force=True"
        )
        raise InvalidTransition(f"{self.version} lacks {behind} records that are served now; {why}")
