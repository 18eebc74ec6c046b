"""The limits and the usage of each tenant.

Usage is counted in the transaction of each change: by triggers in PostgreSQL; by triggers in
SQLite, except for new records; in code in DuckDB. Usage is never computed by scanning the records.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import astuple

from evervec.errors import QuotaExceeded
from evervec.model.basics import as_datetime, day_of, next_day
from evervec.model.usage import Limits, TenantState, Usage
from evervec.settings import Settings
from evervec.stores.sql.engine import Connection, Engine, Part
from evervec.stores.sql.record_rows import RecordValues, Row
from evervec.stores.values import Draft
from evervec.telemetry.counters import QUOTAS

_LIMITS_HOLD = 1.0
"""seconds for which a tenant's limits are cached: another process may change them"""
_MOST_KNOWN = 10_000

_ADVICE = {
    "kinds": "use one of those, or delete all records of one (it counts for keep_done_days more)",
    "records": "delete some",
    "bytes": "delete some records, or make them shorter",
    "chunks": "delete some records, or make them shorter",
}


def default_limits(settings: Settings) -> Limits:
    """The limits for all tenants, from the settings."""
    return Limits(
        1, settings.tenant_kinds, settings.tenant_records, settings.tenant_bytes,
        settings.tenant_chunks, settings.tenant_tokens, settings.tenant_money,
    )  # fmt: skip


