"""Groups of failures that are alike, and how often each failed over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evervec.model.basics import as_datetime, moment
from evervec.model.failures import MOST_OPEN, SPARK_SECONDS, SPARKS, FailureCounts, FailureGroup
from evervec.stores.base.failures import GroupKey
from evervec.stores.sql.engine import Connection, Part
from evervec.stores.sql.retries import retried

_MOST_GROUPS = 300
"""groups of one tenant"""


class Failures(Part):
    """The part of the store that keeps groups of failures."""

    @retried
    def add(self, counted: Mapping[GroupKey, FailureCounts]) -> None:
        # in the order of their keys, so that two writers cannot deadlock
        groups = [
            (
                tenant, fingerprint, f.first_seen, f.last_seen, f.failed, f.retried, f.job_id,
                f.kind, f.model, f.message, f.example,
            )
            for (tenant, fingerprint), f in sorted(counted.items(), key=lambda each: each[0][::-1])
        ]  # fmt: skip
        times = sorted(
            (fingerprint, tenant, began, count)
            for (tenant, fingerprint), f in counted.items()
            for began, count in f.times.items()
        )
        with self.db.writing(durable=False) as conn:
            self.engine.each(conn, self.sql.add_failures, groups)
            self.engine.each(conn, self.sql.add_failure_times, times)
            for tenant in sorted({tenant for tenant, _ in counted}):
                self._drop_surplus(conn, tenant)

    def _drop_surplus(self, conn: Connection, tenant: str) -> None:
        """A text that differs in every message would otherwise fill the table."""
        found = conn.execute(self.sql.surplus_failures, (tenant, _MOST_GROUPS)).fetchall()
        if found:
            dropped = (tenant, self.engine.listed(fingerprint for (fingerprint,) in found))
            conn.execute(self.sql.drop_failures, dropped)
            conn.execute(self.sql.drop_failure_times, dropped)

    def groups(
        self, tenant: str | None, *, kind: str | None, dismissed: bool, limit: int
    ) -> list[FailureGroup]:
        sql, asked = self.sql, (kind, dismissed, limit)
        last = int(self.engine.now()) // SPARK_SECONDS * SPARK_SECONDS
        first = last - (SPARKS - 1) * SPARK_SECONDS
        with self.db.snapshot() as conn:
            if tenant is None:
                rows = conn.execute(sql.latest_failures, asked).fetchall()
            else:
                rows = conn.execute(sql.failures, (tenant, *asked)).fetchall()
            wanted = self.engine.listed({fingerprint for fingerprint, *_ in rows})
            times = conn.execute(sql.failure_times, (wanted, first)).fetchall()
            return [self._group(conn, row, times, first) for row in rows]

    def _group(
        self, conn: Connection, row: Sequence[Any], times: Sequence[Sequence[Any]], first: int
    ) -> FailureGroup:
        (
            fingerprint, tenant, kind, model, message, example, job_id, first_seen, last_seen,
            failed, retried, dismissed_at,
        ) = row  # fmt: skip
        asked = (fingerprint, tenant, MOST_OPEN)
        (open_now,) = conn.execute(self.sql.count_alike, asked).fetchone()
        recent = [0] * SPARKS
        for alike, owner, began, count in times:
            place = (began - first) // SPARK_SECONDS
            if (alike, owner) == (fingerprint, tenant) and place < SPARKS:
                recent[place] += count
        return FailureGroup(
            fingerprint, tenant, kind, model, message, example, job_id, moment(first_seen),
            moment(last_seen), failed,
            retried, open_now, tuple(recent), as_datetime(dismissed_at),
        )  # fmt: skip

    def dismiss(self, tenant: str | None, fingerprint: str) -> int:
        return self.write(
            self.sql.dismiss_failures, self.engine.now(), fingerprint, tenant, durable=True
        )

    def purge(self, before: float) -> int:
        kept = int(self.engine.now()) - SPARKS * SPARK_SECONDS
        gone = self.write(self.sql.purge_failures, before)
        return gone + self.write(self.sql.purge_failure_times, kept)
