"""Coroutines that threads wait for, such as those of an asynchronous embedder.

They all run in one event loop, in a thread of its own: what an embedder keeps, such as an HTTP session,
belongs to one loop, and workers, searches and other loops call it from many threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakSet

from evervec.runtime.threads import start

if TYPE_CHECKING:  # asyncio takes a while to load, and few programs come here
    import asyncio

T = TypeVar("T")

_PATIENCE = 5.0
"""seconds that the last user waits for the loop to end"""


class CoroutineLoop:
    """An event loop that begins with the first coroutine, and ends with the last of its users."""

    def __init__(self) -> None:
        self._users: WeakSet[object] = WeakSet()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._over: asyncio.Event | None = None

    def hold(self, user: object) -> None:
        """Keep the loop until this user releases it or is gone."""
        with self._lock:
            self._users.add(user)

    def release(self, user: object) -> None:
        """End the loop if nobody else holds it: coroutines in progress are cancelled."""
        with self._lock:
            self._users.discard(user)
            if self._users or self._loop is None or self._over is None:
                return
            thread = self._thread
            self._loop.call_soon_threadsafe(self._over.set)
            self._loop = self._thread = None
        if thread is not None and thread is not threading.current_thread():
            thread.join(_PATIENCE)

    def submit(self, made: Awaitable[T]) -> Future[T]:
        """Begin a coroutine, with the context variables of the caller."""
        import asyncio

        async def ended() -> T:
            return await made

        with self._lock:
            if self._loop is None:
                self._start()
            assert self._loop is not None
            if threading.current_thread() is self._thread:
                raise RuntimeError(
                    "a coroutine of an embedder made a blocking call that needs the embedder"
                )
            return asyncio.run_coroutine_threadsafe(ended(), self._loop)

    def _start(self) -> None:
        import asyncio

        begun: Future[asyncio.AbstractEventLoop] = Future()
        over = self._over = asyncio.Event()

        async def serve() -> None:
            begun.set_result(asyncio.get_running_loop())
            await over.wait()

        self._thread = start("evervec-coroutines", lambda: asyncio.run(serve()))
        self._loop = begun.result()

    def forked(self) -> None:
        """Reset in a forked process, which has no such thread."""
        self.__init__()  # type: ignore[misc]


LOOP = CoroutineLoop()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=LOOP.forked)
