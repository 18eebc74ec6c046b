"""API keys of the service: found by their public part, read at each request, rarely changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple

from evervec.stores.sql.engine import Engine
from evervec.stores.values import StoredKey


class Keys(Engine):
    """The part of the store that keeps API keys and tokens."""

    def add_key(self, key: StoredKey) -> None:
        with self.db.writing(durable=True) as conn:
            conn.execute(self.sql.add_key, astuple(key))

    def keys(self, tenant: str | None) -> list[StoredKey]:
        with self.db.reading() as conn:
            rows = conn.execute(self._select + self.sql.keys, (tenant,)).fetchall()
        return [StoredKey(*row) for row in rows]

    def any_keys(self) -> bool:
        with self.db.reading() as conn:
            return bool(conn.execute(self.sql.any_keys).fetchone()[0])

    def find_keys(self, ids: Sequence[str]) -> dict[str, StoredKey]:
        with self.db.reading() as conn:
            rows = conn.execute(self._select + self.sql.find_keys, (self.listed(ids),)).fetchall()
        return {row[0]: StoredKey(*row) for row in rows}

    def revoke_key(self, id: str) -> bool:
        with self.db.writing(durable=True) as conn:
            changed: int = conn.execute(self.sql.revoke_key, (self.moment(conn), id)).rowcount
        return changed == 1

    def use_keys(self, used: Mapping[str, float]) -> None:
        with self.db.writing(durable=False) as conn:
            conn.executemany(self.sql.use_key, sorted((at, id) for id, at in used.items()))

    def rotate_key(self, id: str, until: float, key: StoredKey) -> bool:
        with self.db.writing(durable=True) as conn:
            now = self.moment(conn)
            if not conn.execute(self.sql.expire_key, (until, id, now)).rowcount:
                return False
            conn.execute(self.sql.add_key, astuple(key))
        return True

    def add_token(self, token: StoredKey, since: float, most: int) -> bool:
        with self.db.writing(durable=False) as conn:
            if conn.execute(self.sql.count_tokens, (token.parent, since)).fetchone()[0] >= most:
                return False
            conn.execute(self.sql.add_key, astuple(token))
        return True

    def forget_tokens(self, before: float) -> int:
        with self.db.writing(durable=False) as conn:
            gone: int = conn.execute(self.sql.forget_tokens, (before,)).rowcount
        return gone

    @property
    def _select(self) -> str:
        return f"select {self.sql.key_columns}\n"
