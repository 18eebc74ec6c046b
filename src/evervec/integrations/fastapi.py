"""FastAPI: evervec opened with the application, and a dependency that gives it to routes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from inspect import isawaitable
from typing import Any

from evervec.aio import AsyncEvervec, aopen
from evervec.errors import EvervecError, StoreClosed
from evervec.runtime.packages import install_command

try:
    from fastapi import FastAPI
    from fastapi.requests import HTTPConnection
except ImportError as error:
    raise EvervecError(f"FastAPI is not installed: {install_command('evervec[server]')}") from error

TenantOf = Callable[[Any], str | Awaitable[str]]
"""is given the `Request`, or the `WebSocket`"""


def install_errors(app: FastAPI) -> None:
    """Answer errors of evervec as `evervec serve` does: with a problem document (RFC 9457) and its
    status, such as 422 for an invalid record and 503 while the store is away, which names no hosts
    and no paths. Without it they are errors of the application, with status 500."""
    from evervec.server.problems import answer_problem

    app.add_exception_handler(EvervecError, answer_problem)


class EvervecDependency:
    """Opens a store with the application, and is the dependency of routes that use it.

    `FastAPI(lifespan=search.lifespan)` opens and closes it; `Depends(search)` gives a route, of
    requests or of a WebSocket, the `AsyncEvervec` of its tenant. `worker`: whether this process embeds records, in the
    background; else run `evervec worker`. `tenant`: a function that returns the tenant of a request,
    from a header, a session or a token that it has checked. `options`: those of `evervec.open`.
    """

    def __init__(
        self,
        store: Any = None,
        *,
        worker: bool = True,
        tenant: TenantOf | None = None,
        **options: Any,
    ) -> None:
        self._store = store
        self._worker = worker
        self._tenant = tenant
        self._options = options
        self._opened: AsyncEvervec | None = None

    @asynccontextmanager
    async def lifespan(self, app: FastAPI | None = None) -> AsyncIterator[None]:
        """Open the store, and with it a worker; drain and close them at the end."""
        async with AsyncExitStack() as stack:
            ev = await stack.enter_async_context(aopen(self._store, **self._options))
            if self._worker:
                await stack.enter_async_context(ev.worker())
            self._opened = ev
            try:
                yield
            finally:
                self._opened = None

    async def __call__(self, connection: HTTPConnection) -> AsyncEvervec:
        """The store, for the tenant of the request or WebSocket."""
        if self._opened is None:
            raise StoreClosed(
                "the store is not open: give the application `lifespan=search.lifespan`, or enter "
                "it in a lifespan of your own"
            )
        if self._tenant is None:
            return self._opened
        tenant = self._tenant(connection)
        return self._opened.of(await tenant if isawaitable(tenant) else tenant)
