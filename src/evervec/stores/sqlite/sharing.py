"""What the processes of a store share: notes, sums of what was spent, vectors to use again."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import astuple

from evervec.model import Spend
from evervec.stores.base import Note
from evervec.stores.sqlite.engine import SQL, Engine


class Sharing(Engine):
    """The part of the store in which workers leave word for each other."""

    def note(self, name: str) -> Note | None:
        with self.db.reading() as conn:
            row = conn.execute(SQL.note, (name,)).fetchone()
        return Note(*row) if row else None

    def put_note(self, name: str, value: str | None, revision: int | None) -> bool:
        if value is None and revision is None:
            return self.note(name) is None
        with self.db.writing(durable=False) as conn:
            if revision is None:
                first = secrets.randbits(62)  # a note that went and came again is another one
                changed = conn.execute(SQL.add_note, (name, value, first))
            elif value is None:
                changed = conn.execute(SQL.drop_note, (name, revision))
            else:
                changed = conn.execute(SQL.set_note, (value, name, revision))
            return changed.rowcount == 1

    def add_spend(self, spent: Sequence[Spend]) -> None:
        with self.db.writing(durable=False) as conn:
            conn.executemany(SQL.add_spend, [astuple(row) for row in spent])

    def spend(self, tenant: str | None, since: str) -> list[Spend]:
        with self.db.reading() as conn:
            return [Spend(*row) for row in conn.execute(SQL.spend, (since, tenant))]

    def cached(self, model: str, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        with self.db.reading() as conn:
            return dict(
                found
                for hash in hashes
                if (found := conn.execute(SQL.cached, (model, hash)).fetchone())
            )

    def cache(self, model: str, vectors: Mapping[bytes, bytes], most: int) -> None:
        with self.db.writing(durable=False) as conn:
            conn.executemany(SQL.add_cached, [(model, h, v) for h, v in vectors.items()])
            conn.execute(SQL.trim_cache, (most,))
