"""`evervec serve`: bind, say where, serve until SIGTERM, drain."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType

import uvicorn

from evervec.errors import EvervecError, SettingsError
from evervec.facade import Evervec
from evervec.keys import Keys
from evervec.server.access import is_loopback
from evervec.server.app import make_app
from evervec.server.drain import Drain

log = logging.getLogger("evervec.server")


class _Server(uvicorn.Server):
    """Uvicorn, with word to those who wait that the end is near."""

    stopping: Callable[[], None]

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self.stopping()


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
    if keyless and not is_loopback(host):
        raise SettingsError(
            f"there are no keys yet, so {host} would be open to everybody: make one with "
            "`evervec keys create --role admin`, or serve on 127.0.0.1"
        )
    listening = _bind(host, port)
    app = make_app(ev, workers=workers)
    drain = Drain(app.state.service, app.state.inside, whole_process=whole_process)
    config = uvicorn.Config(
        app,
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=drain.for_requests,
    )
    if workers:  # requests are short, and should not wait for a worker's turn of 5 ms
        sys.setswitchinterval(0.001)
    server = _Server(config)
    server.stopping = drain.begin
    bound = listening.getsockname()
    say(f"evervec serves {ev.store.url} on http://{_shown(host)}:{bound[1]}  (/docs tells how)")
    if keyless:
        say("no keys yet: everybody on this machine, and nobody else, may do everything")
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
        return socket.create_server(address[:2], family=family, backlog=2048)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise EvervecError(
            f"{host}, port {port} cannot be listened on ({why}): give another with --host or --port"
        ) from None


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
