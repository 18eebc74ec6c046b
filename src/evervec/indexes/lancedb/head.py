"""Which version of a table counts: the store knows, whatever is the last one in the folder."""

from __future__ import annotations

from evervec.stores.base import Store


class Overtaken(RuntimeError):
    """Somebody else has the turn by now."""


class Head:
    """The version that the last writer whose turn it was left behind.

    It is moved by a comparison in the store, after the table's own commit. So what a writer
    that slept through its turn does to the table, or one that died did, counts for nothing:
    nobody was told that it was done, and the next writer goes back to the head.
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = f"head of {name}"
        self._revision: int | None = None

    def read(self) -> int | None:
        """None: nobody has written yet."""
        note = self._store.note(self._name)
        self._revision = note.revision if note else None
        return int(note.value) if note else None

    def current(self) -> int | None:
        """The same for readers, who never move it."""
        note = self._store.note(self._name)
        return int(note.value) if note else None

    def move(self, version: int) -> None:
        """`Overtaken` when somebody else moved it since it was read; then it stays there."""
        if not self._store.put_note(self._name, str(version), self._revision):
            raise Overtaken("others wrote when its turn was over")

    def forget(self) -> None:
        if self.read() is not None:
            self._store.put_note(self._name, None, self._revision)
