"""Indexes of the metadata fields that kinds declare, in the SQLite store.

Such an index finds the records whose field equals a value without reading the metadata of all. A
field that is a list is found under one common key, and its items are then tested.
"""

from __future__ import annotations

import math
import re
import time
from hashlib import blake2b
from typing import Any

from evervec.indexes.base import Query
from evervec.indexes.fields import declared
from evervec.model.filters import Condition, Conditions
from evervec.stores.sql.engine import Connection
from evervec.stores.sql.quotes import literal
from evervec.stores.sql.store import SqlStore

_MOST = 20_000
"""records that are read by an index: testing the best rows of a search is faster than reading more"""
_LOOK_AGAIN = 60.0
"""seconds for which it is remembered which indexes exist, and that many records pass a filter"""
_MOST_REMEMBERED = 10_000
_MOST_VALUES = 50
"""that a condition may have: each is looked up"""
_PREFIX = "evervec_field_"
_PLAIN = re.compile(r"[^\"\\\x00-\x1f]+")
"""names that a JSON path can contain"""
_LIST = "x'00'"
"""the key of all lists"""


class FieldIndexes:
    """The indexes of declared fields on the table of records, one for each kind and field."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store
        self._db = store.engine.db
        self._made: set[str] = set()
        self._looked = -math.inf
        self._kinds: dict[int, str] = {}
        self._many: dict[tuple[str, str, Conditions], float] = {}

    def maintain(self) -> None:
        """Make missing indexes."""
        kinds = {c.kind for c in self._store.versions.collections() if c.state != "retired"}
        self._look()
        for kind in sorted(kinds):
            for field in declared(self._store, [kind]):
                if _PLAIN.fullmatch(field) and _name(kind, field) not in self._made:
                    with self._db.sorting() as conn:
                        conn.execute(
                            f"create index if not exists {_name(kind, field)} on evervec_records "
                            f"(tenant, {_key('metadata', field)}) where {_is_live(kind)}"
                        )
        self._look()

    def few(self, conn: Connection, query: Query) -> list[int] | None:
        """The records that pass the filter, if an index finds them and they are not too many."""
        if time.monotonic() - self._looked > _LOOK_AGAIN:
            self._look()
        kind = self._kind_of(conn, query.version)
        single = (c for c in query.conditions if isinstance(c, Condition))
        usable = [c for c in single if _can_be_found(c) and _name(kind, c.field) in self._made]
        key = (kind, query.tenant, query.conditions)
        if not usable or time.monotonic() - self._many.get(key, -math.inf) < _LOOK_AGAIN:
            return None
        found = self._read(conn, kind, query, min(usable, key=lambda c: len(c.values)))
        if len(found) <= _MOST:
            return found
        if len(self._many) >= _MOST_REMEMBERED:
            self._many.clear()
        self._many[key] = time.monotonic()
        return None

    def _read(self, conn: Connection, kind: str, query: Query, c: Condition) -> list[int]:
        """Up to `_MOST + 1` records that pass all conditions, found by one of them."""
        values = [query.tenant, *map(_stored, c.values)]
        places = ", ".join(f"?{n}" for n in range(2, len(values) + 1))
        given = self._store.engine.filter(query.conditions, len(values))
        # then a key is the value itself, and the record need not be read
        is_exact = len(query.conditions) == 1 and all(map(_has_own_key, c.values))
        rows = (
            f"select r.record from evervec_records as r indexed by {_name(kind, c.field)} "
            f"where {_is_live(kind, 'r.')} and r.tenant = ?1 and {_key('r.metadata', c.field)}"
        )
        found = conn.execute(
            f"{rows} in ({places}){'' if is_exact else given.clause} "
            f"union all {rows} = {_LIST}{given.clause} limit {_MOST + 1}",
            [*values, *given.values],
        )
        return [record for (record,) in found.fetchall()]

    def _kind_of(self, conn: Connection, version: int) -> str:
        if version not in self._kinds:
            query = "select kind from evervec_versions where version = ?"
            found = conn.execute(query, (version,)).fetchone()
            if found is None:
                return ""
            self._kinds[version] = found[0]
        return self._kinds[version]

    def _look(self) -> None:
        query = "select name from sqlite_master where type = 'index' and name glob ?"
        with self._db.reading() as conn:
            self._made = {name for (name,) in conn.execute(query, (f"{_PREFIX}*",))}
        self._looked = time.monotonic()


def _can_be_found(c: Condition) -> bool:
    """Whether a record that passes has one of the values."""
    return c.op in ("eq", "in") and 0 < len(c.values) <= _MOST_VALUES and None not in c.values


def _stored(value: Any) -> Any:
    """As SQLite reads it from JSON."""
    return int(value) if isinstance(value, bool) else value


def _has_own_key(value: Any) -> bool:
    """Whether only records with this value have its key: true has the key of 1, and an object that
    of its text."""
    return isinstance(value, str) and not value.startswith("{")


def _name(kind: str, field: str) -> str:
    """A hash, because kinds and fields may be any text."""
    return f"{_PREFIX}{blake2b(repr((kind, field)).encode(), digest_size=8).hexdigest()}"


def _key(metadata: str, field: str) -> str:
    path = literal(f'$."{field}"')
    return (
        f"(case json_type({metadata}, {path}) when 'array' then {_LIST} "
        f"else json_extract({metadata}, {path}) end)"
    )


def _is_live(kind: str, row: str = "") -> str:
    return f"{row}kind = {literal(kind)} and {row}state = 'live'"
