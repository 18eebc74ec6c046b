"""Verify: does the index hold exactly the latest version of every record?

A run takes longer than a request may, so it runs beside the requests (`server.verification`).
"""

from __future__ import annotations

from evervec.errors import InvalidArgument
from evervec.model.basics import as_datetime
from evervec.model.findings import FAULTS
from evervec.model.verification import VerifyRun, repair_target
from evervec.records.drafts import check_name
from evervec.server.dashboard.page_routes import Form, Pages
from evervec.server.dashboard.renderer import Values
from evervec.server.dashboard.tables import Table
from evervec.server.keys import Role
from evervec.server.problems import Problem
from evervec.server.view import ReaderView, View, WriterView

router = Pages()

MEANINGS = {
    "missing": "records without vectors, or with some missing",
    "stale": "records whose vectors are of an older text, or were altered",
    "orphaned": "vectors that belong to no record, or to a deleted one",
    "doubled": "records with the same vector twice",
    "misplaced": "vectors of a version that is not in use",
}
CONFIRM_REPAIR = "repair"


@router.page("/ui/verify", "verify.html")
async def verify(view: ReaderView) -> Values:
    found = await view.run(view.service.verifications.read, _scope(view))
    run, result = found.run, found.result
    error = None
    if run is not None:
        error = run.error if view.caller.role is Role.ADMIN else run.tenant_error
    return {
        "tenant": None if view.everyone else view.tenant,
        "one_tenant": view.tenant if view.caller.role is Role.ADMIN and not view.everyone else None,
        "run": run,
        "error": error,
        "active": found.active,
        "interrupted": found.interrupted,
        "rate": run.rate(found.now) if run else None,
        "left": run.seconds_left(found.now) if run else None,
        "result": result,
        "several": await view.run(_has_several_versions, view),
        "wrong": result is not None and result.wrong,
        "rows": Table("verify", result.kinds if result else ()),
        "faults": FAULTS,
        "meanings": MEANINGS,
        "when": as_datetime,
        "what": repair_target(run.kind, run.faults) if run else "",
    }


def _has_several_versions(view: View) -> bool:
    """Whether a kind has more than one: its records are checked for each."""
    versions = view.ev.store.versions
    found = versions.collections() if view.everyone else versions.collections_of(view.tenant)
    kinds = [c.kind for c in found if c.state != "retired"]
    return len(kinds) > len(set(kinds))


@router.action("/ui/verify/run")
async def start(view: WriterView, form: Form) -> str:
    """Start a verification; `repair` also repairs everything that is wrong."""
    repair = bool(form.get("repair"))
    if repair:
        form.confirm(CONFIRM_REPAIR)
    await _start(view, _wanted(view, repair=repair, quick=bool(form.get("quick"))))
    return "The verification has started. You can leave this page."


@router.action("/ui/verify/repair")
async def repair_cell(view: WriterView, form: Form) -> str:
    """Repair the records of one kind with one fault."""
    kind, fault = form.get("kind"), form.get("fault")
    if kind:
        check_name("kind", kind)
    if fault not in FAULTS:
        raise InvalidArgument(f"fault: must be one of {', '.join(FAULTS)}")
    await _start(view, _wanted(view, repair=True, quick=False, kind=kind, faults=(fault,)))
    return f"The repair of {fault} records has started. You can leave this page."


@router.action("/ui/verify/cancel")
async def cancel(view: WriterView) -> str:
    async with view.audited("index.cancel"):
        running = await view.service.verifications.cancel(_scope(view), view.caller.agent)
        if not running:
            raise Problem(409, "no verification is running")
    return "The verification stops. What it has repaired stays repaired."


async def _start(view: View, wanted: VerifyRun) -> None:
    action = "index.repair" if wanted.repair else "index.verify"
    run = await view.service.verifications.start(_scope(view), wanted)
    await view.audit(action, repair_target(run.kind, run.faults), "started")


def _wanted(
    view: View, *, repair: bool, quick: bool, kind: str | None = None, faults: tuple[str, ...] = ()
) -> VerifyRun:
    key = view.caller.key
    return VerifyRun(
        "", view.caller.agent, key.id if key else None, 0.0, 0.0, "waiting", quick, repair, kind,
        faults,
    )  # fmt: skip


def _scope(view: View) -> str | None:
    return None if view.everyone else view.tenant