class Tenants(Part):
    """The part of the store that keeps tenants' limits and usage."""

    def __init__(self, engine: Engine, default_limits: Limits) -> None:
        super().__init__(engine)
        self.default_limits = default_limits
        self._limits: dict[str, tuple[float, Limits]] = {}
        self._kinds_there: set[tuple[str, str]] = set()

    # limits
    def own_limits(self, tenant: str) -> Limits:
        with self.db.reading() as conn:
            return self._own_limits(conn, tenant)

    def _own_limits(self, conn: Connection, tenant: str) -> Limits:
        row = conn.execute(self.sql.limits, (tenant,)).fetchone()
        return Limits(*row) if row else Limits()

    def set_limits(self, tenant: str, limits: Limits) -> None:
        with self.db.writing(durable=True) as conn:
            conn.execute(self.sql.drop_limits, (tenant,))
            if limits != Limits():
                conn.execute(self.sql.set_limits, (tenant, *astuple(limits)))
            conn.execute(self.sql.drop_hold, (tenant,))
        self._limits.pop(tenant, None)
        self.engine.wake()

    def limited_tenants(self) -> list[str]:
        return [tenant for (tenant,) in self.read(self.sql.limited_tenants)]

    def limits(self, tenant: str, conn: Connection | None = None) -> Limits:
        until, known = self._limits.get(tenant, (0.0, self.default_limits))
        if time.monotonic() < until:
            return known
        own = self.own_limits(tenant) if conn is None else self._own_limits(conn, tenant)
        found = own.or_else(self.default_limits)
        if len(self._limits) >= _MOST_KNOWN:
            self._limits.clear()
        self._limits[tenant] = (time.monotonic() + _LIMITS_HOLD, found)
        return found

    # usage
    def usage(self, tenant: str) -> Usage:
        now = self.engine.now()
        with self.db.snapshot() as conn:
            kinds = conn.execute(self.sql.kinds, (tenant,)).fetchall()
            records, size, chunks = conn.execute(self.sql.usage, (tenant,)).fetchone()
            tokens, money = conn.execute(self.sql.spent, (tenant, day_of(now))).fetchone()
            (held,) = conn.execute(self.sql.hold, (tenant, now)).fetchone() or (None,)
            limits = self._own_limits(conn, tenant).or_else(self.default_limits)
        return Usage(
            tenant, len(kinds), int(records), int(size), int(chunks), int(tokens), float(money),
            limits, as_datetime(held),
        )  # fmt: skip

    def page(self, first: str, limit: int) -> list[TenantState]:
        now = self.engine.now()
        rows = self.read(self.sql.tenant_page, first, limit, day_of(now), now)
        return [self._state(*row) for row in rows]

    def _state(
        self, tenant: str, kinds: int, records: int, size: int, chunks: int, tokens: int,
        money: float, held: float | None, paused: bool, *own: int | None,
    ) -> TenantState:  # fmt: skip
        limits = Limits(*own)
        used = Usage(
            tenant, int(kinds), int(records), int(size), int(chunks), int(tokens), float(money),
            limits.or_else(self.default_limits), as_datetime(held),
        )  # fmt: skip
        return TenantState(used, limits, bool(paused))

    def records_in_all(self) -> int:
        (count,) = self.read_one(self.sql.records_in_all)
        return int(count)

    def fold_usage(self, limit: int = 10_000) -> int:
        """Sum up the counts, in engines that log them change by change; returns how many rows were
        summed up."""
        return 0

    def counting_records(
        self, conn: Connection, records: Collection[int]
    ) -> AbstractContextManager[None]:
        """Context for a change of those records: it updates usage where no trigger does."""
        return nullcontext()

    def counting_chunks(
        self, conn: Connection, records: Collection[int]
    ) -> AbstractContextManager[None]:
        """Context for a change of those records' ledger entries, likewise."""
        return nullcontext()

    def count_new(self, conn: Connection, tenant: str, kind: str, records: int, size: int) -> None:
        """Count new records, where no trigger does."""

    def count_inserted(
        self, conn: Connection, tenant: str, kind: str, records: Sequence[RecordValues]
    ) -> None:
        """Count the new records among inserted rows: those that are not deleted."""
        held = [record for record in records if record.state != "deleted"]
        if held:
            self.count_new(conn, tenant, kind, len(held), sum(map(size_of, held)))

    # checks before a change
    def lock_tenant(self, conn: Connection, tenant: str) -> None:
        """Stop others from adding records of the tenant until the transaction ends, in engines with
        concurrent writers."""

    def check_kind(self, conn: Connection, tenant: str, kind: str) -> None:
        """Reject a new kind beyond the limit. A process remembers the kinds that it has seen."""
        if (tenant, kind) in self._kinds_there:
            return
        most = self.limits(tenant, conn).kinds
        if not most:
            return
        there = {name for (name,) in conn.execute(self.sql.kinds, (tenant,)).fetchall()}
        if kind in there:
            if len(self._kinds_there) >= _MOST_KNOWN:
                self._kinds_there.clear()
            self._kinds_there.add((tenant, kind))
        elif len(there) >= most:
            refusal = _too_much("kinds", tenant, len(there), most)
            QUOTAS.add(1, "kinds")
            raise QuotaExceeded(f"kind {kind!r}: {refusal}")

    def check_room(
        self, conn: Connection, tenant: str, drafts: Sequence[Draft], rows: Mapping[str, Row]
    ) -> None:
        """Reject records that would exceed a limit of records, bytes or chunks; `rows`: those that
        are stored already. A change that makes nothing larger is never rejected."""
        limits = self.limits(tenant, conn)
        if not (limits.records or limits.bytes or limits.chunks):
            return
        sizes: dict[str, int] = {}
        if limits.bytes or limits.chunks:
            stored = {row.record: row.id for row in rows.values() if row.record}
            found = conn.execute(self.sql.record_sizes, (self.engine.listed(stored),)).fetchall()
            sizes = {stored[record]: int(size) for record, size in found}
        room = _Room(tenant, limits, *self._used(conn, tenant))
        there = {row.id for row in rows.values() if row.record and row.state != "deleted"}
        refused: dict[int, tuple[str, str]] = {}
        for place, draft in enumerate(drafts):
            is_new, size = draft.id not in there, size_of(draft)
            if why := room.take(is_new, size - sizes.get(draft.id, 0)):
                refused[place] = why
            else:
                there.add(draft.id)
                sizes[draft.id] = size
        if refused:
            for name, _ in refused.values():
                QUOTAS.add(1, name)
            raise QuotaExceeded(next(iter(refused.values()))[1], refused=list(refused))

    def check_count(self, conn: Connection, tenant: str, ids: Iterable[str], kind: str) -> None:
        """Reject ids if their new records would exceed a limit."""
        limits = self.limits(tenant, conn)
        if not limits.records and not limits.chunks:
            return
        wanted = set(ids)
        there = conn.execute(
            self.sql.digests, (tenant, kind, self.engine.listed(wanted))
        ).fetchall()
        new = len(wanted) - sum(state != "deleted" for _, state, *_ in there)
        room = _Room(tenant, limits, *self._used(conn, tenant))
        for _ in range(new):
            if why := room.take(True, 0):
                QUOTAS.add(1, why[0])
                raise QuotaExceeded(why[1])

    def _used(self, conn: Connection, tenant: str) -> tuple[int, int, int]:
        self.lock_tenant(conn, tenant)
        records, size, chunks = conn.execute(self.sql.usage, (tenant,)).fetchone()
        return int(records), int(size), int(chunks)

    # daily quotas
    def spent_today(self, tenant: str) -> tuple[int, float]:
        tokens, money = self.read_one(self.sql.spent, tenant, day_of(self.engine.now()))
        return int(tokens), float(money)

    def hold(self, tenant: str, until: float) -> None:
        with self.db.writing(durable=False) as conn:
            conn.execute(self.sql.drop_hold, (tenant,))
            conn.execute(self.sql.add_hold, (tenant, until))

    def hold_spent(self, tenants: Iterable[str]) -> set[str]:
        now = self.engine.now()
        spent = set()
        for tenant in tenants:
            limits = self.limits(tenant)
            if not (limits.tokens or limits.money):
                continue
            tokens, money = self.spent_today(tenant)
            if _reached(tokens, limits.tokens) or _reached(money, limits.money):
                self.hold(tenant, next_day(now))
                spent.add(tenant)
        return spent


