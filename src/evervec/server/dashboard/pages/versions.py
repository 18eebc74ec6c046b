"""Embedding versions, and a change of the model: watch it, compare, switch, go back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Literal

from evervec.facade import Evervec
from evervec.model.records import Version
from evervec.model.reports import MigrationStatus
from evervec.model.usage import OF_QUERIES
from evervec.server.dashboard.measures import Measured, Measures
from evervec.server.dashboard.page_routes import Form, Pages
from evervec.server.dashboard.renderer import Values
from evervec.server.dashboard.runs import Runs
from evervec.server.dashboard.tables import Table
from evervec.server.keys import Role
from evervec.server.problems import Problem
from evervec.server.view import AdminView, ReaderView, View
from evervec.stores.values import Collection
from evervec.versions.migration import Migration

router = Pages()

_SWITCH_SECONDS = 2.0
"""for which a switch waits until the new version has the last changes"""
_LEAST_SPAN = 4.0
"""seconds between two counts from which a rate is calculated"""
_RUNS = ("begin", "estimate", "comparison")
Step = Literal["switch", "rollback", "retire", "cancel"]
_DONE = {
    "switch": "{} serves all searches now.",
    "rollback": "Searches use the old version again; {} is kept up to date.",
    "retire": "The old version is retired: its vectors are dropped. {} stays.",
    "cancel": "{} is given up: its vectors are dropped.",
}


@dataclass(frozen=True, slots=True)
class Counted:
    """What was counted of the versions."""

    versions: list[Version]
    status: MigrationStatus | None = None
    """of the migration, for admins"""
    tokens: int = 0
    money: float = 0.0
    """spent on the new model since the migration began"""


@dataclass(frozen=True, slots=True)
class Row:
    """A version in the list; numbers are None until they are counted."""

    kind: str
    name: str
    model: str
    provider: str
    dimensions: int
    state: str
    chunker: str
    items: int | None
    of: int | None
    """records that the serving version of its kind has"""
    created_at: datetime | None
    last_sync_at: datetime | None


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the model that is under way or can be undone."""

    version: str
    old: str
    state: str
    kinds: list[str]
    status: MigrationStatus | None
    """None until it is counted"""
    rate: float | None
    """records a second"""
    seconds_left: float | None
    tokens: int
    money: float
    money_expected: float | None


@router.page("/ui/versions", "versions.html")
async def versions(view: ReaderView) -> Values:
    runs: Runs = view.request.app.state.runs
    everyone, is_admin = view.everyone, view.caller.role is Role.ADMIN
    collections = await view.run(_collections, view.ev, everyone)
    counts = await read_counts(view)
    rows = _rows(collections, counts)
    change = None
    if is_admin:
        migration = await view.run(view.ev.migration)
        if migration is not None:
            change = _change(migration, await view.run(view.ev.store.versions.collections), counts)
    return {
        "rows": rows,
        "table": Table("versions", rows),
        "counted_at": counts[-1].at if counts else None,
        "change": change,
        "runs": {name: runs.get(name) if is_admin else None for name in _RUNS},
        "kinds": sorted({c.kind for c in collections}),
        "price": view.ev.settings.price_per_million,
        "everyone": everyone,
        "tenant": view.request.query_params.get("tenant"),
        "own_tenant": view.tenant,
    }


async def read_counts(view: View) -> list[Measured[Counted]]:
    """What was counted of the versions that a caller sees, the latest last; empty until then."""
    measures: Measures = view.request.app.state.measures
    is_admin = view.caller.role is Role.ADMIN
    return await measures.read(_key(view), partial(_count, view.ev, view.everyone, is_admin))


def renew_counts(view: View) -> None:
    """Count again when somebody next looks."""
    measures: Measures = view.request.app.state.measures
    measures.renew(_key(view))


def _key(view: View) -> tuple[str, str | None, bool]:
    return ("versions", None if view.everyone else view.tenant, view.caller.role is Role.ADMIN)


def _collections(ev: Evervec, everyone: bool) -> Sequence[Collection]:
    versions = ev.store.versions
    return versions.collections() if everyone else versions.collections_of(ev.tenant)


def _count(ev: Evervec, everyone: bool, is_admin: bool) -> Counted:
    found = ev.versions(all_tenants=everyone)
    migration = ev.migration() if is_admin else None
    if migration is None:
        return Counted(found)
    new = [c.spec for c in ev.store.versions.collections() if c.spec]
    spec = next((spec for spec in new if spec.name == migration.version), None)
    began = [v.created_at for v in found if v.name == migration.version and v.created_at]
    spent = []
    if spec is not None and began:
        rows = ev.store.shared.spend(None, min(began).date().isoformat())
        model = spec.model or spec.provider
        spent = [row for row in rows if row.model == model and row.kind != OF_QUERIES]
    return Counted(
        found, migration.status(), sum(row.tokens for row in spent), sum(row.money for row in spent)
    )


