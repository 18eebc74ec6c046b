"""Answers on their way to a client that may not read them yet.

Many clients send their whole body before they read a byte of the answer. If the service
waited for them to read, and they for it to go on reading, neither would ever move. So what
is not read yet waits here: in memory while it is little, in a file when it is much.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from tempfile import SpooledTemporaryFile

_IN_MEMORY = 1 << 20
_AT_ONCE = 1 << 16


class Spool:
    """Bytes written at one end and read at the other, in order, by one task each."""

    def __init__(self) -> None:
        # closed by whoever reads it to its end
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
        """Wait for something to read; False when nothing was written and nothing will be."""
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
                    if self._read == self._written:  # all is read: begin anew, in memory
                        self._file.seek(0)
                        self._file.truncate()
                        self._read = self._written = 0
                    yield data
                elif self._ended:
                    return
                else:
                    await self._wait()
        finally:
            self._file.close()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()
