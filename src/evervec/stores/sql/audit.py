"""The audit log: entries are added, read and purged, never changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple

from evervec.stores.sql.engine import Engine
from evervec.stores.values import AuditChoice, StoredEntry


class Audit(Engine):
    """The part of the store that keeps the audit log."""

    def add_audit(self, entries: Sequence[StoredEntry]) -> None:
        with self.db.writing(durable=True) as conn:
            conn.executemany(self.sql.add_audit, [astuple(entry)[:-1] for entry in entries])

    def audit(self, chosen: AuditChoice, limit: int) -> list[StoredEntry]:
        with self.db.reading() as conn:
            rows = conn.execute(self.sql.audit, (*chosen, limit)).fetchall()
        return [StoredEntry(*row) for row in rows]

    def forget_audit(self, before: float) -> int:
        with self.db.writing(durable=False) as conn:
            gone: int = conn.execute(self.sql.forget_audit, (before,)).rowcount
        return gone
