"""Embedding versions and named locks."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from evervec.model.basics import as_datetime
from evervec.model.records import ModelSpec, Version
from evervec.stores.sql.boxes import Boxes
from evervec.stores.sql.engine import Connection
from evervec.stores.values import Collection, KindSpec, LockHolder, Progress


class Versions(Boxes):
    """The part of the store that keeps the embedding versions of each kind, and named locks."""

    def collections(self) -> list[Collection]:
        with self.db.reading() as conn:
            return self.catalogue(conn).collections

    def kinds(self, tenant: str) -> list[str]:
        with self.db.reading() as conn:
            return [row[0] for row in conn.execute(self.sql.kinds, (tenant,))]

    def collections_of(self, tenant: str) -> list[Collection]:
        with self.db.reading() as conn:
            kinds = [row[0] for row in conn.execute(self.sql.kinds, (tenant,))]
            return self.catalogue(conn).of(kinds)

    def adopt(self, model: ModelSpec) -> None:
        with self.db.writing(durable=True) as conn:
            conn.execute(
                self.sql.adopt, (model.name, model.provider, model.model, model.dimensions)
            )
            self.fresh_number(conn)

    def describe(self, ways: Mapping[int, KindSpec]) -> None:
        with self.db.writing(durable=True) as conn:
            now = self.fresh_number(conn)
            conn.executemany(
                self.sql.describe_version,
                [(way.chunker, now, int(way.app), version) for version, way in ways.items()],
            )

    def versions(self) -> list[Version]:
        with self.db.reading() as conn:
            rows = conn.execute(self.sql.versions).fetchall()
        return [
            Version(
                name, kind, provider, model, dimensions, state, items, as_datetime(synced), chunker,
                created_at=as_datetime(created),
            )
            for name, kind, provider, model, dimensions, state, items, synced, chunker, created
            in rows
        ]  # fmt: skip

    # migration to another model
    def begin_versions(self, model: ModelSpec, kinds: Sequence[str]) -> None:
        identity = (model.name, model.provider, model.model, model.dimensions)
        with self.db.writing(durable=True) as conn:
            now = self.moment(conn)
            for kind in kinds:
                number = self.fresh_number(conn)
                conn.execute(self.sql.begin_version, (number, kind, *identity, now))

    def track_unaware(self, version: int, state: str = "building") -> bool:
        return True

    def progress(self, version: int) -> Progress:
        with self.db.snapshot() as conn:
            records, current = conn.execute(self.sql.progress, (version,)).fetchone()
            pending, failed = conn.execute(self.sql.version_jobs, (version,)).fetchone()
            behind = conn.execute(self.sql.behind, (version,)).fetchone()[0]
        return Progress(int(records), int(current), int(pending), int(failed), behind)

    def switch_versions(self, serve: Sequence[int], *, force: bool = False) -> int:
        with self.db.writing(durable=True) as conn:
            self.halt_finishes(conn)
            behind = 0
            for version in serve:
                behind += conn.execute(self.sql.behind, (version,)).fetchone()[0]
            if behind and not force:
                return behind
            conn.execute(self.sql.stand_by, (self.listed(serve),))
            conn.execute(self.sql.serve, (self.listed(serve),))
            self.fresh_number(conn)
        while self.pass_boxes_on():
            pass
        self.wake()
        return behind

    def halt_finishes(self, conn: Connection) -> None:
        """Block finishes until the transaction ends, in engines with concurrent writers."""

    def retire_versions(self, versions: Sequence[int]) -> None:
        with self.db.writing(durable=True) as conn:
            conn.execute(self.sql.retire, (self.listed(versions),))
            self.fresh_number(conn)

    def drop_version(
        self, version: int, limit: int = 1000, *, even_held: bool = False
    ) -> int | None:
        if passed_on := self.pass_boxes_on(limit):
            return passed_on
        with self.db.writing(durable=False) as conn:
            held = (version, self.moment(conn))
            if not even_held and conn.execute(self.sql.held_version, held).fetchone()[0]:
                return None
            gone: int = conn.execute(self.sql.drop_version_jobs, (version, limit)).rowcount
            gone += self._drop_ledger(conn, version, limit)
        return gone

    def _drop_ledger(self, conn: Connection, version: int, limit: int) -> int:
        gone: int = conn.execute(self.sql.drop_version_ledger, (version, limit)).rowcount
        return gone

    def forget_version(self, version: int) -> None:
        with self.db.writing(durable=True) as conn:
            conn.execute(self.sql.forget_version, (version,))

    # locks
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

    def lock_holder(self, name: str) -> LockHolder | None:
        with self.db.reading() as conn:
            row = conn.execute(self.sql.lock_holder, (name,)).fetchone()
        return LockHolder(*row) if row else None
