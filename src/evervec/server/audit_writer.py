"""Writes the audit log of a service, so that no client can make it grow without bound.

A request is answered when its entry is written. The same action again and again, or one that
changes nothing, is written a few times a minute; what comes after that is counted, and one entry for
all of it follows. Of each action on a tenant the latest entries are kept: a flood of one action
removes no trace of another.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from evervec.errors import EvervecError
from evervec.runtime.batcher import Batcher
from evervec.server.deadlines import within_request
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.stores.service_values import StoredEntry
from evervec.telemetry.counters import AUDIT

log = logging.getLogger("evervec.server")

_WINDOW = 60.0
_AT_ONCE = 5
"""entries that are alike and written one by one within a window"""
_MOST_KNOWN = 10_000
"""actions that are told apart; beyond that, all entries are written"""
_TRIM_EVERY = 1000
"""entries of one action on one tenant after which the oldest are removed"""
_TRIMMED_AT_ONCE = 1000

Alike = tuple[str | None, ...]


@dataclass(slots=True)
class _Repeated:
    """An action since it was first seen in this window."""

    began: float
    written: int = 0
    counted: int = 0
    last: StoredEntry | None = None
    """of those that were counted"""

    def entry(self) -> StoredEntry | None:
        """The entry for all that were counted."""
        if self.last is None or self.counted == 1:
            return self.last
        seconds = max(1, round(self.last.at - self.began))
        return replace(
            self.last, outcome=f"{self.last.outcome}: the last of {self.counted:,} in {seconds} s"
        )


class Repeats:
    """What repeats in the entries of a service. Not thread-safe."""

    def __init__(self) -> None:
        self._known: dict[Alike, _Repeated] = {}

    def take(self, entry: StoredEntry, changed: bool) -> list[StoredEntry]:
        """The entries to write now, in this order: none, if this one is only counted. `changed`:
        whether the action changed anything; if not, it does not matter on what."""
        name = (
            entry.key_id, entry.agent, entry.tenant, entry.action,
            entry.target if changed else None, entry.outcome,
        )  # fmt: skip
        known = self._known.get(name)
        written = [entry]
        if known is not None and not 0 <= entry.at - known.began < _WINDOW:
            if ended := known.entry():
                written = [ended, entry]
            del self._known[name]
            known = None
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                return written
            known = self._known[name] = _Repeated(entry.at)
        if known.written < _AT_ONCE:
            known.written += 1
            return written
        known.counted, known.last = known.counted + 1, entry
        return []

    def end(self, now: float | None) -> list[StoredEntry]:
        """Forget the windows that are over, or with None all; returns the entries for what was
        counted in them."""
        over = {
            name: known
            for name, known in self._known.items()
            if now is None or not 0 <= now - known.began < _WINDOW
        }
        for name in over:
            del self._known[name]
        return [entry for known in over.values() if (entry := known.entry()) is not None]


class AuditWriter:
    """Writes entries of requests, in the event loop."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._most = settings.keep_audit_entries
        self._repeats = Repeats()
        self._counted: list[StoredEntry] = []
        """entries for repetitions that are not written yet"""
        self._batcher = Batcher("audit", self._write_all, outcome=within_request)
        self._added: Counter[tuple[str, str]] = Counter()
        """entries by tenant and action since these were trimmed"""

    async def note(self, entry: StoredEntry, *, changed: bool = True) -> None:
        """Write an entry, or count it as a repetition."""
        entries = self._repeats.take(entry, changed)
        if entries:
            self._counted += entries[:-1]
            await self._batcher(entry)
        else:
            AUDIT.add(1, "repeated")

    def end_repeats(self, now: float | None) -> None:
        """Make entries for the repetitions whose minute is over, or with None for all; in the event
        loop, or after it."""
        self._counted += self._repeats.end(now)

    def write_counted(self) -> None:
        """Write these entries, in any thread. After an error, the next call writes them."""
        if entries := list(self._counted):
            self._write_all(entries)
            del self._counted[: len(entries)]

    def _write_all(self, entries: Sequence[StoredEntry]) -> list[None]:
        self._store.service.add_audit(entries)
        AUDIT.add(len(entries), "written")
        if self._most:
            self._added.update((entry.tenant, entry.action) for entry in entries)
            for name, added in list(self._added.items()):
                if added >= _TRIM_EVERY:
                    del self._added[name]
                    try:
                        self._trim(*name)
                    except EvervecError as error:  # the entries are written; `trim` tries again
                        log.warning("old entries of the audit log were not removed: %s", error)
        return [None] * len(entries)

    def trim(self) -> None:
        """Remove the oldest entries of all actions that have too many, whoever wrote them."""
        if self._most:
            for tenant, action in self._store.service.frequent_audit(self._most):
                self._trim(tenant, action)

    def _trim(self, tenant: str, action: str) -> None:
        removed = _TRIMMED_AT_ONCE
        while removed == _TRIMMED_AT_ONCE:  # in portions, so that other writers wait for none long
            removed = self._store.service.trim_audit(tenant, action, self._most, _TRIMMED_AT_ONCE)
            AUDIT.add(removed, "removed")

    def close(self) -> None:
        """Write what was counted, after the last request."""
        self._batcher.close()
        self.end_repeats(None)
        try:
            self.write_counted()
        except EvervecError as error:
            log.warning("repeated actions are not in the audit log: %s", error)
