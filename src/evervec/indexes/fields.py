"""The metadata fields that an index keeps ready for filters.

Kinds declare them, and they are noted in the store: the worker that writes to the index need not
have the application's kinds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Literal

from evervec.stores.base import Store
from evervec.stores.notes import set_note

FieldType = Literal["text", "number", "boolean"]


def declare(store: Store, kind: str, fields: Mapping[str, FieldType]) -> None:
    """Replace the declared fields of a kind. Indexes add missing ones with the next write of a
    process that starts, and in their maintenance; they drop none."""
    set_note(store, _note(kind), json.dumps(dict(fields)) if fields else None)


def declared(store: Store, kinds: Iterable[str]) -> dict[str, FieldType]:
    """The fields of all those kinds together; if two kinds give one field different types, the type
    of the first."""
    fields: dict[str, FieldType] = {}
    for kind in kinds:
        if note := store.shared.note(_note(kind)):
            fields = json.loads(note.value) | fields
    return fields


def _note(kind: str) -> str:
    return f"index fields of {kind}"
