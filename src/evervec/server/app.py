"""The application: middleware, routes and OpenAPI."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from evervec.facade import Evervec
from evervec.runtime.release import release
from evervec.server.access import Access, has_own_access
from evervec.server.admission import Admission, Clients
from evervec.server.background import Background
from evervec.server.dashboard.live import Live
from evervec.server.dashboard.measures import Measures
from evervec.server.dashboard.page_routes import PageErrors, answer_error
from evervec.server.dashboard.pages import PAGES
from evervec.server.dashboard.pages.map import Maps
from evervec.server.dashboard.runs import Runs
from evervec.server.deadlines import Deadlines
from evervec.server.mcp import Mcp
from evervec.server.problems import KNOWN_ERRORS, ProblemDocument
from evervec.server.rate_limits import Limiter
from evervec.server.readiness import Readiness
from evervec.server.requests import Requests
from evervec.server.router import SCHEMA_REFERENCE, DirectRoutes, answer_head, without_head
from evervec.server.routes import (
    batch,
    chosen,
    docs,
    health,
    internal,
    jobs,
    keys,
    observation,
    queue,
    records,
    search,
    selection,
    tenants,
    vectors,
    versions,
)
from evervec.server.routes.health import Counts
from evervec.server.service import Service

_ROUTERS = (
    batch, chosen, records, search, vectors, selection, jobs, queue, observation, tenants, versions, health,
    internal, keys, docs,
)  # fmt: skip
"""in this order, so that `/v1/records/batch` is not taken for a record"""
_DIRECT = (records.router, search.router)


def make_app(ev: Evervec, *, limiter: Limiter | None = None, workers: int = 0) -> FastAPI:
    """The service for an open store, with `workers` workers in this process. The caller closes
    the store after the application has ended.

    To mount it in another application, enter `app.router.lifespan_context(app)` in that
    application's lifespan: it starts the workers and drains them at the end. Otherwise they start
    with the first request.
    """
    service = Service(ev, limiter)
    background = Background(service, workers)
    counts = Counts()
    app = FastAPI(
        title="evervec",
        version=release(),
        summary="Keeps a vector index in sync with your data.",
        openapi_url=None,  # `routes.docs` has it
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # it would name the host and scheme that the request names
        lifespan=background.lifespan,
        # requests have spans already (`telemetry.traces`), and FastAPI's have the bodies in them
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.service, app.state.counts, app.state.background = service, counts, background
    app.state.readiness = Readiness(ev, background)
    app.state.live = Live(service)
    most_seconds = ev.settings.server_most_seconds
    app.state.measures, app.state.runs = Measures(seconds=most_seconds), Runs(most_seconds)
    app.state.maps, app.state.documentation = Maps(), docs.Documentation(app)
    for router in (*(module.router for module in _ROUTERS), *PAGES):
        # as they are: `include_router` would make each route again, which takes 50 ms
        app.router.routes.extend(router.routes)
    answer_head(app.router.routes)
    app.add_middleware(DirectRoutes, routes=[r for routes in _DIRECT for r in routes.direct])
    app.add_middleware(Mcp, service=service)
    app.add_middleware(Admission, service=service)
    app.add_middleware(Access, service=service)
    app.add_middleware(PageErrors)
    app.add_middleware(Deadlines, settings=ev.settings, calls=service.calls, bodies=service.bodies)
    app.add_middleware(Clients, settings=ev.settings)
    app.add_middleware(Requests, start=background.start, settings=ev.settings, count=counts)
    for kind in KNOWN_ERRORS:
        app.add_exception_handler(kind, answer_error)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    """FastAPI's OpenAPI document, with the schema of errors and the security scheme."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title, version=app.version, summary=app.summary,
            routes=without_head(app.routes),
        )  # fmt: skip
        parts = made["components"]
        shapes: list[type[BaseModel]] = [ProblemDocument]
        shapes += [shape for routes in _DIRECT for shape in routes.reads]
        for shape in shapes:
            schema = shape.model_json_schema(ref_template=SCHEMA_REFERENCE)
            parts["schemas"] |= schema.pop("$defs", {}) | {shape.__name__: schema}
        for unused in ("HTTPValidationError", "ValidationError"):
            parts["schemas"].pop(unused, None)
        parts["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        for path, operations in made["paths"].items():
            if not has_own_access(path):
                for operation in operations.values():
                    operation["security"] = [{"key": []}]
        app.openapi_schema = made
    return app.openapi_schema
