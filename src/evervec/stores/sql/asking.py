"""Idempotent requests: each is stored under the name that its caller gave it, with its answer."""

from __future__ import annotations

from evervec.stores.sql.engine import Engine
from evervec.stores.values import Asked


class Asking(Engine):
    """The part of the store that keeps idempotent requests and their answers.

    These writes are not synced on their own: the request's change is written afterwards, and its
    sync covers them."""

    def ask(self, tenant: str, name: str, fingerprint: str) -> Asked:
        with self.db.writing(durable=False) as conn:
            now = self.moment(conn)
            conn.execute(self.sql.add_asked, (tenant, name, fingerprint, now))
            return Asked(*conn.execute(self.sql.asked, (tenant, name)).fetchone())

    def asked(self, tenant: str, name: str) -> Asked | None:
        with self.db.reading() as conn:
            row = conn.execute(self.sql.asked, (tenant, name)).fetchone()
        return None if row is None else Asked(*row)

    def count_asked(self, tenant: str, most: int) -> int:
        with self.db.reading() as conn:
            count: int = conn.execute(self.sql.count_asked, (tenant, most)).fetchone()[0]
        return count

    def answer(self, tenant: str, name: str, answer: str) -> None:
        with self.db.writing(durable=False) as conn:
            conn.execute(self.sql.answer, (answer, tenant, name))

    def forget_asked(self, before: float) -> int:
        with self.db.writing(durable=False) as conn:
            gone: int = conn.execute(self.sql.forget_asked, (before,)).rowcount
        return gone
