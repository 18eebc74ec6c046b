"""Attached tables in the SQLite store's own file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from evervec.stores.named import Queries
from evervec.stores.sql.engine import Connection
from evervec.stores.sql.quotes import quoted
from evervec.stores.sqlite.engine import Engine, listed
from evervec.tables.attached import Columns, Table
from evervec.tables.base import Attachment, Row, Unfit, trigger_prefix
from evervec.tables.source import TableSource
from evervec.tables.sqlite_triggers import (
    has_affinity,
    is_known,
    key_texts,
    tenant_of,
    text_of,
    triggers,
)
from evervec.tables.values import as_valid

_BOOLEANS = ("BOOL", "BOOLEAN")
SQL = Queries.read("evervec.tables", "attached.sql", "sqlite.sql", dialect=Engine.dialect)


class SqliteSource(TableSource[Table]):
    """Attached tables in an SQLite file."""

    sql = SQL
    where = "attach a table of the same file"

    def _find(self, conn: Connection, attachment: Attachment) -> Table | None:
        name = attachment.table
        if conn.execute(SQL.is_table, (name,)).fetchone() is None:
            return None
        found = conn.execute("select name, type from pragma_table_xinfo(?)", (name,))
        return Table(attachment, quoted(name), 0, {column: type.upper() for column, type in found})

    def _is_key(self, conn: Connection, table: Table) -> bool:
        name = table.attachment.table
        primary = {column for (column,) in conn.execute(SQL.primary_key, (name,))}
        unique = [
            {column for (column,) in conn.execute("select name from pragma_index_info(?)", index)}
            for index in conn.execute(SQL.unique_indexes, (name,)).fetchall()
        ]
        return set(table.attachment.key) in [primary, *unique]

    def _planned(self, table: Table) -> Attachment:
        return replace(table.attachment, sql=tuple(triggers(table).values()))

    def _drop_triggers(self, conn: Connection, kind: str) -> None:
        mine = f"evervec_{trigger_prefix(kind)}"
        for name, _, _ in conn.execute(SQL.triggers).fetchall():
            if name.startswith(mine):
                conn.execute(f"drop trigger {quoted(name)}")

    def _triggers(self, conn: Connection, table: Table) -> dict[str, bool]:
        """SQLite rewrites a trigger when a column that it names is renamed, so its text is
        compared."""
        mine, wanted = table.attachment.table.lower(), triggers(table)
        return {
            name: _same(sql, wanted[name])
            for name, of, sql in conn.execute(SQL.triggers)
            if of.lower() == mine and name in wanted
        }

    def _follower(self, conn: Connection, kind: str) -> str | None:
        mine = f"evervec_{trigger_prefix(kind)}"
        found = (of for name, of, _ in conn.execute(SQL.triggers) if name.startswith(mine))
        return next(found, None)

    def _wanted_triggers(self, table: Table) -> Iterable[str]:
        return triggers(table)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._db.reading() as conn, _lenient(conn):
            yield conn

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._db.writing(durable=False) as conn, _lenient(conn):
            yield conn

    def _raw(self, conn: sqlite3.Connection) -> sqlite3.Connection:
        return conn

    def unfit(self, attachment: Attachment) -> Iterator[Unfit]:
        yield from super().unfit(attachment)
        with self._reading() as conn:
            table = self._check(conn, attachment)
            if all(has_affinity(table.columns[column]) for column in attachment.key):
                return
            texts = ", ".join(key_texts(table, "t"))
            place = f"row_number() over (partition by {texts} order by {', '.join(table.key)})"
            shadowed = conn.execute(
                f"select * from (select {place} as place, {tenant_of(attachment, 't')}, {texts} "
                f"from {table.name} as t where {is_known(attachment, 't')}) where place > 1"
            ).fetchall()
        for _, tenant, *key in shadowed:
            id = attachment.id_of(key)
            yield Unfit(tenant or attachment.owner, id, "id: another row has the same one")

    # reading
    def _page(
        self, conn: Connection, table: Table, columns: Columns, behind: Sequence[Any], limit: int
    ) -> list[Row]:
        key, where = ", ".join(table.key), is_known(table.attachment, "t")
        if behind:  # a text may be invalid UTF-8, so it is passed as bytes
            marks = ("cast(? as text)" if isinstance(part, str) else "?" for part in behind)
            where += f" and ({key}) > ({', '.join(marks)})"
        values = [
            part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
            for part in behind
        ]
        which = f"where {where} order by {key} limit ?"
        return _read(conn, table, columns, which, (*values, limit))

    def _among(
        self, conn: Connection, table: Table, ids: Sequence[str], *, whole: bool
    ) -> list[Row]:
        """A key column is compared with its own affinity, so that its index is used; a column
        without affinity is compared as text."""
        columns = tuple(table.columns) if whole else table.attachment.columns
        sides = [
            name if has_affinity(table.columns[column]) else text_of(name)
            for name, column in zip(table.key, table.attachment.key, strict=True)
        ]
        places = [f"json_extract(value, '$[{place}]')" for place in range(len(sides))]
        wanted = f"select {', '.join(places)} from json_each(?)"
        which = f"where ({', '.join(sides)}) in ({wanted}) order by {', '.join(table.key)}"
        keys = listed(table.attachment.keys_of(ids))
        return _read(conn, table, columns, which, (keys,))[::-1]


def _same(stored: str, made: str) -> bool:
    """SQLite writes the first words in capitals, and quotes names that were changed and changed
    back."""
    one, other = (text.lower().replace('"', "") for text in (stored, made))
    return one == other


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


def _read(
    conn: Connection, table: Table, columns: Columns, which: str, values: Sequence[Any]
) -> list[Row]:
    attachment, size = table.attachment, len(table.key)
    chosen = [
        *key_texts(table, "t"), tenant_of(attachment, "t"), *table.key,
        *(f"t.{quoted(column)}" for column in columns),
    ]  # fmt: skip
    return [
        Row(
            attachment.id_of(row[:size]),
            row[size],
            {
                column: _value(value, table.columns[column])
                for column, value in zip(columns, row[2 * size + 1 :], strict=True)
            },
            row[size + 1 : 2 * size + 1],
        )
        for row in conn.execute(
            f"select {', '.join(chosen)} from {table.name} as t {which}", values
        )
    ]


def _value(value: Any, declared: str) -> Any:
    """A column's value; SQLite has no booleans, so what is declared as one holds 0 or 1."""
    if declared in _BOOLEANS and value in (0, 1):
        return bool(value)
    return as_valid(value)
