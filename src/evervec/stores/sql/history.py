"""What a store did over time: counts in buckets of several lengths."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from evervec.model.history import EVERY_TENANT, MOST_KINDS, OTHER_KINDS, STEPS, Counts
from evervec.stores.base.history import Bucket, BucketKey
from evervec.stores.sql.engine import Connection, Engine, Part, Values
from evervec.stores.sql.retries import retried

_LONGEST = max(STEPS)
_LANE_OF_DEPTHS = 0
_MOST_REMEMBERED = 10_000
"""tenants and hours whose kinds are remembered"""


class History(Part):
    """The part of the store that keeps counts over time."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._named: dict[tuple[str, int], set[str]] = {}
        """the kinds that a tenant's longest bucket has by name, as far as this process knows"""

    @retried
    def add(self, counted: Mapping[BucketKey, Counts], lane: int = 0) -> None:
        rows: defaultdict[Values, Counts] = defaultdict(Counts)
        with self.db.writing(durable=False) as conn:
            for (minute, owner, kind), counts in counted.items():
                for tenant in (owner, EVERY_TENANT):
                    name = self._name(conn, tenant, kind, minute - minute % _LONGEST)
                    for step in STEPS:
                        rows[tenant, step, minute - minute % step, name, lane].add(counts)
            # in the order of their keys, so that two writers cannot deadlock
            written = [(*key, *rows[key].row()) for key in sorted(rows)]
            self.engine.each(conn, self.sql.add_buckets, written)

    def _name(self, conn: Connection, tenant: str, kind: str, began: int) -> str:
        """The name under which a kind is counted: its own, if it is one of a tenant's first kinds
        in this longest bucket."""
        known = self._named.get((tenant, began))
        if known is None or (kind not in known and len(known) < MOST_KINDS):
            wanted = (tenant, _LONGEST, began)
            found = {name for (name,) in conn.execute(self.sql.bucket_kinds, wanted).fetchall()}
            known = (known or set()) | found - {OTHER_KINDS}
            if len(known) < MOST_KINDS:
                known.add(kind)
            if len(self._named) >= _MOST_REMEMBERED:
                self._named.clear()
            self._named[tenant, began] = known
        return kind if kind in known else OTHER_KINDS

    @retried
    def sample_depths(self, most: int) -> None:
        found = [(int(depth), tenant) for tenant, depth in self.read(self.sql.queue_depths)]
        deepest = sorted(found, reverse=True)[:most]
        deepest.append((sum(depth for depth, _ in found), EVERY_TENANT))
        now = int(self.engine.now())
        rows = sorted(
            (tenant, step, now - now % step, OTHER_KINDS, _LANE_OF_DEPTHS, depth)
            for depth, tenant in deepest
            for step in STEPS
        )
        with self.db.writing(durable=False) as conn:
            self.engine.each(conn, self.sql.note_depths, rows)

    def buckets(
        self, tenant: str | None, kind: str | None, step: int, since: int, until: int
    ) -> list[Bucket]:
        owner = EVERY_TENANT if tenant is None else tenant
        return [
            Bucket(began, Counts.of_row(counts), None if depth is None else int(depth))
            for began, *counts, depth in self.read(
                self.sql.buckets, owner, step, since, until, kind
            )
        ]

    def purge(self) -> int:
        now = int(self.engine.now())
        return sum(
            self.write(self.sql.purge_buckets, step, now - kept) for step, kept in STEPS.items()
        )
