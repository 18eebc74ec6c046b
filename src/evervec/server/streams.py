"""Streams: a request body as it arrives, and a response as it is sent.

Many clients send their whole body before they read the response. If the service waited for them
to read, both sides would deadlock. So unread output is buffered in a `Spool`: in memory while it
is small, in a file when it is large.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from tempfile import SpooledTemporaryFile

from starlette.requests import ClientDisconnect, Request

from evervec.server.deadlines import Call, current_call
from evervec.server.problems import Problem

log = logging.getLogger("evervec.server")

_READ_AHEAD = 1 << 20
_IN_MEMORY = 1 << 18
_AT_ONCE = 1 << 16


class IncomingBody:
    """A body of up to `most` bytes, with limited read-ahead: less while the tenant's other requests
    hold much. What was taken counts as held until the next part is taken, without what is `kept`."""

    def __init__(self, request: Request, most: int) -> None:
        self._left = most
        self._call = call = current_call()
        if call is not None:
            call.is_stream = True
        self.problem: Problem | None = None
        """why the rest was not received"""
        self._taken = 0
        """bytes that were taken and are still held"""
        self._is_discarded = False
        self._parts: list[bytes] = []
        self._size = 0
        self._ended = False
        self._came, self._room = asyncio.Event(), asyncio.Event()
        self._reading = asyncio.create_task(self._read(request))

    async def _read(self, request: Request) -> None:
        try:
            async for chunk in request.stream():
                self._left -= len(chunk)
                if self.is_too_long:
                    return
                self._parts.append(chunk)
                self._size += len(chunk)
                self._came.set()
                if self._call is not None and not self._is_discarded:
                    self._call.restart()
                while self._size and not self._may_read_on(self._call):
                    self._room.clear()
                    await self._room.wait()
        except ClientDisconnect:
            log.info("a client disconnected while sending its body")
        except Problem as problem:
            self.problem = problem
        finally:
            self._ended = True
            self._came.set()

    def _may_read_on(self, call: Call | None) -> bool:
        if self._size > _READ_AHEAD:
            return False
        return call is None or call.has_room(_READ_AHEAD)

    @property
    def is_too_long(self) -> bool:
        """Whether the body exceeds the limit; the rest is not read."""
        return self._left < 0

    async def take(self, kept: int = 0) -> bytes | None:
        """All bytes since the last call; None at the end. `kept`: bytes of earlier calls that the
        caller still holds."""
        if self._call is not None:
            self._call.consumed(self._taken - kept)
            self._taken = kept
        while not self._size:
            if self._ended:
                return None
            self._came.clear()
            await self._came.wait()
        taken, self._parts, self._size = b"".join(self._parts), [], 0
        self._taken += len(taken)
        self._room.set()
        return taken

    def check_room(self) -> None:
        """Receive no more if there is no room for what the caller keeps."""
        if self._call is not None and not self._call.has_room(0):
            self.problem = self._call.refusal()
            self._reading.cancel()

    async def discard_rest(self, most: int) -> None:
        """Read and discard the rest, but not much more than `most` bytes, within one deadline."""
        self._is_discarded = True
        while most > 0 and (taken := await self.take()) is not None:
            most -= len(taken)

    def close(self) -> None:
        self._reading.cancel()


class Spool:
    """A FIFO of bytes with one writing and one reading task."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115
        self._read = self._written = 0
        self._changed = asyncio.Event()
        self._ended = False

    def write(self, data: bytes) -> None:
        self._file.seek(self._written)
        self._written += self._file.write(data)
        self._changed.set()

    def end(self) -> None:
        self._ended = True
        self._changed.set()

    async def filled(self) -> bool:
        """Wait until something is written; False if it ended without."""
        while not self._written and not self._ended:
            await self._wait()
        return self._written > 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while True:
                if self._read < self._written:
                    self._file.seek(self._read)
                    data = self._file.read(_AT_ONCE)
                    self._read += len(data)
                    if self._read == self._written:  # everything is read: start again, in memory
                        self._file.seek(0)
                        self._file.truncate()
                        self._read = self._written = 0
                    yield data
                elif self._ended:
                    return
                else:
                    await self._wait()
        finally:
            self.close()

    def close(self) -> None:
        self._file.close()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()
