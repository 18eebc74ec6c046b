"""The path `/mcp`, if the extra `mcp` is installed: see `evervec.integrations.mcp.endpoint`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from starlette.requests import Request

from evervec.runtime.packages import install_command
from evervec.server.problems import Problem
from evervec.server.requests import App, Receive, Scope, Send, check_encoding, check_values, path_of
from evervec.server.router import check_parameters
from evervec.server.service import Service

if TYPE_CHECKING:
    from evervec.integrations.mcp.endpoint import Endpoint

PATH = "/mcp"
_LARGEST_MESSAGE = 1_000_000
"""bytes; the SDK parses a message in the event loop"""
_ROUTE = SimpleNamespace(path_format=PATH)
"""for metrics and traces"""


class Mcp:
    """Middleware that answers MCP messages. They call the routes inside it."""

    def __init__(self, app: App, service: Service) -> None:
        self._app = app
        self._service = service
        self._endpoint: Endpoint | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or path_of(scope) != PATH:
            await self._app(scope, receive, send)
            return
        scope["route"] = _ROUTE
        if scope["method"] != "POST":
            headers = {"Allow": "POST"}
            raise Problem(
                405, "MCP messages are sent by POST; there are no streams", headers=headers
            )
        request = Request(scope, receive)
        check_parameters(request, {"tenant"})
        check_encoding(request)
        body = await request.body()
        if len(body) > _LARGEST_MESSAGE:
            raise Problem(
                413, f"the message is larger than {_LARGEST_MESSAGE:,} bytes: use POST /v1/records"
            )
        check_values(body, self._service.ev.settings.server_values)
        if self._endpoint is None:
            # in a thread: the first import takes a second or two
            self._endpoint = await self._service.run(_make_endpoint, self._app)
        sent = False

        async def receive_again() -> dict[str, object]:
            nonlocal sent
            if sent:
                return await receive()  # type: ignore[return-value]
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._endpoint(scope, receive_again, send)


def _make_endpoint(routes: App) -> Endpoint:
    try:
        from evervec.integrations.mcp.endpoint import Endpoint
    except ImportError as error:
        raise Problem(
            404, f"/mcp needs the package {error.name}: {install_command('evervec[mcp]')}"
        ) from error
    return Endpoint(routes)