class _Room:
    """The room that a tenant's limits leave."""

    def __init__(self, tenant: str, limits: Limits, records: int, size: int, chunks: int) -> None:
        self._tenant = tenant
        self._limits = limits
        self._records = records
        self._bytes = size
        self._chunks = chunks

    def take(self, is_new: bool, more: int) -> tuple[str, str] | None:
        """Take room for a record that grows by `more` bytes; returns None, or the name of the quota
        that is exceeded and an error message."""
        limits, tenant = self._limits, self._tenant
        if is_new and limits.records and self._records >= limits.records:
            return "records", _too_much("records", tenant, self._records, limits.records)
        if more > 0 and limits.bytes and self._bytes + more > limits.bytes:
            asked = f"and {more:,} more are requested"
            return "bytes", _too_much("bytes", tenant, self._bytes, limits.bytes, asked)
        if (is_new or more > 0) and limits.chunks and self._chunks >= limits.chunks:
            return "chunks", _too_much("chunks", tenant, self._chunks, limits.chunks)
        self._records += is_new
        self._bytes += more
        return None


def _too_much(name: str, tenant: str, used: int, most: int, asked: str = "") -> str:
    more = f", {asked}" if asked else ""
    return (
        f"the quota of {name} is used up: tenant {tenant!r} has {used:,} of {most:,} "
        f"(tenant_{name}){more}: {_ADVICE[name]}, or raise the quota"
    )


def _reached(used: float, most: float | None) -> bool:
    return bool(most) and used >= (most or 0)


def size_of(record: Draft | RecordValues) -> int:
    """The size of a record in bytes, as the store counts it."""
    metadata = record.metadata if record.metadata != "{}" else None
    parts = (record.title, metadata, record.data, record.text)
    return sum(len(p) if p.isascii() else len(p.encode()) for p in parts if p)
