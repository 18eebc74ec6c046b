"""Templates become pages, each with the headers that a browser needs to trust nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from evervec.model.basics import as_datetime
from evervec.model.deadlines import bounded, check
from evervec.runtime.release import release
from evervec.server.access import Caller
from evervec.server.dashboard import charts, words
from evervec.server.dashboard.assets import asset_path
from evervec.server.dashboard.paths import PREFIX, address_of, form_address, link, root_of
from evervec.server.dashboard.session import (
    NOTICE,
    cookies_of,
    form_token,
    new_visitor,
    notice_of,
    session_of,
    set_session,
    theme_of,
)
from evervec.server.keys import Role
from evervec.server.problems import Problem
from evervec.server.requests import Scope, headers_of, path_of

Values = dict[str, Any]
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    # with "no-referrer" a browser says `Origin: null` when it sends a form
    "Referrer-Policy": "same-origin",
}
NAVIGATION = (
    # key, name, least role, key to press after g
    ("", "Overview", Role.READER, "o"),
    ("search", "Search", Role.READER, "s"),
    ("jobs", "Jobs", Role.READER, "j"),
    ("failures", "Failures", Role.READER, "f"),
    ("records", "Records", Role.READER, "r"),
    ("map", "Map", Role.READER, "m"),
    ("versions", "Versions", Role.READER, "v"),
    ("verify", "Verify", Role.READER, "p"),
    ("tables", "Tables", Role.READER, "t"),
    ("workers", "Workers", Role.READER, "w"),
    ("tenants", "Tenants", Role.ADMIN, "n"),
    ("keys", "Keys", Role.ADMIN, "k"),
    ("audit", "Audit log", Role.ADMIN, "a"),
)

_PARTS = 500
"""parts of a page between two checks of the deadline"""
_FILTERS = (
    "number", "duration", "lapse", "ago", "moment", "clock", "precise", "size", "money", "clipped",
    "count", "upto", "coded",
)  # fmt: skip


@cache
def _templates() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    for name in _FILTERS:
        made.filters[name] = getattr(words, name)
    made.filters["at"] = as_datetime
    made.globals.update(charts=charts, share=words.share, marked=words.marked)
    return made


def render(template: str, scope: Scope, caller: Caller | None, values: Values) -> str:
    """The whole page."""
    found = _templates().get_template(template)
    return _joined(found.generate(_context(scope, caller, values)))


def render_live(template: str, scope: Scope, caller: Caller | None, values: Values) -> str:
    """The part of a page that changes by itself: the block `live`, for all who may see it."""
    found = _templates().get_template(template)
    # Others get the same, so it has no token of anybody's session: the script keeps the page's.
    values = {**values, "form_token": ""}
    context = found.new_context(_context(scope, caller, values))
    return _joined(iter(found.blocks["live"](context)))


def _joined(parts: Iterator[str]) -> str:
    """The parts of a page, within the request's deadline: a long list has many."""
    made = []
    while portion := list(islice(parts, _PARTS)):
        check()
        made += portion
    return "".join(made)


def _context(scope: Scope, caller: Caller | None, values: Values) -> Values:
    role = caller.role if caller else None
    session = session_of(scope)
    return {
        "section": path_of(scope).removeprefix(PREFIX).strip("/").partition("/")[0],
        "link": partial(link, scope),
        "asset": lambda name: link(scope, *asset_path(name)),
        "here": address_of(scope),
        "caller": caller,
        "may_write": role is not None and role.rank >= Role.WRITER.rank,
        "is_admin": role is Role.ADMIN,
        "navigation": [
            entry for entry in NAVIGATION if role is not None and role.rank >= entry[2].rank
        ],
        "form_token": form_token(session) if session else "",
        "theme": theme_of(scope),
        "notice": notice_of(scope),
        "release": release(),
        "tenant": dict(parse_qsl(scope["query_string"].decode("latin-1"))).get("tenant"),
        **values,
    }


def page(
    template: str, scope: Scope, caller: Caller | None, values: Values, status: int = 200
) -> Response:
    """A page as a response."""
    visitor = None
    if caller is not None and caller.key is None and not session_of(scope):
        visitor = new_visitor()
        values = {**values, "form_token": form_token(visitor)}
    response = HTMLResponse(render(template, scope, caller, values), status, PAGE_HEADERS)
    if visitor:
        set_session(response, scope, visitor)
    if NOTICE in cookies_of(headers_of(scope)):
        response.delete_cookie(NOTICE, path=root_of(scope) or "/")
    return response


def error_page(scope: Scope, problem: Problem) -> Response:
    """A problem as a page."""
    values = {
        "problem": problem,
        "request_id": scope.get("request_id", ""),
        "back": form_address(scope),
    }
    with bounded(None):  # it says so, too, when the deadline is over
        response = page("error.html", scope, scope.get("caller"), values, problem.status_code)
    response.headers.update(problem.headers or {})
    return response
