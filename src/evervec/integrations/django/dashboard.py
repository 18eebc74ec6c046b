"""The dashboard inside the admin, for staff: the service's pages, with Django's own sign-in.

A request is handed to the application of the service, which runs in an event loop of its own thread,
so it works under WSGI and ASGI alike. Who is signed in to the admin is the caller: superusers may do
everything, other staff may look at the records and jobs of the store's tenant. Forms are protected by
the dashboard's own tokens. Pages do not update by themselves here: a stream would occupy a thread of
the web server.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from django.http import Http404, HttpRequest, HttpResponse

from evervec.facade import Evervec
from evervec.integrations.django.stores import STORES
from evervec.integrations.django.views import aliases
from evervec.runtime.coroutines import CoroutineLoop
from evervec.runtime.packages import load_package

_PASSED_ON = (
    "accept",
    "content-type",
    "cookie",
    "host",
    "origin",
    "sec-fetch-site",
    "x-request-id",
)
"""headers that the pages read"""


def dashboard(request: HttpRequest, alias: str, rest: str = "") -> HttpResponse:
    """A page of the dashboard of one database's store."""
    if alias not in aliases():
        raise Http404(f"no store {alias!r}")
    if "text/event-stream" in request.headers.get("accept", ""):
        return HttpResponse(status=204)  # the browser does not ask again
    return _APPLICATIONS.answer(STORES.get(alias), alias, request, rest)


dashboard.csrf_exempt = True  # type: ignore[attr-defined]  # its forms have tokens of their own


class _Applications:
    """The applications of this process, by database."""

    def __init__(self) -> None:
        self._loop = CoroutineLoop()
        self._loop.hold(self)
        self._lock = threading.Lock()
        self._made: dict[str, tuple[Evervec, Any]] = {}

    def answer(self, ev: Evervec, alias: str, request: HttpRequest, rest: str) -> HttpResponse:
        scope = _scope(ev, request, rest)
        exchange = _Exchange(request.body)
        app = self._of(alias, ev)
        self._loop.submit(app(scope, exchange.receive, exchange.send)).result()
        return exchange.response()

    def _of(self, alias: str, ev: Evervec) -> Any:
        server = load_package("evervec.server.app", "the dashboard in the admin", "evervec[server]")
        with self._lock:
            made = self._made.get(alias)
            if made is None or made[0] is not ev:  # the store was opened again
                made = self._made[alias] = (ev, server.make_app(ev))
            return made[1]


class _Exchange:
    """A request's body for the application, and its response."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self._status = 500
        self._headers: list[tuple[bytes, bytes]] = []
        self._parts: list[bytes] = []

    async def receive(self) -> dict[str, Any]:
        if self._body is None:
            return {"type": "http.disconnect"}
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._status, self._headers = message["status"], list(message["headers"])
        else:
            self._parts.append(message.get("body", b""))

    def response(self) -> HttpResponse:
        made = HttpResponse(b"".join(self._parts), status=self._status)
        for name, value in self._headers:
            if name == b"set-cookie":  # there may be several
                made.cookies.load(value.decode("latin-1"))
            elif name != b"content-length":
                made.headers[name.decode("latin-1")] = value.decode("latin-1")
        return made


def _scope(ev: Evervec, request: HttpRequest, rest: str) -> dict[str, Any]:
    """The request as the application gets it, from the person who is signed in to the admin."""
    from evervec.server.access import GIVEN_CALLER, Caller
    from evervec.server.keys import Role

    user: Any = request.user
    role = Role.ADMIN if user.is_superuser else Role.READER
    raw = _raw_path(request)
    path = raw.encode("ascii", "replace")
    inside = quote(rest, safe="/%~!$&'()*+,;=:@-._")
    root = raw[: -len(inside)].rstrip("/") if inside and raw.endswith(inside) else raw.rstrip("/")
    headers = {name: value for name, value in request.headers.items() if name.lower() in _PASSED_ON}
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1",
        "method": request.method, "scheme": request.scheme, "path": raw, "raw_path": path,
        "root_path": root, "query_string": request.META.get("QUERY_STRING", "").encode("latin-1"),
        "headers": [
            *((name.lower().encode(), value.encode("latin-1", "replace"))
              for name, value in headers.items()),
            (b"content-length", str(len(request.body)).encode()),
        ],
        "client": (request.META.get("REMOTE_ADDR", ""), 0), "server": None,
        GIVEN_CALLER: Caller(ev.tenant, f"{user.get_username()} (admin)", role),
    }  # fmt: skip


def _raw_path(request: HttpRequest) -> str:
    """The path as the browser sent it, so that an id may contain an encoded slash; where the server
    does not tell, the decoded path, encoded again."""
    given = request.META.get("RAW_URI") or request.META.get("REQUEST_URI") or ""
    scope = getattr(request, "scope", None)
    if scope and scope.get("raw_path"):
        raw: bytes = scope["raw_path"]
        return raw.decode("ascii", "replace")
    if given:
        return urlsplit(given).path
    return quote(request.path, safe="/%~!$&'()*+,;=:@-._")


_APPLICATIONS = _Applications()
os.register_at_fork(after_in_child=_APPLICATIONS.__init__)  # type: ignore[misc]
