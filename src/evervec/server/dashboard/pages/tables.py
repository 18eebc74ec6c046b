"""Tables of the application that are attached: their state, and what was given for each.

A tenant sees the kinds of the tables whose rows can be its records. Numbers of rows, and examples of
rows that cannot be indexed, may be those of other tenants: only platform admins see them, and the
names of tables.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Query

from evervec.facade import Evervec
from evervec.model.records import Version
from evervec.records.drafts import check_given
from evervec.server.dashboard.page_routes import Done, Form, Pages
from evervec.server.dashboard.pages.versions import read_counts, renew_counts
from evervec.server.dashboard.paths import link
from evervec.server.dashboard.renderer import Values
from evervec.server.dashboard.tables import Table
from evervec.server.keys import Role
from evervec.server.problems import Problem
from evervec.server.view import AdminView, ReaderView, View
from evervec.tables.base import AttachedTable, Attachment

router = Pages()

_PATIENCE = 5.0
"""seconds for which a page waits for a detachment, which then goes on beside the requests"""
_HIDDEN = {
    "broken": "changes of this table are missed: the operator of the service has to attach it again",
    "incomplete": "some rows of this table cannot be indexed",
}
_MEANINGS = {
    "attached": "every change is followed",
    "backfilling": "changes are followed; rows that existed before are being enqueued",
    "incomplete": "changes are followed; some rows cannot be indexed",
    "broken": "it is no longer as it was attached, so changes are missed",
}
_TONES = {"attached": "good", "backfilling": "building", "incomplete": "warn", "broken": "bad"}


@dataclass(frozen=True, slots=True)
class ShownTable:
    """An attached table as a caller may see it."""

    table: str
    """its kind, for one who may not see its name"""
    kind: str
    state: str
    trouble: str | None
    rows: int | None
    embedded: int | None
    """records with vectors; None until they are counted"""
    given: dict[str, str]
    """what was given to `attach`"""


@router.page("/ui/tables", "tables.html")
async def tables(view: ReaderView) -> Values:
    everything = view.everyone
    counts = await read_counts(view)
    embedded = _embedded(counts[-1].value.versions) if counts else None
    tenant = None if everything else view.tenant
    found = await view.run(_shown, view.ev, tenant, view.caller.role, embedded)
    only = view.tenant if view.caller.role is Role.ADMIN and not everything else None
    return {
        "tables": Table("tables", found),
        "meanings": _MEANINGS,
        "tones": _TONES,
        "tenant": tenant,
        "one_tenant": only,
        "broken": [each.kind for each in found if each.state == "broken"],
    }


@router.page("/ui/tables/again", "table_again.html")
async def plan(
    view: AdminView,
    kind: Annotated[str, Query(min_length=1)],
    to: Annotated[str | None, Query(max_length=500)] = None,
) -> Values:
    """A dry run: what attaching the table of a kind again would do."""
    to = (to or "").strip() or None
    check_given(kind=kind, to=to)
    await _check_one(view, kind)
    (planned,) = await view.run(view.service.ev.attach_again, kind, to=to, dry_run=True)
    return {"planned": planned, "given": given_of(planned), "to": to or ""}


@router.action("/ui/tables/again")
async def attach_again(view: AdminView, form: Form) -> Done:
    kind, to = form.need("kind", "the kind"), form.get("to") or None
    check_given(kind=kind, to=to)
    await _check_one(view, kind)
    async with view.audited("table.attach", f"{kind}, as {to}" if to else kind):
        await view.run(view.service.ev.attach_again, kind, to=to)
    renew_counts(view)
    return Done(f"{kind} is attached again: workers compare all of its rows.", _home(view))


@router.action("/ui/tables/detach")
async def detach(view: AdminView, form: Form) -> Done:
    """Stop following a table. Deleting many records takes longer than a request may."""
    kind = form.need("kind", "the kind")
    form.confirm(kind)
    keep = bool(form.get("keep"))
    ev = view.service.ev
    await _check_one(view, kind)
    async with view.audited("table.detach", f"{kind}, records are kept" if keep else kind):
        work = asyncio.ensure_future(view.service.run_job(ev.detach, kind, keep_records=keep))
        view.service.outlive(work)
        await asyncio.wait([work], timeout=_PATIENCE)
        deleted = work.result() if work.done() else None
    renew_counts(view)
    notice = f"{kind} is detached; its records are being deleted, which takes a while."
    if deleted is not None:
        notice = f"{kind} is detached, and {deleted:,} records are deleted."
    return Done(f"{kind} is detached; its records are kept." if keep else notice, _home(view))


async def _check_one(view: View, kind: str) -> None:
    """Refuse a name that is no kind of an attached table, or also the name of a table that is
    attached as another kind: the library would take it for both."""
    found = await view.run(view.service.ev.attachments.attachments_of, kind)
    if others := ", ".join(each.kind for each in found if each.kind != kind):
        raise Problem(
            409,
            f"{kind!r} is also a table that is attached as {others}: detach that first, or use the "
            "command line for both",
        )


def _home(view: View) -> str:
    return link(view.request.scope, "tables")


def _embedded(versions: Iterable[Version]) -> Counter[str]:
    """Records with vectors, by kind."""
    found: Counter[str] = Counter()
    for version in versions:
        found[version.kind] += version.items if version.state == "serving" else 0
    return found


def _shown(
    ev: Evervec, tenant: str | None, role: Role, embedded: Counter[str] | None
) -> list[ShownTable]:
    is_admin = role is Role.ADMIN
    own = set() if tenant is None else set(ev.store.versions.kinds(tenant))
    return [
        ShownTable(
            each.table if is_admin else each.kind, each.kind, each.state,
            _trouble(each, is_admin=is_admin), each.rows if is_admin else None,
            None if embedded is None else embedded[each.kind],
            given_of(each.attachment) if is_admin else {},
        )
        for each in ev.attachments.tables(embedded or {})
        if tenant is None or _concerns(each.attachment, tenant, own, is_admin=is_admin)
    ]  # fmt: skip


def _concerns(given: Attachment, tenant: str, kinds: Container[str], *, is_admin: bool) -> bool:
    """Whether the rows of a table can be records of a tenant; for the tenant itself, whether it has
    records of the kind."""
    if given.tenant is None:
        return given.owner == tenant
    return is_admin or given.kind in kinds


def _trouble(table: AttachedTable, *, is_admin: bool) -> str | None:
    return table.trouble if is_admin else _HIDDEN.get(table.state)


def given_of(given: Attachment) -> dict[str, str]:
    """What was given for a table, by the names of the arguments of `attach`."""
    found = {
        "text": given.template or ", ".join(given.text),
        "id": ", ".join(given.key),
        "title": given.title,
        "metadata": ", ".join(given.metadata),
        "weight": given.weight,
        "updated_at": given.updated_at,
        "tenant": given.tenant or f"all rows belong to {given.owner}",
    }
    return {name: value for name, value in found.items() if value}
