"""`evervec serve`: bind, print the address, serve until SIGTERM, drain."""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from types import FrameType
from typing import Any, cast

import uvicorn
from fastapi import FastAPI

from evervec.errors import EvervecError, SettingsError
from evervec.facade import Evervec
from evervec.runtime.garbage import keep_what_is_loaded
from evervec.runtime.threads import handling_signals
from evervec.server.app import make_app
from evervec.server.background import Background, Drain
from evervec.server.connections import Connections, most_connections
from evervec.server.dashboard.words import count, duration
from evervec.server.keys import Keys
from evervec.server.origin import is_loopback
from evervec.server.protocol import BoundedProtocol
from evervec.server.routes.health import Counts
from evervec.settings import Settings

log = logging.getLogger("evervec.server")

_TICKS_A_SWEEP = 10
"""uvicorn ticks every tenth of a second"""
_BACKLOG = 1024
"""connections that wait to be accepted; accepted together, they need descriptors at once"""
_ACCEPTED_AT_ONCE = 16
"""connections per turn of the event loop; uvloop accepts one per listening socket, so clients that
open many would keep all others waiting"""


class Server(uvicorn.Server):
    """Uvicorn with limited connections, which also ends waiting requests at shutdown."""

    def __init__(self, app: FastAPI, settings: Settings, *, whole_process: bool = False) -> None:
        self._drain = Drain(app.state.service, app.state.background, whole_process=whole_process)
        self.connections = Connections(
            settings,
            most_connections(settings.server_connections),
            unread=app.state.service.unread,
            delays=app.state.service.delays,
        )
        config = uvicorn.Config(
            app,
            http=cast("Any", partial(BoundedProtocol, self.connections, settings)),
            ws="none",  # a connection that changes its protocol would escape the bounds
            proxy_headers=False,  # trusted_proxies is used instead
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
    """Serve until SIGTERM or SIGINT: then accept no more requests, finish those in progress, and
    drain the workers, all within `drain_seconds`. A second signal stops at once. `whole_process`:
    the process is for this alone, and exits if something does not end by then."""
    keyless = not Keys(ev.store).any()
    anyone = ev.settings.open_without_keys
    if keyless and not anyone and not is_loopback(host):
        raise SettingsError(
            f"no keys exist, so every client that reaches {host} would have full access: create "
            "one with `evervec keys create --role admin`, serve on 127.0.0.1, or set "
            "open_without_keys"
        )
    sockets = _listening(host, port)
    app = make_app(ev, workers=workers)
    server = Server(app, ev.settings, whole_process=whole_process)
    if workers:  # requests are short and should not wait for a worker's 5 ms time slice
        sys.setswitchinterval(0.001)
    bound = sockets[0].getsockname()
    address = f"http://{_shown(host)}:{bound[1]}"
    say(f"evervec serves {ev.store.url} on {address}")
    say(f"dashboard: {address}/   API: {address}/docs")
    if keyless:
        who = "every client" if anyone else "every client on this machine, and no other,"
        say(f"no keys exist: {who} has full access")
    if whole_process:
        keep_what_is_loaded()
    # Uvicorn raises the signal again after the drain: ignore it then.
    began = time.monotonic()
    with handling_signals(lambda number, frame: None), ExitStack() as stack:
        for listening in sockets:
            stack.enter_context(listening)
        server.run(sockets=sockets)
    say(farewell(app.state.counts, app.state.background, time.monotonic() - began))


def farewell(counts: Counts, background: Background, seconds: float) -> str:
    """What was served, and whether everything that was begun is finished."""
    failed = f" ({counts.errors:,} of them failed)" if counts.errors else ""
    served = f"{count(counts.requests, 'request')}{failed}, {count(background.jobs_done, 'job')}"
    left = []
    if background.aborted:
        left.append(f"{count(background.aborted, 'request')} aborted")
    if background.hanging:
        left.append(
            f"{count(background.hanging, 'worker')} still busy, whose jobs others take over"
        )
    end = ", ".join(left) or "everything is drained"
    return f"evervec stopped after {duration(seconds)}: {served} done; {end}"


def _listening(host: str, port: int) -> list[socket.socket]:
    """The socket that clients connect to, several times."""
    try:
        (family, *_, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        bound = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
        return [bound, *(bound.dup() for _ in range(_ACCEPTED_AT_ONCE - 1))]
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise EvervecError(
            f"cannot listen on {host}, port {port} ({why}): choose another with --host or --port"
        ) from None


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
