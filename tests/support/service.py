"""The service under test: inside this process for most, as a process of its own to be killed."""

import asyncio
import os
import resource
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import httpx
import uvicorn.server

from evervec import Evervec
from evervec.cli import main
from evervec.server.app import make_app
from evervec.server.connections import Connections
from evervec.server.keys import Keys
from evervec.server.serve import Server
from support.forks import Fork
from support.processes import until

_PATIENCE = 60.0
_TICK = 0.01


class QuickServer(Server):
    """Ticks ten times as often as uvicorn: a short test would spend most of its time until the tick
    at which the service sees that it should end, and behind it."""

    async def main_loop(self) -> None:
        for tick in count():
            if await self.on_tick(tick):
                return
            await asyncio.sleep(_TICK)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        with patch.object(uvicorn.server, "asyncio", _QuickAsyncio()):
            await super().shutdown(sockets)


class _QuickAsyncio:
    """What uvicorn uses of asyncio, with shorter pauses."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, _TICK))


class Served:
    """A service in a thread, with a key for every role that a test asks for."""

    def __init__(self, ev: Evervec, **options: Any) -> None:
        self.ev = ev
        self.app = make_app(ev, **options)
        # other tests on this machine make the event loop lag, and a tenant's share of requests would
        # be refused then; tests/unit/test_shares.py is about that
        self.app.state.service.shares.report_lag = lambda _: None
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._server = QuickServer(self.app, ev.settings)
        self._server.config.timeout_graceful_shutdown = 5
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        until_alive(self.url)
        self._clients: list[httpx.Client] = []

    @property
    def connections(self) -> Connections:
        return self._server.connections

    def _run(self) -> None:
        self._server.run(sockets=[self._listening])

    def key(self, tenant: str = "default", role: str = "writer", agent: str = "a") -> str:
        return Keys(self.ev.store).create(tenant, agent, role).key

    def http(self, key: str | None = None) -> httpx.Client:
        """Plain HTTP, with a key or none."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        client = httpx.Client(
            base_url=self.url, headers=headers, timeout=_PATIENCE, verify=False, trust_env=False
        )
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self.app.state.service.stopping.set()
        self._server.should_exit = True
        self._thread.join(_PATIENCE)
        self._listening.close()


Serve = Callable[..., Served]


@contextmanager
def serving() -> Iterator[Serve]:
    """Starts services that end with the block."""
    started: list[Served] = []

    def serve(ev: Evervec, **options: Any) -> Served:
        started.append(Served(ev, **options))
        return started[-1]

    try:
        yield serve
    finally:
        for served in started:
            served.close()


class ServiceProcess:
    """`evervec serve` as a user starts it."""

    def __init__(
        self,
        folder: Path,
        *args: str,
        port: int = 0,
        wait: bool = True,
        limit_files: int | None = None,
        **environ: str,
    ) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / f"service-{self.port}.log"
        clean = {k: v for k, v in os.environ.items() if not k.startswith("EVERVEC_")}
        with open(os.devnull) as nothing, self.log.open("ab") as log:
            self._process = Fork(
                "support.service" if limit_files else "evervec",
                [
                    *([str(limit_files)] if limit_files else []),
                    "serve",
                    "--port",
                    str(self.port),
                    *args,
                ],
                (nothing.fileno(), log.fileno(), log.fileno()),
                folder=folder,
                environ={**clean, "EVERVEC_EMBEDDER": "hashing", **environ},
                knows="evervec.cli.service,evervec.server.serve,uvloop,httptools",
            )
        if wait:
            self.until_alive()

    def until_alive(self) -> None:
        until_alive(self.url, lambda: self._process.poll() is None)

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(_PATIENCE)

    def terminate(self) -> int:
        """SIGTERM, and its exit code once it has drained."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(_PATIENCE)

    def close(self) -> None:
        if self._process.poll() is None:
            self.kill()


def free_port() -> int:
    """One below those that outgoing connections get: they could take it before its service does."""
    while True:
        port = 10_000 + secrets.randbelow(22_000)
        with suppress(OSError), socket.create_server(("", port)):
            return port


def until_alive(url: str, running: Callable[[], bool] = lambda: True) -> None:
    def answers() -> bool:
        assert running(), "the service ended by itself"
        # by hand: to make a client takes longer than the service does to start
        conn = HTTPConnection(urlsplit(url).netloc, timeout=5.0)
        try:
            conn.request("GET", "/healthz")
            return conn.getresponse().status == 200
        except (OSError, HTTPException):
            return False
        finally:
            conn.close()

    until(answers, f"{url} to answer", _PATIENCE)


def _with_few_files() -> None:
    """Run evervec with as many open files as the first argument says."""
    count = int(sys.argv.pop(1))
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))
    main()


if __name__ == "__main__":
    _with_few_files()
