"""The current version of a table: recorded in the store, whatever the latest one in the folder
is."""

from __future__ import annotations

from evervec.stores import notes
from evervec.stores.base import Store


class Overtaken(RuntimeError):
    """Another writer has the writer lock by now."""


class Head:
    """The version committed by the last writer that held the writer lock.

    It is moved by a compare-and-swap in the store, after the table's own commit. So the commit of a
    writer that lost the lock, or that died before the move, has no effect: it was never reported as
    done, and the next writer goes back to the head.
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._note = notes.HEAD.of(name)
        self._revision: int | None = None

    def read(self) -> int | None:
        """The head for a writer; None: nothing was written yet."""
        version, self._revision = self._note.read(self._store.shared)
        return version

    def current(self) -> int | None:
        """The head for readers, who never move it."""
        return self._note.get(self._store.shared)

    def move(self, version: int) -> None:
        """Move the head; raises `Overtaken`, and leaves it, if another writer moved it since it was
        read."""
        if not self._note.swap(self._store.shared, version, self._revision):
            raise Overtaken("another writer wrote after this lock expired")

    def forget(self) -> None:
        if self.read() is not None:
            self._note.swap(self._store.shared, None, self._revision)
