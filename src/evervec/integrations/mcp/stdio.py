"""MCP on standard input and output, for assistants that start `evervec mcp` as a process."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from evervec.runtime.threads import handling_signals, submit


class StdioSession:
    """One assistant on standard input and output, served in a thread until it closes its end."""

    def __init__(self, server: Server[Any]) -> None:
        self._over = threading.Event()
        self._served = submit("evervec-mcp", lambda: asyncio.run(_serve(server)))
        self._served.add_done_callback(lambda _: self._over.set())

    def wait(self) -> None:
        """Wait until the assistant closes its end, or until SIGTERM or SIGINT. After a signal,
        messages are still answered while the caller cleans up."""
        with handling_signals(lambda number, frame: self._over.set()):
            self._over.wait()
        if self._served.done():
            self._served.result()

    def end(self) -> None:
        """After a signal, end the process: the SDK reads standard input in a thread that cannot be
        interrupted, and a process waits for that thread."""
        if not self._served.done():
            os._exit(0)


async def _serve(server: Server[Any]) -> None:
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
