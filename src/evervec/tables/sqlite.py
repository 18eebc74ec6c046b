"""Attached tables in the SQLite store's own file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from evervec.errors import InvalidArgument
from evervec.stores.named import Queries
from evervec.stores.sqlite import SqliteStore
from evervec.stores.sqlite.connections import Connections
from evervec.stores.sqlite.engine import listed
from evervec.tables.base import Attached, Attachment, Row, TableChanged, Unfit
from evervec.tables.names import prefix, quoted
from evervec.tables.source import START, TableSource
from evervec.tables.sqlite_triggers import (
    has_affinity,
    is_known,
    key_texts,
    tenant_of,
    text_of,
    triggers,
)
from evervec.tables.values import as_valid

SQL = Queries.read("evervec.tables", "sqlite.sql")


class SqliteSource(TableSource[sqlite3.Connection]):
    """Triggers, log and rows of attached tables."""

    _store: SqliteStore

    def __init__(self, store: SqliteStore) -> None:
        super().__init__(store)
        self._db = store.db

    # attaching
    def plan(self, attachment: Attachment) -> Attachment:
        return plan(self._db, attachment)

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
            dropped: int = conn.execute(SQL.drop_attached, (kind,)).rowcount
        return dropped == 1

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
                types = _check(conn, attachment)
            except TableChanged as error:
                return str(error)
            mine = attachment.table.lower()
            there = {name for name, table in conn.execute(SQL.triggers) if table.lower() == mine}
        if missing := set(triggers(attachment, types)) - there:
            return (
                f"{attachment.table} lacks the trigger {', '.join(sorted(missing))}, so changes "
                "are missed: attach it again, or run `evervec verify --repair`"
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

    def _marked(self, kind: str) -> tuple[str, int] | None:
        with self._db.reading() as conn:
            found: tuple[str, int] | None = conn.execute(SQL.marked, (kind,)).fetchone()
        return found

    def _mark(self, conn: sqlite3.Connection, kind: str, example: Unfit) -> bool:
        id = example.id.encode("utf-8", "backslashreplace").decode()
        return any(first for (first,) in conn.execute(SQL.mark, (id, kind)).fetchall())

    def _clear_mark(self, kind: str, times: int) -> None:
        with self._db.writing(durable=False) as conn:
            conn.execute(SQL.clear_mark, (kind, times))

    def unfit(self, attachment: Attachment) -> Iterator[Unfit]:
        yield from super().unfit(attachment)
        with self._db.reading() as conn, _lenient(conn):
            types = _check(conn, attachment)
            if all(has_affinity(types[column]) for column in attachment.key):
                return
            texts = ", ".join(key_texts(attachment, types, "t"))
            order = ", ".join(f"t.{quoted(column)}" for column in attachment.key)
            place = f"row_number() over (partition by {texts} order by {order})"
            shadowed = conn.execute(
                f"select * from (select {place} as place, {tenant_of(attachment, 't')}, {texts} "
                f"from {quoted(attachment.table)} as t where {is_known(attachment, 't')}) "
                "where place > 1"
            ).fetchall()
        for _, tenant, *key in shadowed:
            id = attachment.id_of(key)
            yield Unfit(tenant or attachment.owner, id, "id: another row has the same one")

    # reading
    def count(self, attachment: Attachment) -> int:
        return count(self._db, attachment)

    def page(self, attachment: Attachment, behind: Sequence[Any], limit: int) -> list[Row]:
        with self._db.reading() as conn, _lenient(conn):
            types = _check(conn, attachment)
            return _pages(conn, attachment, types, attachment.columns, behind, limit)

    def keys(self, attachment: Attachment, behind: Sequence[Any], limit: int) -> list[Row]:
        with self._db.reading() as conn, _lenient(conn):
            return self._page(conn, attachment, (), behind, limit)

    def _page(
        self,
        conn: sqlite3.Connection,
        attachment: Attachment,
        columns: Sequence[str],
        behind: Sequence[Any],
        limit: int,
    ) -> list[Row]:
        return _pages(conn, attachment, _check(conn, attachment), columns, behind, limit)

    def rows(self, attachment: Attachment, ids: Sequence[str]) -> dict[str, Row]:
        with self._db.reading() as conn, _lenient(conn):
            types = _check(conn, attachment)
            return _by_id(conn, attachment, types, attachment.columns, ids)

    def whole(self, attachment: Attachment, ids: Sequence[str]) -> dict[str, Row]:
        with self._db.reading() as conn, _lenient(conn):
            types = _check(conn, attachment)
            return _by_id(conn, attachment, types, tuple(types), ids)


def plan(db: Connections, attachment: Attachment) -> Attachment:
    with db.reading() as conn:
        types = _types(conn, attachment.table)
        if not types:
            raise InvalidArgument(
                f"table {attachment.table!r} does not exist in {db.name}: attach a table "
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
    return replace(attachment, sql=tuple(triggers(attachment, types).values()))


def count(db: Connections, attachment: Attachment) -> int:
    with db.reading() as conn:
        if not _types(conn, attachment.table):
            return 0
        row = conn.execute(f"select count(*) from {quoted(attachment.table)}").fetchone()
    return int(row[0])


@contextmanager
def _lenient(conn: sqlite3.Connection) -> Iterator[None]:
    """Accept texts that are not valid UTF-8, which an application may have written: one such row
    must not keep the others from being read. An invalid key keeps its bytes, so that it cannot be
    mistaken for another one."""
    conn.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    try:
        yield
    finally:
        conn.text_factory = str


def _types(conn: sqlite3.Connection, table: str) -> dict[str, str]:
    """The columns of a table and their declared types; empty if it is not a table."""
    if conn.execute(SQL.is_table, (table,)).fetchone() is None:
        return {}
    found = conn.execute("select name, type from pragma_table_xinfo(?)", (table,))
    return {name: kind.upper() for name, kind in found}


def _keys(conn: sqlite3.Connection, table: str) -> list[set[str]]:
    """The sets of columns that identify rows."""
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
            f"{attachment.table} no longer has the column {', '.join(gone)}: attach it again"
        )
    return types


def _pages(
    conn: sqlite3.Connection,
    attachment: Attachment,
    types: Mapping[str, str],
    columns: Sequence[str],
    behind: Sequence[Any],
    limit: int,
) -> list[Row]:
    key = ", ".join(f"t.{quoted(column)}" for column in attachment.key)
    where = is_known(attachment, "t")
    if behind:  # a text may be invalid UTF-8, so it is passed as bytes
        marks = ("cast(? as text)" if isinstance(part, str) else "?" for part in behind)
        where += f" and ({key}) > ({', '.join(marks)})"
    values = [
        part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        for part in behind
    ]
    which = f"where {where} order by {key} limit ?"
    return _read(conn, attachment, types, columns, which, (*values, limit))


def _by_id(
    conn: sqlite3.Connection,
    attachment: Attachment,
    types: Mapping[str, str],
    columns: Sequence[str],
    ids: Sequence[str],
) -> dict[str, Row]:
    """Rows by their ids; of several rows with one id the first, in order of keys."""
    found = _read(conn, attachment, types, columns, *_among(attachment, types, ids))
    return {row.id: row for row in reversed(found)}


def _read(
    conn: sqlite3.Connection,
    attachment: Attachment,
    types: Mapping[str, str],
    columns: Sequence[str],
    which: str,
    values: Sequence[Any],
) -> list[Row]:
    key = [f"t.{quoted(column)}" for column in attachment.key]
    chosen = [
        *key_texts(attachment, types, "t"), tenant_of(attachment, "t"), *key,
        *(f"t.{quoted(column)}" for column in columns),
    ]  # fmt: skip
    size = len(key)
    return [
        Row(
            attachment.id_of(row[:size]),
            row[size],
            dict(zip(columns, map(as_valid, row[2 * size + 1 :]), strict=True)),
            row[size + 1 : 2 * size + 1],
        )
        for row in conn.execute(
            f"select {', '.join(chosen)} from {quoted(attachment.table)} as t {which}", values
        )
    ]


def _among(
    attachment: Attachment, types: Mapping[str, str], ids: Iterable[str]
) -> tuple[str, tuple[str]]:
    """The condition for rows with some ids. A key column is compared with its own affinity, so that
    its index is used; a column without affinity is compared as text."""
    keys = [key for id in ids if len(key := attachment.key_of(id)) == len(attachment.key)]
    names = [f"t.{quoted(column)}" for column in attachment.key]
    sides = [
        name if has_affinity(types[column]) else text_of(name)
        for name, column in zip(names, attachment.key, strict=True)
    ]
    places = [f"json_extract(value, '$[{place}]')" for place in range(len(names))]
    wanted = f"select {', '.join(places)} from json_each(?)"
    which = f"where ({', '.join(sides)}) in ({wanted}) order by {', '.join(names)}"
    return which, (listed(keys),)
