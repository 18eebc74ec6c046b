"""What the HTTP service keeps: API keys and tokens, the audit log, idempotent requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from itertools import starmap

from evervec.stores.service_values import Asked, AuditChoice, StoredEntry, StoredKey
from evervec.stores.sql.engine import Part


class Service(Part):
    """The part of the store that the service uses."""

    # keys and tokens
    def add_key(self, key: StoredKey) -> None:
        self.write(self.sql.add_key, *astuple(key), durable=True)

    def keys(self, tenant: str | None) -> list[StoredKey]:
        return self._keys(self.sql.keys, tenant)

    def keys_before(self, tenant: str | None, at: float, id: str, limit: int) -> list[StoredKey]:
        return self._keys(self.sql.keys_before, tenant, at, id, limit)

    def _keys(self, which: str, *wanted: object) -> list[StoredKey]:
        return list(
            starmap(StoredKey, self.read(f"select {self.sql.key_columns}\n{which}", *wanted))
        )

    def any_keys(self) -> bool:
        (exists,) = self.read_one(self.sql.any_keys)
        return bool(exists)

    def find_keys(self, ids: Sequence[str]) -> dict[str, StoredKey]:
        return {key.id: key for key in self._keys(self.sql.find_keys, self.engine.listed(ids))}

    def revoke_key(self, id: str) -> bool:
        with self.db.writing(durable=True) as conn:
            when = (self.engine.moment(conn), id)
            changed: int = conn.execute(self.sql.revoke_key, when).rowcount
        return changed == 1

    def use_keys(self, used: Mapping[str, float]) -> None:
        with self.db.writing(durable=False) as conn:
            conn.executemany(self.sql.use_key, sorted((at, id) for id, at in used.items()))

    def rotate_key(self, id: str, until: float, key: StoredKey) -> bool:
        with self.db.writing(durable=True) as conn:
            now = self.engine.moment(conn)
            if not conn.execute(self.sql.expire_key, (until, id, now)).rowcount:
                return False
            conn.execute(self.sql.add_key, astuple(key))
        return True

    def add_token(self, token: StoredKey, since: float, most: int) -> bool:
        with self.db.writing(durable=False) as conn:
            (count,) = conn.execute(self.sql.count_tokens, (token.parent, since)).fetchone()
            if count >= most:
                return False
            conn.execute(self.sql.add_key, astuple(token))
        return True

    def forget_tokens(self, before: float) -> int:
        return self.write(self.sql.forget_tokens, before)

    # the audit log: entries are added, read and purged, never changed
    def add_audit(self, entries: Sequence[StoredEntry]) -> None:
        with self.db.writing(durable=True) as conn:
            conn.executemany(self.sql.add_audit, [astuple(entry)[:-1] for entry in entries])

    def audit(self, chosen: AuditChoice, limit: int) -> list[StoredEntry]:
        return list(starmap(StoredEntry, self.read(self.sql.audit, *chosen, limit)))

    def forget_audit(self, before: float) -> int:
        return self.write(self.sql.forget_audit, before)

    def frequent_audit(self, most: int) -> list[tuple[str, str]]:
        return [(tenant, action) for tenant, action in self.read(self.sql.frequent_audit, most)]

    def trim_audit(self, tenant: str, action: str, keep: int, limit: int) -> int:
        return self.write(self.sql.trim_audit, tenant, action, keep, limit)

    # idempotent requests. Their writes are not synced on their own: the request's change is written
    # afterwards, and its sync covers them
    def ask(self, tenant: str, name: str, fingerprint: str) -> Asked:
        with self.db.writing(durable=False) as conn:
            now = self.engine.moment(conn)
            conn.execute(self.sql.add_asked, (tenant, name, fingerprint, now))
            return Asked(*conn.execute(self.sql.asked, (tenant, name)).fetchone())

    def asked(self, tenant: str, name: str) -> Asked | None:
        row = self.read_one(self.sql.asked, tenant, name)
        return Asked(*row) if row else None

    def count_asked(self, tenant: str, most: int) -> int:
        (count,) = self.read_one(self.sql.count_asked, tenant, most)
        return int(count)

    def answer(self, tenant: str, name: str, answer: str) -> None:
        self.write(self.sql.answer, answer, tenant, name)

    def forget_asked(self, before: float) -> int:
        return self.write(self.sql.forget_asked, before)
