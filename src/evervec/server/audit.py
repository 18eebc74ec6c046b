"""The audit log: who did what to a store, from where, and with which outcome.

It records changes of keys, sign-ins, deletes, repairs, migrations and manual changes of jobs, over
HTTP and on the command line. Entries are never changed; they are purged after `keep_audit_days`, and
beyond `keep_audit_entries` of each action on a tenant.
"""

from __future__ import annotations

from evervec.model.access import AuditEntry
from evervec.model.basics import as_datetime
from evervec.stores.base import Store
from evervec.stores.service_values import AuditChoice, StoredEntry

Entry = AuditEntry
LONGEST_TARGET = 1000
EVERY_TENANT = "*"


class Audit:
    """The audit log of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def note(
        self, agent: str, tenant: str, action: str, target: str, outcome: str = "done"
    ) -> None:
        """Add an entry for an action outside the service."""
        now = self._store.now()
        self._store.service.add_audit(
            [StoredEntry(now, None, agent, tenant, action, target[:LONGEST_TARGET], outcome)]
        )

    def list(self, chosen: AuditChoice, limit: int = 100) -> list[Entry]:
        """Entries, newest first."""
        return [_public(stored) for stored in self._store.service.audit(chosen, limit)]


def _public(stored: StoredEntry) -> Entry:
    return Entry(
        stored.entry, as_datetime(stored.at), stored.key_id, stored.agent, stored.tenant,  # type: ignore[arg-type]
        stored.action, stored.target, stored.outcome, stored.request_id, stored.client,
    )  # fmt: skip
