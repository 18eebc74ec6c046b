"""Embedding versions, verification of the index, and migrations to another model.

Migrations concern the whole store, so they require a platform admin.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Literal

from pydantic import ConfigDict, Field
from starlette.responses import Response

from evervec.model.findings import Tally, VerifyReport
from evervec.model.records import Version
from evervec.model.reports import MigrationStatus
from evervec.model.verification import repair_target
from evervec.server.answers import Given, Items, Shown, answer, shows
from evervec.server.keys import Role
from evervec.server.problems import Problem
from evervec.server.router import Routes
from evervec.server.view import AdminView, ReaderView, View
from evervec.versions.migration import Migration

router = Routes("versions")


@shows(Version)
class VersionOut(Shown):
    """The vectors of one kind by one model; for a tenant, only those of its records."""


class VersionsOut(Shown):
    """The embedding versions of each kind."""

    versions: list[VersionOut]


class VerifyIn(Given):
    """Whether to repair faults, and whether to skip the comparison with the records' texts."""

    repair: bool = False
    quick: bool = False
    kind: str | None = Field(default=None, description="check only this kind")
    faults: Items[str] | None = Field(
        default=None, max_length=10, description="repair only records with one of these faults"
    )


@shows(Tally)
class TallyOut(Shown):
    """Faults of one tenant's records of one kind."""


@shows(VerifyReport)
class VerifyOut(Shown):
    """Differences between the index and the records."""


@router.on("GET /v1/versions", "List embedding versions", VersionsOut)
async def list_versions(view: ReaderView) -> Response:
    """Which model made which vectors, for the tenant's kinds and with counts of its records."""
    found = await view.run(view.ev.versions, all_tenants=view.everyone)
    return await view.listed(VersionsOut, "versions", found)


@router.on("POST /v1/verify", "Compare the index with the records", VerifyOut, 415)
async def verify(view: ReaderView, body: VerifyIn | None = None) -> Response:
    """`repair` (for writers) removes orphaned points and enqueues missing or stale records.
    `waiting` records were not compared, because they have a job; `unchecked` lists what else was
    not checked."""
    asked = body or VerifyIn()
    if asked.repair:
        view.caller.require(Role.WRITER)
    what = repair_target(asked.kind, asked.faults)
    async with view.audited("index.repair", what) if asked.repair else nullcontext():
        report = await view.run(
            view.ev.verify, asked.repair, quick=asked.quick, all_tenants=view.everyone,
            kind=asked.kind, faults=asked.faults,
        )  # fmt: skip
    return await view.run(answer, VerifyOut, report)


class MigrationIn(Given):
    """The model to migrate to."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"embedder": "openai:text-embedding-3-large"}]}
    )

    embedder: str = Field(min_length=1, description="its name, as for `evervec.open`")
    version: str | None = Field(None, description="name of the new version")
    kind: str | None = Field(None, description="only this kind")
    switch: bool = Field(False, description="switch automatically when it is complete and verified")


class StepIn(Given):
    """Options of a step."""

    force: bool = Field(False, description="switch even if the new version is incomplete")


@shows(MigrationStatus)
class MigrationOut(Shown):
    """The progress of a migration."""


@router.on(
    "POST /v1/migrations", "Start a migration to another model", MigrationOut, 409, 415, status=202
)
async def begin_migration(view: AdminView, body: MigrationIn) -> Response:
    """Workers build the new version beside the old one, while searches and writes continue. The
    same request again continues the migration."""

    def do() -> MigrationStatus:
        return view.ev.migrate(
            body.embedder, version=body.version, kind=body.kind, switch=body.switch
        ).status()

    async with view.audited("migration.begin", body.embedder):
        begun = await view.run(do)
    return answer(MigrationOut, begun, 202)


@router.on(
    "GET /v1/migrations", "Get the migration that is in progress or can still be rolled back",
    MigrationOut, 404,
)  # fmt: skip
async def get_migration(view: AdminView) -> Response:
    return answer(MigrationOut, await view.run(lambda: _current(view).status()))


@router.on(
    "POST /v1/migrations/{step}", "Switch, roll back, retire or cancel", MigrationOut, 404, 409, 415
)
async def step_migration(
    view: AdminView,
    step: Literal["switch", "rollback", "retire", "cancel"],
    body: StepIn | None = None,
) -> Response:
    """`switch` serves the new version, once it is complete (or with `force`); `rollback` serves the
    old one again; `retire` drops the old version, `cancel` the new one."""
    options = {"force": True} if step == "switch" and body and body.force else {}

    def do() -> MigrationStatus:
        migration = _current(view)
        getattr(migration, step)(**options)
        return migration.status()

    async with view.audited(f"migration.{step}"):
        taken = await view.run(do)
    return answer(MigrationOut, taken)


def _current(view: View) -> Migration:
    migration = view.ev.migration()
    if migration is None:
        raise Problem(404, "no migration in progress: start one with POST /v1/migrations")
    return migration
