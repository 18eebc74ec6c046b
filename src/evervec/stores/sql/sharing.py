"""What the processes of a store share: notes, spend, and cached vectors."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import astuple

from evervec.model.reports import Spend
from evervec.stores.sql.engine import Engine
from evervec.stores.values import Note


class Sharing(Engine):
    """The part of the store that keeps the state shared by workers."""

    def note(self, name: str) -> Note | None:
        with self.db.reading() as conn:
            row = conn.execute(self.sql.note, (name,)).fetchone()
        return Note(*row) if row else None

    def put_note(self, name: str, value: str | None, revision: int | None) -> bool:
        if value is None and revision is None:
            return self.note(name) is None
        with self.db.writing(durable=False) as conn:
            if revision is None:
                first = secrets.randbits(62)  # differs when a note is dropped and added again
                changed = conn.execute(self.sql.add_note, (name, value, first))
            elif value is None:
                changed = conn.execute(self.sql.drop_note, (name, revision))
            else:
                changed = conn.execute(self.sql.set_note, (value, name, revision))
            done: bool = changed.rowcount == 1
        return done

    def add_spend(self, spent: Sequence[Spend]) -> None:
        rows = sorted(astuple(row) for row in spent)
        with self.db.writing(durable=False) as conn:
            conn.executemany(self.sql.add_spend, rows)

    def spend(self, tenant: str | None, since: str) -> list[Spend]:
        with self.db.reading() as conn:
            return [Spend(*row) for row in conn.execute(self.sql.spend, (since, tenant))]

    def cached(self, model: str, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        wanted = self.listed(hash.hex() for hash in hashes)
        with self.db.reading() as conn:
            found = conn.execute(self.sql.cached, (model, wanted)).fetchall()
        return {bytes.fromhex(hash): vector for hash, vector in found}

    def cache(self, model: str, vectors: Mapping[bytes, bytes], most: int) -> None:
        rows = sorted((model, hash.hex(), vector) for hash, vector in vectors.items())
        with self.db.writing(durable=False) as conn:
            conn.executemany(self.sql.add_cached, rows)
            conn.execute(self.sql.trim_cache, (most,))
