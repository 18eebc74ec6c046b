"""Setting a note whatever it was before."""

from __future__ import annotations

from evervec.stores.base import Store


def set_note(store: Store, name: str, value: str | None) -> None:
    """Set a note, or delete it with None; nothing is written if it has that value."""
    while (note := store.shared.note(name)) is not None or value is not None:
        if note is not None and note.value == value:
            return
        if store.shared.put_note(name, value, note and note.revision):
            return