def _rows(collections: Sequence[Collection], counts: Sequence[Measured[Counted]]) -> list[Row]:
    counted = {(v.kind, v.name): v for v in counts[-1].value.versions} if counts else {}
    serving = {c.kind: counted.get((c.kind, _name(c))) for c in collections if c.state == "serving"}
    rows = []
    for c in sorted(collections, key=lambda c: (c.kind, c.version)):
        known, main = counted.get((c.kind, _name(c))), serving.get(c.kind)
        spec = c.spec
        rows.append(
            Row(
                c.kind, _name(c), spec.model if spec else "", spec.provider if spec else "",
                spec.dimensions if spec else 0, c.state, c.chunker, known.items if known else None,
                main.items if main else None, known.created_at if known else None,
                known.last_sync_at if known else None,
            )
        )  # fmt: skip
    return rows


def _name(c: Collection) -> str:
    return c.spec.name if c.spec else ""


def _change(
    migration: Migration, collections: Sequence[Collection], counts: Sequence[Measured[Counted]]
) -> Change:
    new = [c for c in collections if _name(c) == migration.version and c.state != "retired"]
    kinds = sorted(c.kind for c in new)
    states = {c.state for c in new}
    others = {
        _name(c) for c in collections if c not in new and c.kind in kinds and c.state != "retired"
    }
    past = [
        (each.clock, each.value)
        for each in counts
        if each.value.status is not None and each.value.status.version == migration.version
    ]
    last = past[-1][1] if past else None
    status = last.status if last else None
    rate = _rate([(at, value.status.current) for at, value in past if value.status])
    left = max(0, status.records - status.current) if status else 0
    state = "building" if "building" in states else "standby" if "standby" in states else "serving"
    money = last.money if last else 0.0
    share = status.current / status.records if status and status.records else 0.0
    return Change(
        migration.version, ", ".join(sorted(others)), state, kinds, status, rate,
        left / rate if rate and left else None, last.tokens if last else 0, money,
        money / share if money and share and state == "building" else None,
    )  # fmt: skip


def _rate(past: Sequence[tuple[float, int]]) -> float | None:
    """Records a second since the first of some counts; None while that is not known."""
    if len(past) < 2 or past[-1][0] - past[0][0] < _LEAST_SPAN:
        return None
    return max(0.0, (past[-1][1] - past[0][1]) / (past[-1][0] - past[0][0]))


# actions
@router.action("/ui/versions/begin")
async def begin(view: AdminView, form: Form) -> str:
    """Begin a migration, or estimate its cost. Opening a model may take long: it is done in the
    background."""
    runs: Runs = view.request.app.state.runs
    embedder = form.need("embedder", "model")
    kind = form.get("kind") or None
    if form.get("do") == "estimate":
        estimate = partial(view.ev.estimate, embedder, kind=kind, all_tenants=True)
        run = await runs.start(view, "estimate", embedder, estimate)
        return "" if run.ended_at else "The cost is being estimated."
    version, switch = form.get("version") or None, bool(form.get("switch"))

    def do() -> str:
        return view.ev.migrate(embedder, version=version, kind=kind, switch=switch).version

    run = await runs.start(view, "begin", embedder, do, "migration.begin")
    runs.forget("comparison")
    renew_counts(view)
    if run.ended_at is None:
        return "The model is being opened."
    return f"{run.value} is built beside the serving version; searches go on as before."


@router.action("/ui/versions/compare")
async def compare(view: AdminView, form: Form) -> str:
    """Compare the results of the two versions, in the background: it verifies the new one too."""
    migration = await _current(view, form)
    runs: Runs = view.request.app.state.runs
    run = await runs.start(view, "comparison", migration.version, migration.compare)
    return "" if run.ended_at else "The versions are being compared."


@router.action("/ui/versions/{step}")
async def change_serving(view: AdminView, step: Step, form: Form) -> str:
    migration = await _current(view, form)
    form.confirm(migration.version)
    steps: dict[str, Callable[[], None]] = {
        "switch": partial(migration.switch, force=bool(form.get("force")), timeout=_SWITCH_SECONDS),
        "rollback": migration.rollback,
        "retire": migration.retire,
        "cancel": migration.cancel,
    }
    async with view.audited(f"migration.{step}", migration.version):
        await view.run(steps[step])
    renew_counts(view)
    return _DONE[step].format(migration.version)


async def _current(view: View, form: Form) -> Migration:
    """The migration that the form was made for."""
    migration = await view.run(view.ev.migration)
    if migration is None or migration.version != form.get("version"):
        raise Problem(409, "nothing was done: this migration is over; look at the page again")
    return migration
