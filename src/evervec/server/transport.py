"""Sends the head of a response together with the beginning of its body.

Uvicorn writes them one after the other, each with a system call that wakes the client. A head is held
until the body follows, at most until the event loop's next turn.
"""

from __future__ import annotations

import asyncio
from typing import Any

_FIRST, _LAST = b"HTTP/1.1 ", b"\r\n\r\n"


class JoiningTransport:
    """The transport of a connection, as far as HTTP/1.1 needs it."""

    __slots__ = ("_head", "_later", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""
        self._later: asyncio.Handle | None = None

    def write(self, data: bytes) -> None:
        """Send data; a body that looks like a head is only sent a moment later. To a client that has
        gone nothing is sent: the loop is about to say so."""
        if self._transport.is_closing():
            return
        if self._head:
            head, self._head = self._head, b""
            self._cancel()
            self._transport.writelines((head, data))
        elif data.startswith(_FIRST) and data.endswith(_LAST):
            self._head = data
            self._later = self._loop.call_soon(self._flush)
        else:
            self._transport.write(data)

    def _cancel(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None

    def _flush(self) -> None:
        """Send a head whose body has not come."""
        self._cancel()
        head, self._head = self._head, b""
        if head and not self._transport.is_closing():
            self._transport.write(head)

    def get_write_buffer_size(self) -> int:
        return len(self._head) + self._transport.get_write_buffer_size()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def write_eof(self) -> None:
        self._flush()
        self._transport.write_eof()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
