"""How routes are declared: checked requests, and documented responses.

The most frequent routes are direct: they take the request alone, and are called without FastAPI's
routing and dependencies, which took half of the time of a small request.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from copy import copy
from operator import attrgetter
from typing import Any, TypeVar, cast

from fastapi import APIRouter
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from evervec.server.problems import (
    KNOWN_ERRORS,
    MEDIA_TYPE,
    Problem,
    ProblemDocument,
    answer_problem,
)
from evervec.server.requests import (
    LARGE_BODY,
    App,
    Receive,
    Scope,
    Send,
    check_media_type,
    path_of,
    read_json,
)

F = TypeVar("F", bound=Callable[..., Any])

_MEANING = {
    400: "The body cannot be read: not JSON, not UTF-8, or nested too deep.",
    401: "The key is missing or invalid.",
    403: "The key lacks permission for this, or for that tenant.",
    404: "It does not exist in the tenant.",
    408: "The request did not arrive in time.",
    409: "The current state does not allow this, or the change is not done yet.",
    412: "The record no longer matches `If-Match`.",
    413: "The body is larger than `server_body_mb`, or `server_query_mb` for all but adds.",
    415: "The body is neither JSON nor, for a batch, NDJSON.",
    422: "The request has an invalid value; `detail` names it.",
    429: "A limit of the agent, client or tenant is exceeded; `Retry-After` says when to retry.",
    500: "Internal error; the service's log has the `request_id`.",
    503: "The store is unavailable, or there are too many requests; nothing was done.",
    504: "It took longer than `Request-Timeout` or `server_seconds`; `detail` says what was done.",
}
SCHEMA_REFERENCE = "#/components/schemas/{model}"
_ANYWHERE = (400, 401, 403, 408, 413, 422, 429, 500, 503, 504)
"""errors that any route may return"""


class CheckedRequest(Request):
    """A request whose JSON is checked for values that stores and indexes do not support."""

    async def json(self) -> Any:
        service = self.app.state.service
        body, settings = await self.body(), service.ev.settings
        caller = self.scope.get("caller")
        if len(body) < LARGE_BODY or caller is None:
            return read_json(body, settings)
        return await service.run_for(caller.tenant, read_json, body, settings)


class CheckedRoute(APIRoute):
    """A route that reads its body through `CheckedRequest` and rejects unknown query parameters:
    a mistyped `?tenant=` must not be ignored."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        known = _parameters(self.dependant) | _described_parameters(self)
        needed = [r for d in self.dependant.dependencies if (r := getattr(d.call, "role", None))]

        async def checked(request: Request) -> Response:
            for role in needed:  # before the body is read, which comes before dependencies
                request.scope["caller"].require(role)
            check_parameters(request, known)
            if self.body_field is not None:
                check_media_type(request)
            return await handle(CheckedRequest(request.scope, request.receive))

        return checked


class DirectRoutes:
    """The innermost middleware: calls direct routes."""

    def __init__(self, app: App, routes: Iterable[APIRoute]) -> None:
        self._app = app
        self._routes = {
            (method, route.path): (route, _described_parameters(route))
            for route in routes
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._routes.get((scope.get("method", ""), path_of(scope)))
        if found is None:
            await self._app(scope, receive, send)
            return
        scope["route"], known = found
        request = Request(scope, receive, send)
        try:
            check_parameters(request, known)
            response = await scope["route"].endpoint(request)
        except KNOWN_ERRORS as error:
            response = await answer_problem(request, error)
        await response(scope, receive, send)


def check_parameters(request: Request, known: Collection[str]) -> None:
    """Reject unknown query parameters."""
    if not request.scope["query_string"]:
        return
    for name in request.query_params:
        if name not in known:
            close = difflib.get_close_matches(name[:40], known, 1)
            hint = f"did you mean {close[0]!r}?" if close else "see /docs"
            raise Problem(422, f"unknown parameter {name[:40]!r}; {hint}")


def _described_parameters(route: APIRoute) -> set[str]:
    """The query parameters that a route reads itself."""
    described = (route.openapi_extra or {}).get("parameters", ())
    return {parameter["name"] for parameter in described if parameter["in"] == "query"}


def _parameters(dependant: Dependant) -> set[str]:
    """The names of a route's query parameters."""
    own = {field.alias for field in dependant.query_params}
    return own.union(*map(_parameters, dependant.dependencies))


class Routes(APIRouter):
    """The routes of one subject."""

    def __init__(self, subject: str, route_class: type[APIRoute] = CheckedRoute) -> None:
        super().__init__(
            tags=[subject],
            route_class=route_class,
            # names that generated clients have for the operations
            generate_unique_id_function=attrgetter("name"),
        )
        self.direct: list[APIRoute] = []
        self.reads: list[type[BaseModel]] = []
        """bodies of direct routes"""

    def on(
        self,
        call: str,
        summary: str,
        shape: type[BaseModel] | None,
        *errors: int,
        status: int = 200,
        responses: dict[int | str, dict[str, Any]] | None = None,
        reads: type[BaseModel] | None = None,
        parameters: Sequence[dict[str, Any]] = (),
        **options: Any,
    ) -> Callable[[F], F]:
        """Declare a route by method and path (`GET /v1/jobs`), with the body of its response and
        the errors that it may return beside those of every route. With `reads` the route is direct:
        it reads a body of that shape, and `parameters`, itself."""
        method, path = call.split()
        shown = documented(shape, *errors, status=status) | (responses or {})
        if reads is not None:
            self.reads.append(reads)
            body = {"schema": reference_to(reads)}
            options["openapi_extra"] = {
                "parameters": list(parameters),
                "requestBody": {"required": True, "content": {"application/json": body}},
            }
        declare = self.api_route(
            path, methods=[method], summary=summary, status_code=status, responses=shown, **options
        )

        def declared(endpoint: F) -> F:
            declare(endpoint)
            if reads is not None:
                self.direct.append(cast("APIRoute", self.routes[-1]))
            return endpoint

        return declared


def answer_head(routes: Iterable[BaseRoute]) -> None:
    """Let all routes that answer GET answer HEAD too. The server leaves out the body."""
    for route in routes:
        if isinstance(route, APIRoute) and route.methods and "GET" in route.methods:
            route.methods.add("HEAD")


def without_head(routes: Iterable[BaseRoute]) -> list[BaseRoute]:
    """The routes as the OpenAPI document describes them: HEAD is the same operation as GET."""
    described = list(map(copy, routes))
    for route in described:
        if isinstance(route, APIRoute) and route.methods:
            route.methods = route.methods - {"HEAD"}
    return described


def documented(
    shape: type[BaseModel] | None, *errors: int, status: int = 200
) -> dict[int | str, dict[str, Any]]:
    """The responses of a route for OpenAPI: its body, its `errors`, and those of every route."""
    content = {MEDIA_TYPE: {"schema": reference_to(ProblemDocument)}}
    good: dict[int | str, dict[str, Any]] = {} if shape is None else {status: {"model": shape}}
    return good | {
        error: {"description": _MEANING[error], "content": content}
        for error in sorted({*errors, *_ANYWHERE})
    }


def reference_to(shape: type[BaseModel]) -> dict[str, str]:
    """A reference to a shape that the OpenAPI document has."""
    return {"$ref": SCHEMA_REFERENCE.format(model=shape.__name__)}


def described(name: str, place: str, meaning: str, **shape: Any) -> dict[str, Any]:
    """The OpenAPI description of a parameter that a route reads itself."""
    text = {"type": "string", **(shape or ({"minLength": 1} if place == "query" else {}))}
    return {"name": name, "in": place, "required": False, "description": meaning, "schema": text}
