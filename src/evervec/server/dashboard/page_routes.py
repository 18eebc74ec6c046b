"""Routes of the dashboard: a handler's values become a page, a live stream or a download, and a
form becomes an action.

A handler of a page gets a `View`, which is limited to what the caller may see, and returns the
values for its template. The same address answers with

- HTML,
- `text/event-stream`: the part of the page that changes (the template's block `live`), again
  whenever it has changed,
- NDJSON or CSV of the page's rows (`Table` in its values), with `?format=ndjson` or `?format=csv`
  or by the Accept header.

A page that shows what is wrong with its own parameters, beside the form that sent them, has a
`Problem` named `problem` in its values.

A handler of an action gets the `Form`, and returns what was done in a sentence, which the next page
shows.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any
from urllib.parse import parse_qsl, quote

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from evervec.model.deadlines import check
from evervec.server.dashboard.commands import cli
from evervec.server.dashboard.live import Live
from evervec.server.dashboard.paths import SIGN_IN, address_of, is_page, local_address, root_of
from evervec.server.dashboard.renderer import (
    PAGE_HEADERS,
    Values,
    error_page,
    page,
    render_live,
)
from evervec.server.dashboard.session import Level, check_form, set_notice
from evervec.server.dashboard.tables import Table, download
from evervec.server.problems import Problem, answer_problem, problem_of
from evervec.server.requests import (
    INTERNAL,
    App,
    Receive,
    Scope,
    Send,
    check_encoding,
    headers_of,
    media_type_of,
    path_of,
)
from evervec.server.view import View

log = logging.getLogger("evervec.server")

Handler = Callable[..., Awaitable[Values]]
Action = Callable[..., Awaitable["str | Done | Response"]]
_STREAM = "text/event-stream"
_FORM = "application/x-www-form-urlencoded"
_MOST_FIELDS = 1_000
_FORM_SECONDS = 10.0
"""within which a form must arrive: anybody may send one"""
_LONGEST_NOTICE = 300


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome of an action that leads to another page than the one with the form, or that did
    not do what was asked."""

    notice: str
    address: str = ""
    """of the next page; empty: the one with the form"""
    level: Level = "good"


class Form:
    """The fields of a form that was sent."""

    def __init__(self, fields: list[tuple[str, str]]) -> None:
        self._fields = fields

    def get(self, name: str, default: str = "") -> str:
        return next((value.strip() for key, value in self._fields if key == name), default)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self._fields if key == name]

    def need(self, name: str, label: str) -> str:
        if not (value := self.get(name)):
            raise Problem(422, f"{label} is empty: fill it in")
        return value

    def number(self, name: str, label: str, default: int | None = None) -> int:
        text = self.get(name)
        if not text and default is not None:
            return default
        try:
            return int(text)
        except ValueError:
            raise Problem(422, f"{label} must be a whole number, not {text[:40]!r}") from None

    def confirm(self, wanted: str) -> None:
        """For what cannot be undone: the person typed the name of what it is done to."""
        if self.get("confirm") != wanted:
            raise Problem(422, f"nothing was done: type {wanted!r} to confirm")


class Pages(APIRouter):
    """The pages and actions of one subject."""

    def __init__(self) -> None:
        super().__init__(include_in_schema=False)

    def page(self, path: str, template: str) -> Callable[[Handler], Handler]:
        """Declare a page. The handler's first parameter is `view`, one of the views of
        `server.access`; its others are read from path and query."""

        def declared(handler: Handler) -> Handler:
            @wraps(handler)
            async def endpoint(**given: Any) -> Response:
                return await _respond(given["view"], template, partial(handler, **given))

            _sign(endpoint, handler)
            self.add_api_route(path, endpoint, methods=["GET"])
            return handler

        return declared

    def action(self, path: str) -> Callable[[Action], Action]:
        """Declare an action: `POST` of a form. The handler has the parameters `view` and `form`,
        and returns a sentence, or `Done`; or a response, for what may be shown only once."""

        def declared(handler: Action) -> Action:
            takes_form = "form" in inspect.signature(handler).parameters

            @wraps(handler)
            async def endpoint(**given: Any) -> Response:
                request = given["view"].request
                form = await read_form(request)
                check_form(request.scope, form.get("form_token"))
                if takes_form:
                    given["form"] = form
                done = await handler(**given)
                if isinstance(done, Response):
                    return done
                return redirect(request.scope, done, form.get("next"))

            _sign(endpoint, handler, without="form")
            self.add_api_route(path, endpoint, methods=["POST"])
            return handler

        return declared


def _sign(endpoint: Callable[..., Any], handler: Callable[..., Any], without: str = "") -> None:
    """Give an endpoint the parameters of its handler, for FastAPI."""
    signature = inspect.signature(handler, eval_str=True)
    shown = [each for name, each in signature.parameters.items() if name != without]
    endpoint.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=shown, return_annotation=inspect.Signature.empty
    )
    endpoint.__annotations__ = {}


