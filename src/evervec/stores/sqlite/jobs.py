"""Lists of jobs, read in the order of SQLite's partial indexes."""

from __future__ import annotations

from evervec.model.jobs import Status
from evervec.stores.sql import jobs
from evervec.stores.sql.jobs import JobList


class Jobs(jobs.Jobs):
    def job_list(self, status: Status | None, id: str | None, *, in_order: bool) -> JobList:
        """With an id, start from the record; otherwise from the jobs of that status."""
        listed = super().job_list(status, id, in_order=in_order)
        if id is not None:
            listed = listed._replace(select=listed.select.replace("cross join", "join"))
        else:
            listed = listed._replace(owner="j.tenant")
        if status is Status.PENDING and in_order:  # to read them in index order
            order, conditions = f"j.later, {listed.order}", ("j.later in (0, 1)",)
            listed = listed._replace(order=order, conditions=conditions)
        return listed
