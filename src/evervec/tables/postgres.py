"""Attached tables in the PostgreSQL store's own database: finding, following and reading them.

`postgres_triggers` has their triggers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from evervec.errors import InvalidArgument
from evervec.stores.named import Queries
from evervec.stores.postgres.connections import Session
from evervec.stores.postgres.engine import Engine
from evervec.stores.sql.engine import Connection
from evervec.stores.sql.quotes import quoted
from evervec.tables.attached import Columns, again
from evervec.tables.base import Attachment, Row, TableChanged, trigger_prefix
from evervec.tables.postgres_triggers import (
    OUTPUT,
    Column,
    PostgresTable,
    events,
    statements,
    text_of,
)
from evervec.tables.source import TableSource

SQL = Queries.read("evervec.tables", "attached.sql", "postgres.sql", dialect=Engine.dialect)

_PART = r"""(?:"(?:[^"]|"")+"|[^\W\d][\w$]*)"""
_SQL_NAME = re.compile(rf"{_PART}(?:\.{_PART})?")
"""names that `to_regclass` can parse; it raises for others"""

# keys are written as the triggers write them, whatever this session's output settings are
_OUTPUT = "; ".join(f"set local {name} = {value}" for name, value in OUTPUT.items())
_UNCONVERTED = frozenset(
    {
        "text", "varchar", "bpchar", "name", "int2", "int4", "int8", "float4", "float8", "bool",
        "numeric", "uuid", "json", "jsonb", "bytea",
    }
)  # fmt: skip


