"""Is it alive, is it ready, and what are its numbers."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from evervec.server.access import Reading
from evervec.server.answers import answer
from evervec.server.metrics import exposition
from evervec.server.problems import documented
from evervec.server.readiness import as_shown
from evervec.server.schemas.health import AliveOut, ReadyOut

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Is the process alive", responses={200: {"model": AliveOut}})
async def healthz() -> Response:
    """Open to everybody; it looks at nothing."""
    return answer(AliveOut, {"status": "ok"})


@router.get(
    "/readyz",
    summary="Can it do its work",
    responses={
        200: {"model": ReadyOut},
        503: {
            "model": ReadyOut,
            "description": "Store, disk or a worker inside does not work.",
        },
    },
)
async def readyz(request: Request) -> Response:
    """Store, disk, index, provider and the workers inside, each by name with a reason. It is open
    to everybody, so what the reasons are about is in the service's log alone."""
    shown = as_shown(await request.app.state.readiness.parts())
    return answer(ReadyOut, shown, 503 if shown["status"] == "down" else 200)


@router.get(
    "/metrics",
    summary="Numbers for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **documented()},
)
async def metrics(request: Request, view: Reading) -> Response:
    """Of the key's tenant; of all for a platform admin."""
    counts = request.app.state.counts
    run = view.service.run if view.everyone else view.run  # the operator's wait for no tenant
    body, media_type = await run(exposition, view, counts)
    return Response(body, media_type=media_type)
