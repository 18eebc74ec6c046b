"""The application: layers, routes and OpenAPI put together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from evervec.errors import EvervecError
from evervec.facade import Evervec
from evervec.limits.limiter import Limiter
from evervec.server.access import Access, has_own_access
from evervec.server.metrics import Counts
from evervec.server.problems import ProblemDocument, answer_problem
from evervec.server.requests import Requests
from evervec.server.routes import (
    batch,
    health,
    internal,
    jobs,
    migrations,
    queue,
    records,
    search,
    versions,
)
from evervec.server.schemas.records import RecordIn
from evervec.server.service import Service

_ROUTERS = (batch, records, search, jobs, queue, versions, migrations, health, internal)
"""in this order: `/v1/records/batch` is no record"""


def make_app(ev: Evervec, *, limiter: Limiter | None = None, workers: int = 0) -> FastAPI:
    """The service over an open store, with so many workers inside. Closing the store is its
    opener's affair, after the application has ended."""
    service = Service(ev, limiter)
    counts = Counts()
    app = FastAPI(
        title="evervec",
        version=version("evervec"),
        summary="Keeps a vector index true to your data.",
        redoc_url=None,
        lifespan=_lifespan(service, workers),
    )
    app.state.service, app.state.counts = service, counts
    for module in _ROUTERS:
        app.include_router(module.router)
    app.add_middleware(Access, service=service)
    app.add_middleware(Requests, most_bytes=int(ev.settings.server_body_mb * 1e6), count=counts)
    for kind in (EvervecError, HTTPException, RequestValidationError, ValidationError):
        app.add_exception_handler(kind, answer_problem)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _lifespan(service: Service, workers: int) -> Any:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        inside = ExitStack()
        for _number in range(workers):
            inside.enter_context(service.ev.worker())
        tending = asyncio.create_task(service.tend())
        try:
            yield
        finally:
            tending.cancel()
            await asyncio.to_thread(inside.close)  # drains them
            await asyncio.to_thread(service.close)

    return lifespan


def _openapi(app: FastAPI) -> dict[str, Any]:
    """FastAPI's own, with the shape of errors and who may come in."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title, version=app.version, summary=app.summary, routes=app.routes
        )
        parts = made["components"]
        for shape in (ProblemDocument, RecordIn):
            parts["schemas"][shape.__name__] = shape.model_json_schema()
        for unused in ("HTTPValidationError", "ValidationError"):
            parts["schemas"].pop(unused, None)
        parts["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        for path, operations in made["paths"].items():
            if not has_own_access(path):
                for operation in operations.values():
                    operation["security"] = [{"key": []}]
        app.openapi_schema = made
    return app.openapi_schema
