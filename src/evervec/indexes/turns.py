"""One writer at a time for an index that wants no more, wherever the writers run.

The lock lies in the store: whoever holds it renews it, and one that died is replaced when
its time is over. It keeps writers out of each other's way; that one who slept through his
turn writes nothing is the index's own business.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from evervec.errors import IndexUnavailable, StoreError
from evervec.stores.base import Store

_LOOK_AGAIN = 0.02


class Turns:
    """The turns of one index object; threads of a process wait for each other first."""

    def __init__(self, store: Store, name: str, seconds: float) -> None:
        self._store = store
        self._name = f"writer {name}"
        self._holder = secrets.token_hex(8)
        self._seconds = seconds
        self._here = threading.RLock()
        self._token: str | None = None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn, for as long as a dead holder would be waited for."""
        with self._here:
            self._take()
            try:
                yield
            finally:
                with suppress(StoreError):  # it runs out by itself
                    self._store.unlock(self._name, self._token or "")

    def _take(self) -> None:
        deadline, pause = time.monotonic() + self._seconds + 5, threading.Event()
        while not self.renew():
            if time.monotonic() > deadline:
                raise IndexUnavailable(
                    f"another process holds the {self._name} for {self._seconds:g} s and more"
                )
            pause.wait(_LOOK_AGAIN)

    def renew(self) -> bool:
        """Before something that takes long. Whoever has lost it is told at his commit."""
        self._token = self._store.lock(self._name, self._holder, self._seconds)
        return self._token is not None