class PostgresSource(TableSource[PostgresTable]):
    """Attached tables in a PostgreSQL database."""

    sql = SQL
    where = "give its exact name, with its schema if that is not on the search path"
    to_share = " for key share"
    to_own = " for update skip locked"

    def _find(self, conn: Connection, attachment: Attachment) -> PostgresTable | None:
        """The table that a name means: where it was attached, else by exact name, else parsed as
        SQL."""
        name = attachment.table
        known = (*attachment.place, None, None)[:2]
        wanted = (name, bool(_SQL_NAME.fullmatch(name)), *known)
        row = conn.execute(SQL.find_table, wanted).fetchone()
        if row is None:
            return None
        oid, schema, bare, quoted_name, by_row, rows, may_trigger, role = row
        columns = {name: Column(*rest) for name, *rest in conn.execute(SQL.columns, (oid,))}
        place = (schema, bare)
        return PostgresTable(
            attachment, quoted_name, rows, columns, oid, place, by_row, may_trigger, role
        )

    def _check(self, conn: Connection, attachment: Attachment) -> PostgresTable:
        table = super()._check(conn, attachment)
        types = _key_types(table)
        if attachment.types not in ((), types):
            raise TableChanged(
                f"the type of the key of {attachment.table} changed from "
                f"{', '.join(attachment.types)} to {', '.join(types)}: {again(attachment.table)}"
            )
        if hidden := _unreadable(table):
            raise TableChanged(
                f"{table.role} may not read {', '.join(hidden)} of {attachment.table}: its owner "
                f"must run GRANT SELECT ON {table.name} TO {quoted(table.role)}"
            )
        return table

    def _limit_wait(self, conn: Connection) -> None:
        conn.execute("set local lock_timeout = '1s'")

    def _is_key(self, conn: Connection, table: PostgresTable) -> bool:
        key = list(table.attachment.key)
        (is_key,) = conn.execute(SQL.is_key, (table.oid, key)).fetchone()
        return bool(is_key)

    def _planned(self, table: PostgresTable) -> Attachment:
        lacks = [] if table.may_trigger else ["TRIGGER"]
        lacks += ["SELECT"] if _unreadable(table) else []
        if lacks:
            raise InvalidArgument(
                f"{table.role} may not attach {table.attachment.table}: its owner must run "
                f"GRANT {', '.join(lacks)} ON {table.name} TO {quoted(table.role)}"
            )
        sql = tuple(statements(table))
        return replace(table.attachment, place=table.place, types=_key_types(table), sql=sql)

    def _drop_triggers(self, conn: Connection, kind: str) -> None:
        conn.execute(f"drop function if exists evervec.{trigger_prefix(kind)}() cascade")

    def _triggers(self, conn: Connection, table: PostgresTable) -> dict[str, bool]:
        mine = trigger_prefix(table.attachment.kind)
        return dict(conn.execute(SQL.triggers, (table.oid, mine)).fetchall())

    def _follower(self, conn: Connection, kind: str) -> str | None:
        found = conn.execute(SQL.follower, (trigger_prefix(kind),)).fetchone()
        return found and str(found[0])

    def _wanted_triggers(self, table: PostgresTable) -> Iterable[str]:
        return [f"{trigger_prefix(table.attachment.kind)}_{event}" for event in events(table)]

    @contextmanager
    def _reading(self) -> Iterator[Session]:
        with self._db.snapshot() as conn:
            conn.execute(_OUTPUT)
            yield conn

    @contextmanager
    def _writing(self) -> Iterator[Session]:
        with self._db.writing(durable=False) as conn:
            conn.execute(_OUTPUT)
            yield conn

    def _raw(self, conn: Session) -> Any:
        return conn.raw

    # reading
    def _page(
        self,
        conn: Connection,
        table: PostgresTable,
        columns: Columns,
        behind: Sequence[Any],
        limit: int,
    ) -> list[Row]:
        key = ", ".join(table.key)
        known = " and ".join(f"{column} is not null" for column in table.key)
        types = enumerate(_key_types(table))
        marks = ", ".join(f"${n + 2}::text::{type}" for n, type in types)
        beyond = f"and ({key}) > ({marks})" if behind else ""
        found = conn.execute(
            f"select {_chosen(table, columns)} from {table.name} as t "
            f"where {known} {beyond} order by {key} limit $1",
            (limit, *behind),
        )
        return [_row(table, columns, row) for row in found]

    def _among(
        self, conn: Connection, table: PostgresTable, ids: Sequence[str], *, whole: bool
    ) -> list[Row]:
        keys = table.attachment.keys_of(ids)
        if not keys:
            return []
        columns: Columns = table.attachment.columns
        if whole:
            columns = [name for name, column in table.columns.items() if column.readable]
        wanted = [list(column) for column in zip(*keys, strict=True)]
        places = ", ".join(f"${n + 1}::text[]" for n in range(len(wanted)))
        names = ", ".join(f"k{n}" for n in range(len(wanted)))
        types = enumerate(zip(table.key, _key_types(table), strict=True))
        same = " and ".join(f"{column} = w.k{n}::{type}" for n, (column, type) in types)
        found = conn.execute(
            f"select {_chosen(table, columns, as_is=whole)} "
            f"from unnest({places}) as w ({names}) join {table.name} as t on {same}",
            wanted,
        ).fetchall()
        return [_row(table, columns, row) for row in found]


def _key_types(table: PostgresTable) -> tuple[str, ...]:
    return tuple(table.columns[column].type for column in table.attachment.key)


def _unreadable(table: PostgresTable) -> list[str]:
    return [column for column in table.attachment.columns if not table.columns[column].readable]


def _chosen(table: PostgresTable, columns: Columns, *, as_is: bool = False) -> str:
    """Key and tenant as the triggers write them, then columns."""
    keys, tenant = map(text_of, table.key), "null"
    if owner := table.attachment.tenant:
        tenant = text_of(f"t.{quoted(owner)}")
    values = [
        f"t.{quoted(c)}" if as_is else _value(f"t.{quoted(c)}", table.columns[c]) for c in columns
    ]
    return ", ".join([*keys, tenant, *values])


def _value(name: str, column: Column) -> str:
    """A column in a form that does not depend on the session, and that Python can always represent:
    Python's dates are limited to the years 1 to 9999."""
    if column.base in _UNCONVERTED:
        return name
    if column.category == "A":
        return f"to_json({name})"
    return f"to_json({name}) #>> '{{}}'" if column.category == "D" else f"{name}::text"


def _row(table: PostgresTable, columns: Columns, found: Sequence[Any]) -> Row:
    size = len(table.key)
    key, tenant, values = found[:size], found[size], found[size + 1 :]
    id = table.attachment.id_of(key)
    return Row(id, tenant or None, dict(zip(columns, values, strict=True)), key)
