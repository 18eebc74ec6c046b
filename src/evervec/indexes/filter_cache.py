"""The records that fit the filters of recent searches.

To find all records that fit a filter, an engine reads the metadata of all, unless SQLite has an
index of the field. So the result is kept, and on SQLite brought up to date with what was added and
changed since. Filters that many records fit are tested on the best rows of a search instead.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evervec.indexes.base import Query
from evervec.stores.named import Queries
from evervec.stores.sql.engine import Connection, Engine

_MOST_ASKED = 256
"""filters that are remembered"""

Records = NDArray[np.int64]
Few = Callable[[Connection, Query], list[int] | None]
State = tuple[int, ...]
"""of the store; the first number is its mark"""


class _Known(NamedTuple):
    state: State
    records: Records


class FittingCache:
    """The results of filters, the least recently used of which are evicted."""

    def __init__(
        self,
        engine: Engine,
        sql: Queries,
        most_bytes: int,
        *,
        lists_changes: bool,
        few: Few | None = None,
    ) -> None:
        """`lists_changes`: the store has a list of the records that were changed. `few`: finds
        records by the index of a field."""
        self._engine = engine
        self._sql = sql
        self._few = few
        self._lists_changes = lists_changes
        self._most_bytes = most_bytes
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._asked: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, query: Query) -> FittingRecords:
        key = _key(query)
        with self._lock:
            is_repeated = key in self._asked
            self._asked[key] = None
            self._asked.move_to_end(key)
            while len(self._asked) > _MOST_ASKED:
                self._asked.popitem(last=False)
        return FittingRecords(self, query, is_repeated=is_repeated)

    def clear(self) -> None:
        with self._lock:
            self._known.clear()

    def known(self, query: Query) -> Records | None:
        """All that fit, if the result of an earlier search can be brought up to date, or the index
        of a field finds them."""
        key = _key(query)
        with self._lock:
            known = self._known.get(key)
        if known is None:
            return self._found(query)
        if not self._lists_changes:
            return known.records if known.state == (self._engine.mark(),) else None
        with self._engine.db.snapshot() as conn:
            state = self._state(conn)
            if state == known.state:
                return known.records
            if state[0] < known.state[0] or state[1:] != known.state[1:]:
                return None
            seen = known.state[0]
            rows = conn.execute(self._sql.changed_since, (query.tenant, seen)).fetchall()
            changed = np.array([record for (record,) in rows], np.int64)
            again = self._among(conn, changed, query)
            new = self._filtered(conn, self._sql.filtered_since, [*_of(query), seen], query)
        kept = known.records
        if len(changed):
            kept = kept[~np.isin(kept, changed)]
        return self._keep(key, state, np.union1d(kept, np.concatenate((again, new))))

    def _found(self, query: Query) -> Records | None:
        """All that fit, if they are few and an index finds them."""
        if self._few is None:
            return None
        with self._engine.db.snapshot() as conn:
            state = self._state(conn)
            records = self._few(conn, query)
        if records is None:
            return None
        return self._keep(_key(query), state, np.unique(np.array(records, np.int64)))

    def all(self, query: Query) -> Records:
        known = self.known(query)
        if known is not None:
            return known
        before = (self._engine.mark(),)
        with self._engine.db.snapshot() as conn:
            state = self._state(conn) if self._lists_changes else before
            found = self._filtered(conn, self._sql.filtered, _of(query), query)
        return self._keep(_key(query), state, np.sort(found))

    def _state(self, conn: Connection) -> State:
        return tuple(conn.execute(self._sql.fitting_state).fetchone())

    def among(self, records: Records, query: Query) -> Records:
        with self._engine.db.reading() as conn:
            return self._among(conn, records, query)

    def _among(self, conn: Connection, records: Records, query: Query) -> Records:
        values = [self._engine.listed(records.tolist()), *_of(query)]
        return self._filtered(conn, self._sql.filtered_among, values, query)

    def _filtered(self, conn: Connection, sql: str, values: list[Any], query: Query) -> Records:
        given = self._engine.filter(query.conditions, len(values))
        rows = conn.execute(sql + given.clause, [*values, *given.values]).fetchall()
        return np.array([record for (record,) in rows], np.int64)

    def _keep(self, key: str, state: State, records: Records) -> Records:
        with self._lock:
            self._known[key] = _Known(state, records)
            self._known.move_to_end(key)
            size = sum(known.records.nbytes for known in self._known.values())
            while size > self._most_bytes:
                size -= self._known.popitem(last=False)[1].records.nbytes
        return records


class FittingRecords:
    """The records that fit one search's filter."""

    def __init__(self, cache: FittingCache, query: Query, *, is_repeated: bool) -> None:
        self.is_repeated = is_repeated
        self._cache = cache
        self._query = query

    def known(self) -> Records | None:
        return self._cache.known(self._query)

    def all(self) -> Records:
        return self._cache.all(self._query)

    def among(self, records: Records) -> Records:
        return self._cache.among(records, self._query)


def _of(query: Query) -> list[Any]:
    return [query.tenant, query.version]


def _key(query: Query) -> str:
    """By the text of the conditions: 1 and True are equal, but not as values of a filter."""
    return repr((query.tenant, query.version, query.conditions))
