"""Liveness, readiness and metrics."""

from __future__ import annotations

from typing import Literal

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from evervec.server.access import ReaderView
from evervec.server.answers import Shown, answer, shows
from evervec.server.metrics import exposition
from evervec.server.readiness import State, summary
from evervec.server.router import Routes

router = Routes("health", APIRoute)  # probes may send any parameters


class AliveOut(Shown):
    """The process responds."""

    status: Literal["ok"]


@shows(State)
class PartOut(Shown):
    """The state of one part of the service."""


class ReadyOut(Shown):
    """The state of the service by part. Without index or provider, the service saves records and
    searches text, so it is degraded, not down. It is down when records cannot be saved, because of
    the store or the disk, or when one of its own workers does not work."""

    status: Literal["ready", "degraded", "down"]
    store: PartOut
    disk: PartOut
    index: PartOut
    provider: PartOut
    workers: PartOut


@router.get("/healthz", summary="Liveness check", responses={200: {"model": AliveOut}})
async def healthz() -> Response:
    """Public; it checks nothing."""
    return answer(AliveOut, {"status": "ok"})


@router.get(
    "/readyz",
    summary="Readiness check",
    responses={
        200: {"model": ReadyOut},
        503: {
            "model": ReadyOut,
            "description": "Store, disk or a worker in the service does not work.",
        },
    },
)
async def readyz(request: Request) -> Response:
    """Store, disk, index, provider and the service's workers, each with a reason. It is public, so
    the details are only in the service's log."""
    shown = summary(await request.app.state.readiness.parts())
    return answer(ReadyOut, shown, 503 if shown["status"] == "down" else 200)


@router.on(
    "GET /metrics", "Metrics for Prometheus", None, response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)  # fmt: skip
async def metrics(request: Request, view: ReaderView) -> Response:
    """Of the key's tenant; for a platform admin, of all tenants."""
    # an admin's request does not wait in a tenant's turn
    run = view.service.run if view.everyone else view.run
    body, media_type = await run(exposition, view, request.app.state.counts)
    return Response(body, media_type=media_type)
