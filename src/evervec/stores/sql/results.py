"""What a finished job leaves: points, the ledger of their chunks, and records that appear or go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from evervec.model.records import Change
from evervec.stores.ledger import pack_chunks
from evervec.stores.sql.changes import Changes
from evervec.stores.sql.engine import Connection, Engine, Part, Values
from evervec.stores.sql.job_writer import JobWriter
from evervec.stores.sql.record_rows import Row
from evervec.stores.sql.tenants import Tenants
from evervec.stores.values import Apply, ChunksMissing, Finish


class Results(Part):
    """Written in the transaction that ends the jobs' leases."""

    def __init__(
        self, engine: Engine, tenants: Tenants, writer: JobWriter, changes: Changes
    ) -> None:
        super().__init__(engine)
        self._tenants = tenants
        self._writer = writer
        self._changes = changes

    def keep(self, conn: Connection, held: Sequence[Finish], apply: Apply | None) -> None:
        """Write points, ledger and records of held jobs."""
        if changes := [f.change for f in held if f.change]:
            self._write_points(conn, held, changes, apply)
        reveals = [f for f in held if f.reveal is not None or f.gone]
        if reveals:  # after the ledger, which a switch of versions locks
            now = self.engine.moment(conn)
            self._reveal(conn, self._writer.appearing(conn, reveals, now), now)

    def _write_points(
        self,
        conn: Connection,
        held: Sequence[Finish],
        changes: Sequence[Change],
        apply: Apply | None,
    ) -> None:
        applied = apply(changes, conn) if apply is not None else None
        if applied is not None and applied.missing:
            raise ChunksMissing(applied.missing)  # rolls the transaction back
        kept, dropped = list[Values](), list[Values]()
        for f in held:
            if c := f.change:
                if f.chunks:
                    kept.append((c.record, c.version, c.seq, pack_chunks(f.chunks), f.fence))
                else:
                    dropped.append((c.record, c.version, c.seq))
        with self._tenants.counting_chunks(conn, [change.record for change in changes]):
            self.engine.each(conn, self.sql.put_ledger, sorted(kept))
            self.engine.each(conn, self.sql.drop_ledger, sorted(dropped))

    def _reveal(self, conn: Connection, finishes: Sequence[Finish], now: float) -> None:
        """Make boxed and loaded records appear, unless a newer change came first."""
        self.engine.touch(conn)
        wanted = self.engine.listed(f.job.record for f in finishes)
        known = {
            record: Row("", record, state, seq, created_at=created, version=version, born=born,
                        was_live=state == "live")
            for record, state, seq, created, version, born
            in conn.execute(self.sql.reveal_state, (wanted,)).fetchall()
        }  # fmt: skip
        gone, shown = (defaultdict[str, list[Any]](list) for _ in range(2))
        for f in finishes:
            row = known.get(f.job.record)
            if row is None or row.seq > f.record_seq:
                continue
            if f.reveal is not None:
                row.id, row.seq = f.job.record_id, f.record_seq
                words = self._changes.words(f.reveal)
                shown[f.job.tenant].append(row.shown(f.reveal, now, words))
            elif row.was_live:
                gone[f.job.tenant].append((f.seq, row.record))
        for tenant, records in shown.items():
            self._changes.update(conn, tenant, records)
        for tenant, removed in gone.items():
            self._changes.remove(conn, tenant, removed, now)
