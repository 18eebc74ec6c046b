"""Attached tables in the SQLite store's own file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from evervec.errors import InvalidArgument
from evervec.sources.base import Attached, Attachment, Row, TableChanged
from evervec.sources.following import START, Following
from evervec.sources.naming import literal, prefix, quoted
from evervec.stores.named import Queries
from evervec.stores.sqlite import SqliteStore
from evervec.stores.sqlite.engine import listed

SQL = Queries.read("evervec.sources", "sqlite.sql")
_TYPED = ("INT", "CHAR", "CLOB", "TEXT")
"""types by whose names SQLite knows them before it looks for BLOB"""


class SqliteSource(Following[sqlite3.Connection]):
    """Triggers, log and rows of attached tables."""

    _store: SqliteStore

    def __init__(self, store: SqliteStore) -> None:
        super().__init__(store)
        self._db = store.db

    # attaching
    def plan(self, attachment: Attachment) -> Attachment:
        with self._db.reading() as conn:
            types = _types(conn, attachment.table)
            if not types:
                raise InvalidArgument(
                    f"there is no table {attachment.table!r} in {self._store.url}: attach a table "
                    "of the same file"
                )
            for column in attachment.columns:
                if column not in types:
                    raise InvalidArgument(
                        f"{attachment.table} has no column {column!r}; it has {', '.join(types)}"
                    )
            if set(attachment.key) not in _keys(conn, attachment.table):
                raise InvalidArgument(
                    f"{', '.join(attachment.key)} is not a key of {attachment.table}: name the "
                    "columns of its primary key, or of a unique index without conditions"
                )
        return replace(attachment, sql=tuple(_triggers(attachment).values()))

    def attach(self, attachment: Attachment, *, backfill: bool = True) -> None:
        planned = self.plan(attachment)
        with self._db.writing(durable=True) as conn:
            self._drop_triggers(conn, attachment.kind)
            for statement in planned.sql:
                conn.execute(statement)
            conn.execute(
                SQL.put_attached, (attachment.kind, attachment.dump(), START if backfill else None)
            )
        self._store.wake()

    def detach(self, kind: str) -> bool:
        with self._db.writing(durable=True) as conn:
            self._drop_triggers(conn, kind)
            conn.execute(SQL.drop_changes, (kind,))
            return conn.execute(SQL.drop_attached, (kind,)).rowcount == 1

    def _drop_triggers(self, conn: sqlite3.Connection, kind: str) -> None:
        mine = f"evervec_{prefix(kind)}"
        for name, _ in conn.execute(SQL.triggers).fetchall():
            if name.startswith(mine):
                conn.execute(f"drop trigger {quoted(name)}")

    def attached(self) -> list[Attached]:
        with self._db.reading() as conn:
            return self._attached(conn)

    def trouble(self, attachment: Attachment) -> str | None:
        with self._db.reading() as conn:
            try:
                _check(conn, attachment)
            except TableChanged as error:
                return str(error)
            there = {
                name
                for name, table in conn.execute(SQL.triggers)
                if table.lower() == attachment.table.lower()
            }
        if missing := set(_triggers(attachment)) - there:
            return (
                f"{attachment.table} lacks the trigger {', '.join(sorted(missing))}, so changes "
                "go unnoticed: attach it again, or run `evervec verify --repair`"
            )
        return None

    # following
    def logged(self, kind: str, ids: Sequence[str]) -> set[str]:
        with self._db.reading() as conn, _lenient(conn):
            found = {id for (id,) in conn.execute(SQL.logged, (kind,))}
        return found & set(ids)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._db.writing(durable=False) as conn, _lenient(conn):
            yield conn

    def _raw(self, conn: sqlite3.Connection) -> sqlite3.Connection:
        return conn

    def _any_changes(self) -> bool:
        with self._db.reading() as conn:
            return conn.execute(SQL.any_changes).fetchone() is not None

    def _take_changes(
        self, conn: sqlite3.Connection, limit: int
    ) -> list[tuple[str, str | None, str | None]]:
        rows = conn.execute(SQL.changes, (limit,)).fetchall()
        if rows:
            conn.execute(SQL.folded, (rows[-1][0],))
        return [row[1:] for row in rows]

    def _attached(self, conn: sqlite3.Connection) -> list[Attached]:
        rows = conn.execute(SQL.attached).fetchall()
        return [Attached(Attachment.load(text), bool(done)) for text, done in rows]

    def _any_unfinished(self) -> bool:
        with self._db.reading() as conn:
            return conn.execute(SQL.unfinished).fetchone() is not None

    def _unfinished(self, conn: sqlite3.Connection) -> list[tuple[Attachment, str]]:
        return [(Attachment.load(text), place) for text, place in conn.execute(SQL.unfinished)]

    def _set_position(self, conn: sqlite3.Connection, kind: str, position: str | None) -> None:
        conn.execute(SQL.set_position, (position, kind))

    # reading
    def count(self, attachment: Attachment) -> int:
        with self._db.reading() as conn:
            if not _types(conn, attachment.table):
                return 0
            row = conn.execute(f"select count(*) from {quoted(attachment.table)}").fetchone()
        return int(row[0])

    def page(self, attachment: Attachment, behind: Sequence[Any], limit: int) -> list[Row]:
        with self._db.reading() as conn, _lenient(conn):
            _check(conn, attachment)
            return self._page(conn, attachment, attachment.columns, behind, limit)

    def _page(
        self,
        conn: sqlite3.Connection,
        attachment: Attachment,
        columns: Sequence[str],
        behind: Sequence[Any],
        limit: int,
    ) -> list[Row]:
        key = ", ".join(f"t.{quoted(column)}" for column in attachment.key)
        marks = ", ".join("?" * len(behind))
        where = f"{_is_known(attachment, 't')}" + (f" and ({key}) > ({marks})" if behind else "")
        return _read(conn, attachment, columns, f"where {where} order by {key} limit ?",
                     (*behind, limit))  # fmt: skip

    def rows(self, attachment: Attachment, ids: Sequence[str]) -> dict[str, Row]:
        with self._db.reading() as conn, _lenient(conn):
            types = _check(conn, attachment)
            found = _read(conn, attachment, attachment.columns, *_among(attachment, types, ids))
        return {row.id: row for row in found}

    def whole(self, attachment: Attachment, ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        with self._db.reading() as conn, _lenient(conn):
            types = _check(conn, attachment)
            found = _read(conn, attachment, tuple(types), *_among(attachment, types, ids))
        return {row.id: row.values for row in found}


@contextmanager
def _lenient(conn: sqlite3.Connection) -> Iterator[None]:
    """Nothing keeps an application from writing texts that are not UTF-8; one such row must not
    keep the others from being read."""
    conn.text_factory = lambda data: data.decode("utf-8", "replace")
    try:
        yield
    finally:
        conn.text_factory = str


def _types(conn: sqlite3.Connection, table: str) -> dict[str, str]:
    """The columns of a table and their declared types; none of what is no table."""
    if conn.execute(SQL.is_table, (table,)).fetchone() is None:
        return {}
    found = conn.execute("select name, type from pragma_table_xinfo(?)", (table,))
    return {name: kind.upper() for name, kind in found}


def _keys(conn: sqlite3.Connection, table: str) -> list[set[str]]:
    """The sets of columns that tell rows apart."""
    primary = {name for (name,) in conn.execute(SQL.primary_key, (table,))}
    unique = [
        {name for (name,) in conn.execute("select name from pragma_index_info(?)", (index,))}
        for (index,) in conn.execute(SQL.unique_indexes, (table,)).fetchall()
    ]
    return [primary, *unique]


def _check(conn: sqlite3.Connection, attachment: Attachment) -> dict[str, str]:
    types = _types(conn, attachment.table)
    if not types:
        raise TableChanged(
            f"the table {attachment.table} is gone: detach it, or attach its new name"
        )
    if gone := [column for column in attachment.columns if column not in types]:
        raise TableChanged(
            f"{attachment.table} has no column {', '.join(gone)} any more: attach it anew"
        )
    return types


def _read(
    conn: sqlite3.Connection,
    attachment: Attachment,
    columns: Sequence[str],
    which: str,
    values: Sequence[Any],
) -> list[Row]:
    key = [f"t.{quoted(column)}" for column in attachment.key]
    tenant = _text(f"t.{quoted(attachment.tenant)}") if attachment.tenant else "null"
    chosen = [*map(_text, key), tenant, *key, *(f"t.{quoted(column)}" for column in columns)]
    size = len(key)
    return [
        Row(
            attachment.id_of(row[:size]),
            row[size],
            dict(zip(columns, row[2 * size + 1 :], strict=True)),
            row[size + 1 : 2 * size + 1],
        )
        for row in conn.execute(
            f"select {', '.join(chosen)} from {quoted(attachment.table)} as t {which}", values
        )
    ]


def _among(
    attachment: Attachment, types: Mapping[str, str], ids: Iterable[str]
) -> tuple[str, tuple[str]]:
    """The rows with some ids. A key column is compared by its own affinity, so that its index is
    used; one that has none, as text."""
    keys = [key for id in ids if len(key := attachment.key_of(id)) == len(attachment.key)]
    sides, places = [], []
    for place, column in enumerate(attachment.key):
        name = f"t.{quoted(column)}"
        sides.append(name if _has_affinity(types[column]) else _text(name))
        places.append(f"json_extract(value, '$[{place}]')")
    return (
        f"where ({', '.join(sides)}) in (select {', '.join(places)} from json_each(?))",
        (listed(keys),),
    )


def _has_affinity(declared: str) -> bool:
    return any(word in declared for word in _TYPED) or bool(declared and "BLOB" not in declared)


def _text(value: str) -> str:
    """A value as text, and bytes as their hexadecimal digits."""
    return (
        f"case typeof({value}) when 'blob' then lower(hex({value})) else cast({value} as text) end"
    )


def _is_known(attachment: Attachment, row: str) -> str:
    """A row without a key is no record."""
    return " and ".join(f"{row}.{quoted(column)} is not null" for column in attachment.key)


def _triggers(attachment: Attachment) -> dict[str, str]:
    """The triggers by name. They only append to a narrow log, in the writer's transaction.

    Columns are compared whatever the statement sets, because generated ones are never set, and
    byte by byte, because to some collations another text is the same.
    """
    name, table = f"evervec_{prefix(attachment.kind)}", quoted(attachment.table)
    moves = (*attachment.key, *([attachment.tenant] if attachment.tenant else []))
    both = f"{_log(attachment, 'new')} {_log(attachment, 'old', _differs(moves))}"
    events = (
        ("insert", "", _log(attachment, "new")),
        ("update", f"when {_differs(attachment.columns)} ", both),
        ("delete", "", _log(attachment, "old")),
    )
    return {
        f"{name}_{event}": f"create trigger {name}_{event} after {event} on {table} "
        f"{when}begin {body} end"
        for event, when, body in events
    }


def _differs(columns: Iterable[str]) -> str:
    return " or ".join(f"old.{quoted(c)} is not new.{quoted(c)} collate binary" for c in columns)


def _log(attachment: Attachment, row: str, when: str = "") -> str:
    texts = [_text(f"{row}.{quoted(column)}") for column in attachment.key]
    id = texts[0] if len(texts) == 1 else f"json_array({', '.join(texts)})"
    tenant = _text(f"{row}.{quoted(attachment.tenant)}") if attachment.tenant else "null"
    where = _is_known(attachment, row) + (f" and ({when})" if when else "")
    return (
        "insert into evervec_changes (kind, tenant, id) "
        f"select {literal(attachment.kind)}, {tenant}, {id} where {where};"
    )
