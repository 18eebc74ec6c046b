"""Filtered lists of records and jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evervec.model.filters import Conditions
from evervec.model.jobs import Job, Status
from evervec.model.records import Record
from evervec.stores.sql import looking
from evervec.stores.sql.looking import JOB_ORDER, make_record
from evervec.stores.sqlite.engine import Engine, listed
from evervec.stores.sqlite.filters import filter_sql


class Looking(Engine, looking.Looking):
    """The part of the store that reads records, jobs and counts."""

    def keyed(self, keys: Sequence[tuple[str, str, str]]) -> Sequence[Any]:
        return (listed(keys),)

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
        clauses, values = ["r.tenant = ? and r.state = 'live'"], [tenant]
        if kind is not None:
            clauses.append("r.kind = ?")
            values.append(kind)
        if after is not None:
            clauses.append("(r.kind, r.id) > (?, ?)")
            values += after
        conditions, needed = filter_sql(filter)
        inner = f"{self.select_records} where {' and '.join(clauses)}{conditions}"
        query = f"select * from ({inner}) where ? is null or embedded = ? order by kind, id limit ?"
        with self.db.reading() as conn:
            rows = conn.execute(query, [*values, *needed, embedded, embedded, limit]).fetchall()
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
        # with an id, start from the record; otherwise from the jobs of that status
        owner = "r.tenant" if id is not None else "j.tenant"
        wanted = {owner: tenant, "r.kind": kind, "r.id": id}
        clauses = [f"{column} = ?" for column, value in wanted.items() if value is not None]
        values: list[Any] = [value for value in wanted.values() if value is not None]
        if status is not None:  # a literal: partial indexes do not match a parameter
            clauses.append(f"j.status = '{Status(status).value}'")
        if after is not None:
            clauses.append("j.job_id > ?")
            values.append(after)
        columns = self.select_jobs
        if id is not None:
            columns = columns.replace("cross join", "join")
        order = JOB_ORDER[status if after is None else None]
        if status is Status.PENDING and after is None:
            clauses.append("j.later in (0, 1)")  # to read them in index order
            order = f"j.later, {order}"
        query = f"{columns} where {' and '.join(clauses) or '1'} order by {order} limit ?"
        with self.db.reading() as conn:
            return self.jobs_of(conn, conn.execute(query, [*values, limit]).fetchall())
