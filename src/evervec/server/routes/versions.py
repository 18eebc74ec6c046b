"""Embedding versions, and verification of the index."""

from __future__ import annotations

from starlette.responses import Response

from evervec.model.records import Version
from evervec.model.reports import Tally, VerifyReport
from evervec.server.access import ReaderView, View
from evervec.server.answers import Given, Shown, answer, showing
from evervec.server.keys import Role
from evervec.server.router import Routes

router = Routes("versions")


@showing(Version)
class VersionOut(Shown):
    """The vectors of one kind by one model; for a tenant, only those of its records."""


class VersionsOut(Shown):
    """The embedding versions of each kind."""

    versions: list[VersionOut]


class VerifyIn(Given):
    """Whether to repair faults, and whether to skip the comparison with the records' texts."""

    repair: bool = False
    quick: bool = False


@showing(Tally)
class TallyOut(Shown):
    """Faults of one tenant's records of one kind."""


@showing(VerifyReport)
class VerifyOut(Shown):
    """Differences between the index and the records."""


@router.on("GET /v1/versions", "List embedding versions", VersionsOut)
async def versions(view: ReaderView) -> Response:
    """Which model made which vectors, for the tenant's kinds and with counts of its records."""
    found = await view.run(view.ev.versions, all_tenants=view.everyone)
    return answer(VersionsOut, {"versions": found})


@router.on("POST /v1/verify", "Compare the index with the records", VerifyOut, 415)
async def verify(view: ReaderView, body: VerifyIn | None = None) -> Response:
    """`repair` (for writers) removes orphaned points and enqueues missing or stale records.
    `waiting` records were not compared, because they have a job; `unchecked` lists what else was
    not checked."""
    asked = body or VerifyIn()
    if not asked.repair:
        return answer(VerifyOut, await view.run(_verify, view, asked))
    view.caller.require(Role.WRITER)
    async with view.audited("index.repair"):
        repaired = await view.run(_verify, view, asked)
    return answer(VerifyOut, repaired)


def _verify(view: View, asked: VerifyIn) -> VerifyReport:
    return view.ev.verify(repair=asked.repair, quick=asked.quick, all_tenants=view.everyone)