def redirect(scope: Scope, done: str | Done, back: str = "") -> Response:
    """Lead to the next page, which says what was done."""
    done = Done(done) if isinstance(done, str) else done
    response = RedirectResponse(local_address(scope, done.address or back), 303, PAGE_HEADERS)
    if done.notice:
        set_notice(response, scope, done.level, done.notice[:_LONGEST_NOTICE])
    return response


async def read_form(request: Request) -> Form:
    """The fields of a form; raises a `Problem` for any other body."""
    check_encoding(request)
    if media_type_of(headers_of(request.scope)) != _FORM:
        raise Problem(415, "the body must be a form")
    try:
        async with asyncio.timeout(_FORM_SECONDS):
            body = await request.body()
    except TimeoutError:
        raise Problem(408, f"the form did not arrive within {_FORM_SECONDS:g} s") from None
    try:
        fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise Problem(400, "the form cannot be read") from None
    for _, value in fields:
        if "\0" in value or (not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value)):
            raise Problem(422, "the form has characters that cannot be stored")
    return Form(fields)


async def _respond(view: View, template: str, make: Callable[[], Awaitable[Values]]) -> Response:
    scope = view.request.scope

    async def values_of() -> Values:
        return {"cli": cli(view), **await make()}

    if _STREAM in headers_of(scope).get("accept", "") and scope["method"] == "GET":
        live: Live = view.request.app.state.live
        # what a page shows depends on these alone
        key = (view.caller.tenant, view.caller.role, view.caller.kinds, address_of(scope))
        live.check(view.caller.tenant, key)

        async def render() -> str:
            return await view.run(render_live, template, scope, view.caller, await values_of())

        stream = live.stream(view.caller.tenant, key, render)
        return StreamingResponse(stream, media_type=_STREAM, headers=PAGE_HEADERS)
    values = await values_of()
    problem: Problem | None = values.get("problem")
    if format := _format(view.request):
        if problem is not None:
            raise problem
        table = next((each for each in values.values() if isinstance(each, Table)), None)
        if table is None:
            raise Problem(406, "this page has no list to download")
        return await view.run(download, table, format)
    status = problem.status_code if problem else 200
    return await view.run(page, template, scope, view.caller, values, status)


def _format(request: Request) -> str | None:
    """`ndjson` or `csv`, if the request asks for it."""
    asked = request.query_params.get("format")
    if asked in ("ndjson", "csv"):
        return asked
    if asked:
        raise Problem(422, "format: must be ndjson or csv")
    accept = headers_of(request.scope).get("accept", "")
    if "text/html" in accept:
        return None
    if "application/x-ndjson" in accept:
        return "ndjson"
    return "csv" if "text/csv" in accept else None


class PageErrors:
    """Middleware that shows the problems of outer layers as pages: who has no session is led to the
    sign-in page."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not is_page(path_of(scope)):
            await self._app(scope, receive, send)
            return
        started = False

        async def send_noted(message: Mapping[str, Any]) -> None:
            nonlocal started
            started = True
            await send(message)  # type: ignore[arg-type]

        try:
            await self._app(scope, receive, send_noted)
        except Problem as problem:
            if started:
                raise
            await _problem_response(scope, problem)(scope, receive, send)
        except Exception:
            if started:
                raise
            log.exception("request %s failed", scope["request_id"])
            await _problem_response(scope, Problem(500, INTERNAL))(scope, receive, send)


async def answer_error(request: Request, error: Exception) -> Response:
    """FastAPI's handler for the errors of pages and of all other routes."""
    if not is_page(path_of(request.scope)):
        return await answer_problem(request, error)
    problem = problem_of(error, request.scope.get("caller"))
    if problem.status_code == 404 and not isinstance(error, Problem):
        problem = Problem(404, "There is no such page.")
    return _problem_response(request.scope, problem)


def _problem_response(scope: Scope, problem: Problem) -> Response:
    headers = headers_of(scope)
    is_visit = scope["method"] in ("GET", "HEAD") and "text/html" in headers.get("accept", "")
    if problem.status_code == 401 and is_visit:
        address = f"{root_of(scope)}{SIGN_IN}?next={quote(address_of(scope), safe='')}"
        return RedirectResponse(address, 303, PAGE_HEADERS)
    if _STREAM in headers.get("accept", ""):  # 204 makes a browser stop asking
        return Response(status_code=204 if problem.status_code in (401, 403) else 503)
    if "text/html" not in headers.get("accept", "text/html"):
        return problem.response(scope.get("request_id"))
    return error_page(scope, problem)


def as_json(value: Any, most: int = 1 << 40) -> str:
    """The first characters of a value for people to read. No more than these is made of it."""
    parts, size = [], 0
    for part in json.JSONEncoder(indent=2, ensure_ascii=False, default=str).iterencode(value):
        check()
        parts.append(part)
        size += len(part)
        if size > most:
            return "".join(parts)[:most] + "…"
    return "".join(parts)
