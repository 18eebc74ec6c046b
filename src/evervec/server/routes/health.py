"""Is it alive, is it ready, and what are its numbers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from evervec.errors import EvervecError
from evervec.facade import Evervec
from evervec.server.access import Reading
from evervec.server.answers import answer
from evervec.server.inside import Inside
from evervec.server.metrics import exposition
from evervec.server.problems import documented
from evervec.server.schemas.health import AliveOut, ReadyOut
from evervec.server.service import Service

log = logging.getLogger("evervec.server")
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
            "description": "The store does not answer, or a worker inside has stopped.",
        },
    },
)
async def readyz(request: Request) -> Response:
    """Store, index, provider and the workers inside, each by name. It is open to everybody, so
    the reasons are in the service's log alone."""
    service: Service = request.app.state.service
    parts = await service.run(_look, service.ev, request.app.state.inside)
    down = not (parts["store"]["ok"] and parts["workers"]["ok"])
    whole = all(part["ok"] for part in parts.values())
    status = "down" if down else "ready" if whole else "degraded"
    return answer(ReadyOut, {"status": status, **parts}, 503 if down else 200)


@router.get(
    "/metrics",
    summary="Numbers for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **documented()},
)
async def metrics(request: Request, view: Reading) -> Response:
    """Of the key's tenant; of all for a platform admin."""
    counts = request.app.state.counts
    body, media_type = await view.run(exposition, view, counts)
    return Response(body, media_type=media_type)


def _look(ev: Evervec, inside: Inside) -> dict[str, Any]:
    def store() -> None:
        ev.store.mark()

    def index() -> None:
        for collection in ev.store.collections()[:1]:
            ev.index.held(collection.version, None, 0, 0)

    def provider() -> None:
        if ev.embedder.dimensions == 0:
            raise EvervecError("there is no embedder: records wait, and search answers from text")
        if why := ev.provider.pauses_because():
            raise EvervecError(why)

    def workers() -> None:
        inside.check()

    return {look.__name__: _part(look) for look in (store, index, provider, workers)}


def _part(look: Callable[[], None]) -> dict[str, Any]:
    try:
        look()
    except EvervecError as error:
        log.warning("not ready: %s: %s", look.__name__, error)
        return {"ok": False, "detail": "does not answer, or waits"}
    return {"ok": True, "detail": "answers"}
