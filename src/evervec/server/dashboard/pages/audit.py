"""The audit log: who did what, when, from where, with which outcome. For platform admins."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from evervec.records.drafts import check_given
from evervec.server.audit import Audit, Entry
from evervec.server.dashboard.page_routes import Pages
from evervec.server.dashboard.paths import link
from evervec.server.dashboard.renderer import Values
from evervec.server.dashboard.tables import Table
from evervec.server.view import AdminView, View
from evervec.stores.service_values import AuditChoice

router = Pages()

_SEARCHED = 50_000
"""entries that one page looks through, so that a rare filter does not read the whole log"""
ACTIONS = (
    "failures.dismiss", "index.cancel", "index.repair", "index.verify", "job.cancel",
    "job.priority", "job.retry", "jobs.cancel", "jobs.priority", "jobs.retry", "key.create",
    "key.revoke", "key.rotate", "kind.rescore", "migration.begin", "migration.cancel",
    "migration.retire", "migration.rollback", "migration.switch", "provider.probe", "queue.pause",
    "queue.purge", "queue.recover-stuck", "queue.resume", "queue.retry-failed", "record.delete",
    "record.delete_where", "record.enqueue", "records.import", "session.begin", "session.end",
    "table.attach", "table.detach", "tenant.limits", "token.create", "vectors.import",
    "worker.pause", "worker.resume",
)  # fmt: skip
"""suggested by the filter"""


@router.page("/ui/audit", "audit.html")
async def audit(
    view: AdminView,
    tenant: Annotated[str, Query(max_length=300)] = "",
    action: Annotated[str, Query(max_length=100)] = "",
    key: Annotated[str, Query(max_length=100)] = "",
    before: Annotated[int | None, Query(ge=0, lt=1 << 62)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Values:
    """Entries, the newest first. A filter searches a part of the log at a time."""
    check_given(tenant=tenant or None, action=action or None, key=key or None)
    chosen = AuditChoice(tenant or None, action or None, key.removeprefix("ev_") or None, before)
    found, rest = await view.run(_search, view, chosen, limit)
    filters = {"tenant": tenant, "action": action, "key": key}
    more = link(view.request.scope, "audit", **filters, before=rest) if rest is not None else None
    return {
        "entries": Table("audit", found, more=more),
        "filters": filters,
        "filtered": any(filters.values()),
        "full": len(found) == limit,
        "searched": _SEARCHED,
        "before": before,
        "actions": ACTIONS,
    }


def _search(view: View, chosen: AuditChoice, limit: int) -> tuple[list[Entry], int | None]:
    """The entries, and where to go on; None: there are no more."""
    log = Audit(view.service.ev.store)
    start = chosen.before
    if start is None:
        newest = log.list(AuditChoice(), 1)
        if not newest:
            return [], None
        start = newest[0].entry + 1
    least = max(0, start - _SEARCHED)
    found = log.list(chosen._replace(before=start, least=least), limit)
    if len(found) == limit:
        return found, found[-1].entry
    return found, least or None
