"""The audit log: who did what to a store, from where, and what became of it.

Changes of keys, deletes, repairs, changes of the model, and what is done to jobs by hand, over HTTP
and on the command line. Entries are never changed; they go when they are `keep_audit_days` old.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from evervec.model.basics import as_datetime
from evervec.stores.base import Store
from evervec.stores.values import AuditChoice, StoredEntry

_LONGEST = 1000
EVERY_TENANT = "*"


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that was done."""

    entry: int
    at: datetime
    key_id: str | None
    """of the key or token; None: on the command line, or as long as there were no keys"""
    agent: str
    tenant: str
    """whose it was done to; `*`: all"""
    action: str
    target: str
    outcome: str
    """`done`, or what went wrong"""
    request_id: str | None
    client: str | None
    """the address that the request came from"""


class Audit:
    """The audit log of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def note(
        self, agent: str, tenant: str, action: str, target: str, outcome: str = "done"
    ) -> None:
        """Add an entry for something that no request asked for."""
        now = self._store.now()
        self._store.add_audit(
            [StoredEntry(now, None, agent, tenant, action, target[:_LONGEST], outcome)]
        )

    def list(self, chosen: AuditChoice, limit: int = 100) -> list[Entry]:
        """Entries, the newest first."""
        return [_shown(stored) for stored in self._store.audit(chosen, limit)]


def _shown(stored: StoredEntry) -> Entry:
    return Entry(
        stored.entry, as_datetime(stored.at), stored.key_id, stored.agent, stored.tenant,  # type: ignore[arg-type]
        stored.action, stored.target, stored.outcome, stored.request_id, stored.client,
    )  # fmt: skip
