"""Filtered lists of records and jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from evervec.model.filters import Conditions
from evervec.model.jobs import Job, Status
from evervec.model.records import Record
from evervec.stores.sql.batches import columns
from evervec.stores.sql.filters import Filter
from evervec.stores.sql.looking import JOB_ORDER, Looking, make_record


class Listing(Looking):
    """The part of the store that lists records and jobs, for engines with numbered parameters."""

    filter: type[Filter]
    """how the engine reads JSON"""
    job_order: ClassVar[Mapping[Status | None, str]] = JOB_ORDER
    of_status: ClassVar[Mapping[Status | None, str]] = {}
    """a redundant condition per status, so that an index without the status can be used"""

    def select_of(self, status: Status | None) -> str:
        """`select_jobs` for jobs of a status."""
        return self.select_jobs

    def keyed(self, keys: Sequence[tuple[str, str, str]]) -> Sequence[Any]:
        return columns(keys)

    def records(
        self,
        tenant: str,
        *,
        kind: str | None = None,
        embedded: bool | None = None,
        filter: Conditions = (),
        after: tuple[str, str] | None = None,
        limit: int = 100,
    ) -> list[Record]:
        wanted = [tenant, kind, *(after or (None, None)), embedded, limit]
        given = self.filter(filter, len(wanted))
        inner = f"""{self.select_records} where r.tenant = $1 and r.state = 'live'
            and ($2::text is null or r.kind = $2)
            and ($3::text is null or (r.kind, r.id) > ($3, $4::text)){given.clause}"""
        query = f"""select * from ({inner}) as f where $5::boolean is null or embedded = $5
            order by kind, id limit $6"""
        with self.db.reading() as conn:
            rows = conn.execute(query, [*wanted, *given.values]).fetchall()
        return [make_record(row) for row in rows]

    def jobs(
        self,
        tenant: str | None,
        *,
        status: Status | None = None,
        kind: str | None = None,
        id: str | None = None,
        after: int | None = None,
        limit: int = 100,
    ) -> list[Job]:
        query = f"""{self.select_of(status)} where ($1::text is null or r.tenant = $1)
            and ($2::text is null or r.kind = $2) and ($3::text is null or r.id = $3)
            and ($4::text is null or j.status = $4){self.of_status.get(status, "")}
            and ($6::bigint is null or j.job_id > $6)
            order by {self.job_order[status if after is None else None]} limit $5"""
        wanted = (tenant, kind, id, status and Status(status).value, limit, after)
        with self.db.reading() as conn:
            return self.jobs_of(conn, conn.execute(query, wanted).fetchall())
