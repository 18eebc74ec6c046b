"""The records behind hits, and the store's side of `verify`."""

from __future__ import annotations

from collections.abc import Sequence

from evervec.model.jobs import Status
from evervec.stores.ledger import unpack_chunks
from evervec.stores.sql.engine import Engine
from evervec.stores.values import Candidate, Digest, Expected, Found, Typed


class Finding(Engine):
    """The part of the store that searches use. Each engine has its own full-text search."""

    def mark(self) -> int:
        with self.db.reading() as conn:
            mark: int = conn.execute(self.sql.mark).fetchone()[0]
        return mark

    def candidates(self, tenant: str, records: Sequence[int]) -> dict[int, Candidate]:
        with self.db.reading() as conn:
            rows = conn.execute(self.sql.candidates, (self.listed(records), tenant)).fetchall()
        return {row[0]: Candidate(*row) for row in rows}

    def ledgers(self, records: Sequence[int], versions: Sequence[int]) -> dict[int, bytes]:
        with self.db.reading() as conn:
            found = conn.execute(self.sql.ledgers, (self.listed(records), self.listed(versions)))
            return dict(found.fetchall())

    def found(self, records: Sequence[int]) -> dict[int, Found]:
        with self.db.reading() as conn:
            rows = conn.execute(self.sql.found, (self.listed(records),)).fetchall()
        return {row[0]: Found(*row) for row in rows}

    def digests(self, tenant: str, kind: str, ids: Sequence[str]) -> dict[str, Digest]:
        with self.db.reading() as conn:
            rows = conn.execute(self.sql.digests, (tenant, kind, self.listed(ids))).fetchall()
        return {
            id: Digest(hash, metadata, weight, bool(busy))
            for id, state, hash, metadata, weight, busy in rows
            if state == "live" or busy
        }

    def sizes(self, records: Sequence[int]) -> int:
        with self.db.reading() as conn:
            size: int = conn.execute(self.sql.sizes, (self.listed(records),)).fetchone()[0]
        return size

    def typed(self, kind: str, after: int, limit: int) -> list[Typed]:
        with self.db.reading() as conn:
            return [Typed(*row) for row in conn.execute(self.sql.typed, (after, kind, limit))]

    def expected(self, tenant: str | None, version: int, after: int, limit: int) -> list[Expected]:
        with self.db.reading() as conn:
            rows = conn.execute(self.sql.expected, (version, after, tenant, limit)).fetchall()
        return [
            Expected(
                record, owner, kind, id, state == "live",
                ledger_seq is not None and ledger_seq >= seq and not doubtful,
                (ledger_seq or 0) >= cut_since, None if status is None else Status(status),
                unpack_chunks(chunks), points_seq or 0, bool(doubtful),
            )
            for (
                record, owner, kind, id, state, seq, ledger_seq, points_seq, doubtful, chunks,
                cut_since, status,
            ) in rows
        ]  # fmt: skip
