"""Attached tables in the PostgreSQL store's own database: finding, following and reading them.

`postgres_triggers` has their triggers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from evervec.errors import InvalidArgument, ValueRefused
from evervec.stores.named import Queries
from evervec.stores.postgres import PostgresStore
from evervec.stores.postgres.connections import Connections, Session
from evervec.tables.base import Attached, Attachment, Row, TableChanged, Unfit
from evervec.tables.names import prefix, quoted
from evervec.tables.postgres_triggers import OUTPUT, Column, Table, events, statements, text_of
from evervec.tables.source import START, TableSource

SQL = Queries.read("evervec.tables", "postgres.sql")

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


class PostgresSource(TableSource[Session]):
    """Triggers, log and rows of attached tables."""

    _store: PostgresStore

    def __init__(self, store: PostgresStore) -> None:
        super().__init__(store)
        self._db = store.db

    # attaching
    def plan(self, attachment: Attachment) -> Attachment:
        return plan(self._db, attachment)

    def attach(self, attachment: Attachment, *, backfill: bool = True) -> None:
        planned = self.plan(attachment)
        with self._db.writing(durable=True) as conn:
            for statement in planned.sql:
                conn.execute(statement)
            conn.execute(
                SQL.put_attached, (planned.kind, planned.dump(), START if backfill else None)
            )
        self._store.wake()

    def detach(self, kind: str) -> bool:
        with self._db.writing(durable=True) as conn:
            conn.execute(f"drop function if exists evervec.{prefix(kind)}() cascade")
            conn.execute(SQL.drop_changes, (kind,))
            dropped: int = conn.execute(SQL.drop_attached, (kind,)).rowcount
        return dropped == 1

    def attached(self) -> list[Attached]:
        with self._db.reading() as conn:
            return _loaded(conn.execute(SQL.attached))

    def trouble(self, attachment: Attachment) -> str | None:
        with self._db.reading() as conn:
            try:
                table = _check(conn, attachment)
            except TableChanged as error:
                return str(error)
            there = dict(
                conn.execute(SQL.triggers, (table.oid, prefix(attachment.kind))).fetchall()
            )
        wanted = {f"{prefix(attachment.kind)}_{event}" for event in events(table)}
        if missing := sorted(wanted - there.keys()):
            return (
                f"{attachment.table} lacks the trigger {', '.join(missing)}, so changes are "
                "missed: attach it again, or run `evervec verify --repair`"
            )
        if off := sorted(name for name, fires in there.items() if not fires):
            return (
                f"the trigger {', '.join(off)} of {attachment.table} is disabled, so changes are "
                "missed: attach the table again, or run `evervec verify --repair`"
            )
        return None

    # following
    def logged(self, kind: str, ids: Sequence[str]) -> set[str]:
        with self._db.reading() as conn:
            found = {id for (id,) in conn.execute(SQL.logged, (kind,))}
        return set(ids) if None in found else found & set(ids)

    @contextmanager
    def _writing(self) -> Iterator[Session]:
        with self._db.writing(durable=False) as conn:
            conn.execute(_OUTPUT)
            yield conn

    def _raw(self, conn: Session) -> Any:
        return conn.raw

    def _any_changes(self) -> bool:
        with self._db.reading() as conn:
            return bool(conn.execute(SQL.any_changes).fetchone()[0])

    def _take_changes(self, conn: Session, limit: int) -> list[tuple[str, str | None, str | None]]:
        return conn.execute(SQL.take_changes, (limit,)).fetchall()

    def _attached(self, conn: Session) -> list[Attached]:
        # locked until the end of the transaction, so that a detach sees all jobs made from its log
        return _loaded(conn.execute(f"{SQL.attached} for key share"))

    def _any_unfinished(self) -> bool:
        with self._db.reading() as conn:
            return bool(conn.execute(SQL.any_unfinished).fetchone()[0])

    def _unfinished(self, conn: Session) -> list[tuple[Attachment, str]]:
        rows = conn.execute(SQL.unfinished).fetchall()
        return [(Attachment.load(text), position) for text, position in rows]

    def _set_position(self, conn: Session, kind: str, position: str | None) -> None:
        conn.execute(SQL.set_position, (position, kind))

    def _marked(self, kind: str) -> tuple[str, int] | None:
        with self._db.reading() as conn:
            found: tuple[str, int] | None = conn.execute(SQL.marked, (kind,)).fetchone()
        return found

    def _mark(self, conn: Session, kind: str, example: Unfit) -> bool:
        return any(first for (first,) in conn.execute(SQL.mark, (example.id, kind)).fetchall())

    def _clear_mark(self, kind: str, times: int) -> None:
        with self._db.statement() as conn:
            conn.execute(SQL.clear_mark, (kind, times))

    # reading
    def count(self, attachment: Attachment) -> int:
        return count(self._db, attachment)

    def page(self, attachment: Attachment, behind: Sequence[Any], limit: int) -> list[Row]:
        with self._reading() as conn:
            return self._page(conn, attachment, attachment.columns, behind, limit)

    def keys(self, attachment: Attachment, behind: Sequence[Any], limit: int) -> list[Row]:
        with self._reading() as conn:
            return self._page(conn, attachment, (), behind, limit)

    def _page(
        self,
        conn: Session,
        attachment: Attachment,
        columns: Sequence[str],
        behind: Sequence[Any],
        limit: int,
    ) -> list[Row]:
        table = _check(conn, attachment)
        key = [f"t.{quoted(column)}" for column in attachment.key]
        known = " and ".join(f"{column} is not null" for column in key)
        types = [table.columns[column].type for column in attachment.key]
        marks = ", ".join(f"${n + 2}::text::{type}" for n, type in enumerate(types))
        beyond = f"and ({', '.join(key)}) > ({marks})" if behind else ""
        return [
            _row(attachment, columns, found)
            for found in conn.execute(
                f"select {_chosen(attachment, table, columns)} from {table.name} as t "
                f"where {known} {beyond} order by {', '.join(key)} limit $1",
                (limit, *behind),
            )
        ]

    def rows(self, attachment: Attachment, ids: Sequence[str]) -> dict[str, Row]:
        def read(some: Sequence[str]) -> dict[str, Row]:
            with self._reading() as conn:
                table = _check(conn, attachment)
                chosen = _chosen(attachment, table, attachment.columns)
                found = _among(conn, attachment, table, chosen, some)
            rows = (_row(attachment, attachment.columns, row) for row in found)
            return {row.id: row for row in rows}

        return _bisect_bad_values(read, ids)

    def whole(self, attachment: Attachment, ids: Sequence[str]) -> dict[str, Row]:
        def read(some: Sequence[str]) -> dict[str, Row]:
            with self._reading() as conn:
                table = _check(conn, attachment)
                columns = [c for c, column in table.columns.items() if column.readable]
                values = (f"t.{quoted(column)}" for column in columns)
                chosen = ", ".join([_keys(attachment), _tenant(attachment), *values])
                found = _among(conn, attachment, table, chosen, some)
            rows = (_row(attachment, columns, row) for row in found)
            return {row.id: row for row in rows}

        return _bisect_bad_values(read, ids)

    @contextmanager
    def _reading(self) -> Iterator[Session]:
        with self._db.snapshot() as conn:
            conn.execute(_OUTPUT)
            yield conn


def plan(db: Connections, attachment: Attachment) -> Attachment:
    with db.reading() as conn:
        table = _find(conn, attachment)
        if table is None:
            raise InvalidArgument(
                f"table {attachment.table!r} does not exist in {db.name}: give its exact name, "
                "with its schema if that is not on the search path"
            )
        for column in attachment.columns:
            if column not in table.columns:
                raise InvalidArgument(
                    f"{attachment.table} has no column {column!r}; it has "
                    f"{', '.join(table.columns)}"
                )
        if not conn.execute(SQL.is_key, (table.oid, list(attachment.key))).fetchone()[0]:
            raise InvalidArgument(
                f"{', '.join(attachment.key)} is not a key of {attachment.table}: name the "
                "columns of its primary key, or of a unique index without conditions"
            )
        lacks = [] if table.may_trigger else ["trigger"]
        lacks += ["select"] if _unreadable(attachment, table) else []
        if lacks:
            raise InvalidArgument(
                f"{table.role} may not attach {attachment.table}: its owner must run "
                f"GRANT {', '.join(lacks).upper()} ON {table.name} TO {quoted(table.role)}"
            )
    types = tuple(table.columns[column].type for column in attachment.key)
    planned = replace(attachment, place=table.place, types=types)
    return replace(planned, sql=tuple(statements(planned, table)))


def count(db: Connections, attachment: Attachment) -> int:
    with db.reading() as conn:
        table = _find(conn, attachment)
        if table is None:
            return 0
        if table.rows > 100_000:
            return table.rows
        rows: int = conn.execute(f"select count(*) from {table.name}").fetchone()[0]
    return rows


def _loaded(rows: Iterable[tuple[str, bool]]) -> list[Attached]:
    return [Attached(Attachment.load(text), done) for text, done in rows]


def _bisect_bad_values(
    read: Callable[[Sequence[str]], dict[str, Row]], ids: Sequence[str]
) -> dict[str, Row]:
    """Read rows; bisect around an id that is not valid for the key's type, or a value that Python
    cannot represent, so that the other rows are still read."""
    if not ids:
        return {}
    try:
        return read(ids)
    except ValueRefused:
        pass
    if len(ids) == 1:
        return {}
    half = len(ids) // 2
    return _bisect_bad_values(read, ids[:half]) | _bisect_bad_values(read, ids[half:])


def _find(conn: Session, attachment: Attachment) -> Table | None:
    """The table that a name means: where it was attached, else by exact name, else parsed as
    SQL."""
    name = attachment.table
    place = (*attachment.place, None, None)[:2]
    row = conn.execute(SQL.find_table, (name, bool(_SQL_NAME.fullmatch(name)), *place)).fetchone()
    if row is None:
        return None
    columns = {name: Column(*rest) for name, *rest in conn.execute(SQL.columns, (row[0],))}
    return Table._make((*row, columns))


def _check(conn: Session, attachment: Attachment) -> Table:
    table = _find(conn, attachment)
    if table is None:
        raise TableChanged(
            f"the table {attachment.table} is gone: detach it, or attach its new name"
        )
    if gone := [column for column in attachment.columns if column not in table.columns]:
        raise TableChanged(
            f"{attachment.table} no longer has the column {', '.join(gone)}: attach it again"
        )
    types = tuple(table.columns[column].type for column in attachment.key)
    if attachment.types not in ((), types):
        raise TableChanged(
            f"the type of the key of {attachment.table} changed from "
            f"{', '.join(attachment.types)} to {', '.join(types)}: attach it again"
        )
    if hidden := _unreadable(attachment, table):
        raise TableChanged(
            f"{table.role} may not read {', '.join(hidden)} of {attachment.table}: its owner must "
            f"run GRANT SELECT ON {table.name} TO {quoted(table.role)}"
        )
    return table


def _unreadable(attachment: Attachment, table: Table) -> list[str]:
    return [column for column in attachment.columns if not table.columns[column].readable]


def _among(
    conn: Session, attachment: Attachment, table: Table, chosen: str, ids: Sequence[str]
) -> list[tuple[Any, ...]]:
    keys = [key for id in ids if len(key := attachment.key_of(id)) == len(attachment.key)]
    if not keys:
        return []
    wanted = [list(column) for column in zip(*keys, strict=True)]
    places = ", ".join(f"${n + 1}::text[]" for n in range(len(wanted)))
    names = ", ".join(f"k{n}" for n in range(len(wanted)))
    same = " and ".join(
        f"t.{quoted(column)} = w.k{n}::{table.columns[column].type}"
        for n, column in enumerate(attachment.key)
    )
    return conn.execute(
        f"select {chosen} from unnest({places}) as w ({names}) join {table.name} as t on {same}",
        wanted,
    ).fetchall()


def _keys(attachment: Attachment) -> str:
    return ", ".join(text_of(f"t.{quoted(column)}") for column in attachment.key)


def _tenant(attachment: Attachment) -> str:
    return text_of(f"t.{quoted(attachment.tenant)}") if attachment.tenant else "null"


def _chosen(attachment: Attachment, table: Table, columns: Sequence[str]) -> str:
    """Key and tenant as the triggers write them, then columns."""
    values = [_value(f"t.{quoted(column)}", table.columns[column]) for column in columns]
    return ", ".join([_keys(attachment), _tenant(attachment), *values])


def _value(name: str, column: Column) -> str:
    """A column in a form that does not depend on the session, and that Python can always represent:
    Python's dates are limited to the years 1 to 9999."""
    if column.base in _UNCONVERTED:
        return name
    if column.category == "A":
        return f"to_json({name})"
    return f"to_json({name}) #>> '{{}}'" if column.category == "D" else f"{name}::text"


def _row(attachment: Attachment, columns: Sequence[str], found: Sequence[Any]) -> Row:
    size = len(attachment.key)
    key, values = found[:size], found[size + 1 :]
    return Row(
        attachment.id_of(key), found[size] or None, dict(zip(columns, values, strict=True)), key
    )
