"""Embedding versions and named locks."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Mapping

from evervec.model import ModelSpec, Version, as_datetime
from evervec.stores.base import Collection, KindSpec
from evervec.stores.sqlite.engine import SQL, Engine


class Versions(Engine):
    """The part of the store that knows which model made which vectors."""

    def collections(
        self, model: ModelSpec | None, kinds: Mapping[str, KindSpec]
    ) -> list[Collection]:
        with self.db.reading() as conn:
            found = _collections(conn)
        blank = [c.version for c in found if c.spec is None] if model else []
        described = [
            (spec.chunker, int(spec.app), c.version)
            for c in found
            if (spec := kinds.get(c.kind)) and (c.chunker, c.app) != (spec.chunker, spec.app)
        ]
        if not blank and not described:
            return found
        with self.db.writing(durable=True) as conn:
            if model:
                identity = (model.name, model.provider, model.model, model.dimensions)
                conn.executemany(SQL.adopt, [(*identity, version) for version in blank])
            now = self.take_numbers(conn, 1)
            conn.executemany(SQL.describe_kind, [(cut, now, *rest) for cut, *rest in described])
            return _collections(conn)

    def versions(self) -> list[Version]:
        with self.db.reading() as conn:
            rows = conn.execute(SQL.versions).fetchall()
        return [
            Version(name, kind, provider, model, dimensions, state, items, as_datetime(synced))
            for name, kind, provider, model, dimensions, state, items, synced in rows
        ]

    def lock(self, name: str, holder: str, seconds: float) -> str | None:
        with self.db.writing(durable=False) as conn:
            now = self.now()
            token = secrets.token_hex(16)
            row = conn.execute(SQL.take_lock, (name, holder, token, now + seconds, now)).fetchone()
        return row[0] if row else None

    def unlock(self, name: str, token: str) -> None:
        with self.db.writing(durable=False) as conn:
            conn.execute(SQL.drop_lock, (name, token))


def _collections(conn: sqlite3.Connection) -> list[Collection]:
    return [
        Collection(
            version, kind, state, chunker, bool(app), cut_since,
            ModelSpec(name, provider, model, dimensions) if name else None,
        )
        for version, kind, state, chunker, app, cut_since, name, provider, model, dimensions
        in conn.execute(SQL.collections)
    ]  # fmt: skip
