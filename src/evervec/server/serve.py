"""`evervec serve`: bind, say where, serve until SIGTERM, drain."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, cast

import uvicorn
from fastapi import FastAPI

from evervec.errors import EvervecError, SettingsError
from evervec.facade import Evervec
from evervec.server.app import make_app
from evervec.server.connections import Connections, most_connections
from evervec.server.drain import Drain
from evervec.server.keys import Keys
from evervec.server.protocol import BoundedProtocol
from evervec.server.trust import is_loopback
from evervec.settings import Settings

log = logging.getLogger("evervec.server")

_TICKS_A_SWEEP = 10
"""uvicorn ticks every tenth of a second"""
_BACKLOG = 1024
"""connections that wait to be accepted; they need descriptors all at once when they are"""


class Server(uvicorn.Server):
    """Uvicorn with bounded connections, and with word to those who wait that the end is near."""

    def __init__(self, app: FastAPI, settings: Settings, *, whole_process: bool = False) -> None:
        self._drain = Drain(app.state.service, app.state.inside, whole_process=whole_process)
        self.connections = Connections(settings, most_connections(settings.server_connections))
        config = uvicorn.Config(
            app,
            http=cast("Any", partial(BoundedProtocol, self.connections, settings)),
            ws="none",  # a connection that changes its protocol would escape the bounds
            proxy_headers=False,  # trusted_proxies says whose word is taken
            access_log=False,
            log_config=None,
            server_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=cast("int", settings.server_idle_seconds),
            timeout_graceful_shutdown=self._drain.for_requests,
        )
        super().__init__(config)

    async def on_tick(self, counter: int) -> bool:
        if counter % _TICKS_A_SWEEP == 0:
            self.connections.sweep()
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._drain.begin()


def serve(
    ev: Evervec,
    host: str,
    port: int,
    workers: int,
    say: Callable[[str], None] = log.info,
    *,
    whole_process: bool = False,
) -> None:
    """Serve until SIGTERM or SIGINT: then no more requests are taken, those under way are
    finished, and workers inside drain, all within `drain_seconds`. A second signal ends it at
    once. `whole_process`: end the process if something does not end by then."""
    keyless = not Keys(ev.store).any()
    anyone = ev.settings.open_without_keys
    if keyless and not anyone and not is_loopback(host):
        raise SettingsError(
            f"there are no keys yet, so {host} would be open to everybody: make one with "
            "`evervec keys create --role admin`, serve on 127.0.0.1, or set open_without_keys"
        )
    listening = _bind(host, port)
    app = make_app(ev, workers=workers)
    server = Server(app, ev.settings, whole_process=whole_process)
    if workers:  # requests are short, and should not wait for a worker's turn of 5 ms
        sys.setswitchinterval(0.001)
    bound = listening.getsockname()
    say(f"evervec serves {ev.store.url} on http://{_shown(host)}:{bound[1]}  (/docs tells how)")
    if keyless:
        who = "whoever reaches it" if anyone else "every program on this machine, and nobody else,"
        say(f"no keys yet: {who} may do everything")
    # Uvicorn raises the signal once more when all is drained: by then it has done its work.
    before = {number: signal.signal(number, _ignore) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with listening:
            server.run(sockets=[listening])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore(number: int, frame: FrameType | None) -> None:
    pass


def _bind(host: str, port: int) -> socket.socket:
    try:
        (family, *_, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise EvervecError(
            f"{host}, port {port} cannot be listened on ({why}): give another with --host or --port"
        ) from None


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
