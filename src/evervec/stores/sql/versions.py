"""Embedding versions of each kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from evervec.errors import InvalidTransition
from evervec.model.basics import as_datetime
from evervec.model.ranking import Rescore
from evervec.model.records import ModelSpec, Version
from evervec.stores.sql.engine import Connection, Engine, Part
from evervec.stores.sql.job_rows import JobValues
from evervec.stores.sql.job_writer import JobWriter
from evervec.stores.sql.retries import retried
from evervec.stores.sql.shared import Shared
from evervec.stores.sql.tenants import Tenants
from evervec.stores.values import Collection, KindSpec, Progress, VersionCount


class Versions(Part):
    """The part of the store that keeps the embedding versions of each kind."""

    def __init__(self, engine: Engine, tenants: Tenants, writer: JobWriter, shared: Shared) -> None:
        super().__init__(engine)
        self._tenants = tenants
        self._writer = writer
        self._shared = shared

    def collections(self) -> list[Collection]:
        with self.db.reading() as conn:
            return self.engine.catalogue(conn).collections

    def kinds(self, tenant: str) -> list[str]:
        return [kind for (kind,) in self.read(self.sql.kinds, tenant)]

    def collections_of(self, tenant: str) -> list[Collection]:
        kinds = self.kinds(tenant)
        with self.db.reading() as conn:
            return self.engine.catalogue(conn).of(kinds)

    def all(self) -> list[Version]:
        return [
            Version(
                name, kind, provider, model, dimensions, state, items, as_datetime(synced), chunker,
                created_at=as_datetime(created),
            )
            for name, kind, provider, model, dimensions, state, items, synced, chunker, created
            in self.read(self.sql.versions)
        ]  # fmt: skip

    def holdings(self, tenant: str) -> dict[tuple[str, str], VersionCount]:
        rows = self.read(self.sql.holdings, tenant)
        return {(kind, name): VersionCount(items, last) for kind, name, items, last in rows}

    def adopt(self, model: ModelSpec) -> None:
        with self.db.writing(durable=True) as conn:
            conn.execute(self.sql.adopt, _identity(model))
            self.engine.touch(conn)

    def describe(self, ways: Mapping[int, KindSpec]) -> None:
        with self.db.writing(durable=True) as conn:
            now = self.engine.fresh_number(conn)
            conn.executemany(
                self.sql.describe_version,
                [(way.chunker, now, int(way.app), version) for version, way in ways.items()],
            )

    def set_rescore(self, kind: str, rescore: Rescore) -> None:
        given = (rescore.base, rescore.gain, rescore.days)
        if given in self.read(self.sql.rescore_of, kind):
            return
        with self.db.writing(durable=True) as conn:
            conn.execute(self.sql.set_rescore, (kind, *given))
            self.engine.touch(conn)

    # migration to another model
    def begin(self, model: ModelSpec, kinds: Sequence[str]) -> None:
        with self.db.writing(durable=True) as conn:
            now = self.engine.moment(conn)
            for kind in kinds:
                number = self.engine.fresh_number(conn)
                conn.execute(self.sql.begin_version, (number, kind, *_identity(model), now))

    def track_unaware(self, version: int, state: str = "building") -> bool:
        return True

    @retried
    def join(self, version: int, limit: int = 1000) -> int:
        with self.db.writing(durable=False) as conn:
            now = self.engine.moment(conn)
            to_appear = (self.sql.to_appear, (version, limit))
            records = [record for record, *_ in conn.execute(*to_appear).fetchall()]
            self._writer.lock_records(conn, records)
            numbers = self.engine.numbers(conn, len(records))
            jobs: dict[str, list[JobValues]] = defaultdict(list)
            # read again: some may have changed before they were locked
            rows = conn.execute(*to_appear).fetchall()
            for record, tenant, op, priority, due, seq, attempts, box in rows:
                if record not in records:
                    continue
                jobs[tenant].append(
                    JobValues(
                        next(numbers), record, version, op, priority, due, seq, attempts, box, None,
                        None,
                    )
                )  # fmt: skip
            for tenant, group in jobs.items():
                self._writer.write_jobs(conn, tenant, now, group)
        self.engine.wake()
        return len(records)

    def progress(self, version: int) -> Progress:
        with self.db.snapshot() as conn:
            counts = [
                int(count)
                for query in (self.sql.progress, self.sql.version_jobs, self.sql.behind)
                for count in conn.execute(query, (version,)).fetchone()
            ]
        return Progress(*counts)

    def behind(self, version: int) -> int:
        (count,) = self.read_one(self.sql.behind, version)
        return int(count)

    def switch(self, serve: Sequence[int], *, force: bool = False) -> int:
        with self.db.writing(durable=True) as conn:
            self._halt_finishes(conn)
            behind = 0
            for version in serve:
                (lacking,) = conn.execute(self.sql.behind, (version,)).fetchone()
                behind += lacking
            if behind and not force:
                return behind
            conn.execute(self.sql.stand_by, (self.engine.listed(serve),))
            served = conn.execute(self.sql.serve, (self.engine.listed(serve),)).fetchall()
            if len(served) < len(serve):  # its jobs and points may be gone already
                raise InvalidTransition(
                    "nothing was switched: the version was retired in the meantime"
                )
            self.engine.touch(conn)
        self._writer.pass_all_boxes_on()
        self.engine.wake()
        return behind

    def await_finishes(self) -> None:
        with self.db.writing(durable=False) as conn:
            self._halt_finishes(conn)

    def _halt_finishes(self, conn: Connection) -> None:
        """Block finishes until the transaction ends, in engines with concurrent writers."""

    def retire(self, versions: Sequence[int]) -> None:
        with self.db.writing(durable=True) as conn:
            conn.execute(self.sql.retire, (self.engine.listed(versions),))
            self.engine.touch(conn)

    def drop(self, version: int, limit: int = 1000, *, even_held: bool = False) -> int | None:
        if passed_on := self._writer.pass_boxes_on(limit):
            return passed_on
        with self.db.writing(durable=False) as conn:
            if not even_held:
                which = (version, self.engine.moment(conn))
                (held,) = conn.execute(self.sql.held_version, which).fetchone()
                if held:
                    return None
            gone = self._drop_jobs(conn, version, limit)
            records = self._records_of(conn, version, limit)
            with self._tenants.counting_chunks(conn, records):
                entries = (version, self.engine.listed(records))
                gone += int(conn.execute(self.sql.drop_version_ledger, entries).rowcount)
        return gone

    def _drop_jobs(self, conn: Connection, version: int, limit: int) -> int:
        dropped: int = conn.execute(self.sql.drop_version_jobs, (version, limit)).rowcount
        return dropped

    def _records_of(self, conn: Connection, version: int, limit: int) -> list[int]:
        """Records with a ledger entry of the version, at most `limit`."""
        rows = conn.execute(self.sql.version_records, (version, limit)).fetchall()
        return [record for (record,) in rows]

    def forget(self, version: int) -> None:
        self.write(self.sql.forget_version, version, durable=True)


def _identity(model: ModelSpec) -> tuple[str, str, str, int]:
    return model.name, model.provider, model.model, model.dimensions
