"""The metadata fields that an index keeps ready for filters.

Kinds declare them, and they are noted in the store: the worker that writes to the index need not
have the application's kinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from evervec.stores.base import Store
from evervec.stores.notes import INDEX_FIELDS, FieldType


def declare(store: Store, kind: str, fields: Mapping[str, FieldType]) -> None:
    """Replace the declared fields of a kind. Indexes add missing ones with the next write of a
    process that starts, and in their maintenance; they drop none."""
    INDEX_FIELDS.of(kind).put(store.shared, dict(fields) or None)


def declared(store: Store, kinds: Iterable[str]) -> dict[str, FieldType]:
    """The fields of all those kinds together; if two kinds give one field different types, the type
    of the first."""
    fields: dict[str, FieldType] = {}
    for kind in kinds:
        fields = (INDEX_FIELDS.of(kind).get(store.shared) or {}) | fields
    return fields
