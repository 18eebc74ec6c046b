"""Embedding versions and named locks."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from evervec.model import ModelSpec, Version, as_datetime
from evervec.stores.base import Collection, KindSpec
from evervec.stores.sql.engine import Connection, Engine


class Versions(Engine):
    """The part of the store that knows which model made which vectors."""

    def collections(
        self, model: ModelSpec | None, kinds: Mapping[str, KindSpec]
    ) -> list[Collection]:
        with self.db.reading() as conn:
            found = self._collections(conn)
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
                conn.executemany(self.sql.adopt, [(*identity, version) for version in blank])
            now = self.fresh_number(conn)
            conn.executemany(
                self.sql.describe_kind, [(cut, now, *rest) for cut, *rest in described]
            )
            return self._collections(conn)

    def versions(self) -> list[Version]:
        with self.db.reading() as conn:
            rows = conn.execute(self.sql.versions).fetchall()
        return [
            Version(name, kind, provider, model, dimensions, state, items, as_datetime(synced))
            for name, kind, provider, model, dimensions, state, items, synced in rows
        ]

    def lock(self, name: str, holder: str, seconds: float) -> str | None:
        with self.db.writing(durable=False) as conn:
            now = self.moment(conn)
            token = secrets.token_hex(16)
            row = conn.execute(
                self.sql.take_lock, (name, holder, token, now + seconds, now)
            ).fetchone()
        return row[0] if row else None

    def unlock(self, name: str, token: str) -> None:
        with self.db.writing(durable=False) as conn:
            conn.execute(self.sql.drop_lock, (name, token))

    def _collections(self, conn: Connection) -> list[Collection]:
        return [
            Collection(
                version, kind, state, chunker, bool(app), cut_since,
                ModelSpec(name, provider, model, dimensions) if name else None,
            )
            for version, kind, state, chunker, app, cut_since, name, provider, model, dimensions
            in conn.execute(self.sql.collections)
        ]  # fmt: skip
