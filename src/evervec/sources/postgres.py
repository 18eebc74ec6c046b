"""Attached tables in the PostgreSQL store's own database.

A trigger function for each attachment runs with the rights of whoever attached it, so that
the application's role needs none on the schema evervec. It appends keys to a log, once for
each statement; partitioned tables, whose partitions may be written by themselves, log row
by row.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, NamedTuple

from evervec.errors import InvalidArgument
from evervec.sources.base import Attached, Attachment
from evervec.stores.named import Queries
from evervec.stores.postgres import PostgresStore
from evervec.stores.postgres.connections import Session

SQL = Queries.read("evervec.sources", "postgres.sql")


class _Column(NamedTuple):
    type: str
    comparable: bool
    """values of its type can be told apart by `=`"""


class _Table(NamedTuple):
    oid: int
    name: str
    """quoted, with its schema"""
    partitioned: bool
    rows: int
    columns: dict[str, _Column]


class PostgresSource:
    """Triggers, log and rows of attached tables."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._db = store.db

    # attaching
    def plan(self, attachment: Attachment) -> Attachment:
        with self._db.reading() as conn:
            table = _find(conn, attachment.table)
            if table is None:
                raise InvalidArgument(
                    f"there is no table {attachment.table!r} in {self._store.url}: give its name "
                    "as it stands there, with its schema if that is not on the search path"
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
        return replace(attachment, sql=tuple(_statements(attachment, table)))

    def attach(self, attachment: Attachment) -> None:
        planned = self.plan(attachment)
        with self._db.writing(durable=True) as conn:
            for statement in planned.sql:
                conn.execute(statement)
            conn.execute(SQL.put_attached, (attachment.kind, attachment.dump()))
        self._store.wake()

    def detach(self, kind: str) -> bool:
        with self._db.writing(durable=True) as conn:
            conn.execute(f"drop function if exists evervec.{_prefix(kind)}() cascade")
            conn.execute(SQL.drop_changes, (kind,))
            return conn.execute(SQL.drop_attached, (kind,)).rowcount == 1

    def attached(self) -> list[Attached]:
        with self._db.reading() as conn:
            return _attached(conn)

    def trouble(self, attachment: Attachment) -> str | None:
        with self._db.reading() as conn:
            return _trouble(conn, attachment)

    # following
    def fold(self, limit: int) -> int:
        with self._db.reading() as conn:
            if not conn.execute(SQL.any_changes).fetchone()[0]:
                return 0
        with self._db.writing(durable=False) as conn:
            rows = conn.execute(SQL.take_changes, (limit,)).fetchall()
            known = {a.attachment.kind: a.attachment for a in _attached(conn)}
            changed: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
            for kind, tenant, id in rows:
                if kind not in known:
                    continue
                if id is None:  # truncated
                    for owner, gone in self._all_of(kind):
                        changed[owner, kind][gone] = None
                else:
                    changed[known[kind].owner if tenant is None else tenant, kind][id] = None
            self._enqueue(conn, changed, 0)
        return len(rows)

    def _all_of(self, kind: str) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for collection in self._store.collections(None, {}):
            after = 0
            while collection.kind == kind and (
                records := self._store.expected(None, collection.version, after, 5000)
            ):
                found += [(record.tenant, record.id) for record in records if record.live]
                after = records[-1].record
        return found

    def backfill(self, limit: int, priority: int) -> int:
        with self._db.reading() as conn:
            if not conn.execute(SQL.any_unfinished).fetchone()[0]:
                return 0
        with self._db.writing(durable=False) as conn:
            row = conn.execute(SQL.unfinished).fetchone()
            if row is None:  # another worker is at it
                return 0
            attachment, position = Attachment.load(row[0]), json.loads(row[1])
            table = _find(conn, attachment.table)
            if table is None or _trouble(conn, attachment) is not None:
                return 0
            tenant = f"t.{_quoted(attachment.tenant)}::text" if attachment.tenant else "null"
            chosen = f"{_texts(attachment, 't')}, {tenant}"
            found = _behind(conn, attachment, table, chosen, position, limit)
            changed: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
            for *key, owner in found:
                if None not in key:
                    whose = attachment.owner if owner is None else owner
                    changed[whose, attachment.kind][attachment.id_of(key)] = None
            self._enqueue(conn, changed, priority)
            last = json.dumps(found[-1][:-1]) if len(found) == limit else None
            conn.execute(SQL.set_position, (last, attachment.kind))
        return len(found)

    def _enqueue(
        self,
        conn: Session,
        changed: Mapping[tuple[str, str], Mapping[str, None]],
        priority: int,
    ) -> None:
        for (tenant, kind), ids in sorted(changed.items()):
            self._store.enqueue(
                tenant, kind, list(ids), loaded=True, priority=priority, conn=conn.raw
            )

    # reading
    def count(self, attachment: Attachment) -> int:
        with self._db.reading() as conn:
            table = _find(conn, attachment.table)
            if table is None:
                return 0
            if table.rows > 100_000:
                return table.rows
            count: int = conn.execute(f"select count(*) from {table.name}").fetchone()[0]
        return count

    def page(
        self, attachment: Attachment, position: Sequence[Any], limit: int
    ) -> list[Mapping[str, Any]]:
        with self._db.reading() as conn:
            table = _find(conn, attachment.table)
            if table is None:
                return []
            chosen = _chosen(attachment, attachment.columns)
            found = _behind(conn, attachment, table, chosen, position, limit)
        return [dict(zip(attachment.columns, row, strict=True)) for row in found]

    def rows(
        self, attachment: Attachment, ids: Sequence[str], *, whole: bool = False
    ) -> dict[str, Mapping[str, Any]]:
        keys = [key for id in ids if len(key := attachment.key_of(id)) == len(attachment.key)]
        with self._db.reading() as conn:
            table = _find(conn, attachment.table)
            if table is None or not keys:
                return {}
            columns = tuple(table.columns) if whole else attachment.columns
            wanted = [list(column) for column in zip(*keys, strict=True)]
            places = ", ".join(f"${n + 1}::text[]" for n in range(len(wanted)))
            names = ", ".join(f"k{n}" for n in range(len(wanted)))
            same = " and ".join(
                f"t.{_quoted(column)} = w.k{n}::{table.columns[column].type}"
                for n, column in enumerate(attachment.key)
            )
            chosen = ", ".join(f"t.{_quoted(column)}" for column in columns)
            found = conn.execute(
                f"select {_texts(attachment, 't')}, {chosen} from unnest({places}) as w ({names}) "
                f"join {table.name} as t on {same}",
                wanted,
            ).fetchall()
        size = len(attachment.key)
        rows: dict[str, Mapping[str, Any]] = {}
        for row in found:
            read = dict(zip(columns, row[size:], strict=True))
            if not whole:
                read.update(zip(attachment.key, row[:size], strict=True))
            rows[attachment.id_of(row[:size])] = read
        return rows


def _attached(conn: Session) -> list[Attached]:
    rows = conn.execute(SQL.attached).fetchall()
    return [Attached(Attachment.load(text), done) for text, done in rows]


def _find(conn: Session, name: str) -> _Table | None:
    """The table that a name means: as it stands, or as SQL reads it."""
    row = conn.execute(SQL.find_table, (name, _is_sql_name(name))).fetchone()
    if row is None:
        return None
    columns = {
        column: _Column(type, comparable)
        for column, type, comparable in conn.execute(SQL.columns, (row[0],))
    }
    oid, qualified, partitioned, rows = row
    return _Table(oid, qualified, partitioned, rows, columns)


def _is_sql_name(name: str) -> bool:
    """Whether `to_regclass` can read it, which raises for what it cannot."""
    parts = name.split(".")
    return len(parts) <= 2 and all(
        part and (part.replace("_", "a").isalnum() or (part[0] == part[-1] == '"'))
        for part in parts
    )


def _trouble(conn: Session, attachment: Attachment) -> str | None:
    table = _find(conn, attachment.table)
    if table is None:
        return f"the table {attachment.table} is gone: detach it, or attach its new name"
    gone = [column for column in attachment.columns if column not in table.columns]
    if gone:
        return f"{attachment.table} has no column {', '.join(gone)} any more: attach it anew"
    prefix = _prefix(attachment.kind)
    there = dict(conn.execute(SQL.triggers, (table.oid, prefix)).fetchall())
    wanted = {f"{prefix}_{event}" for event in _events(table)}
    off = sorted((wanted - there.keys()) | {name for name, disabled in there.items() if disabled})
    if off:
        return (
            f"{attachment.table} lacks the trigger {', '.join(off)}, or it is disabled, so "
            "changes go unnoticed: attach it anew"
        )
    return None


def _behind(
    conn: Session,
    attachment: Attachment,
    table: _Table,
    chosen: str,
    position: Sequence[Any],
    limit: int,
) -> list[tuple[Any, ...]]:
    """Rows in order of their keys, behind a key whose parts are texts."""
    key = ", ".join(f"t.{_quoted(column)}" for column in attachment.key)
    behind = ""
    if position:
        marks = ", ".join(
            f"${n + 2}::text::{table.columns[column].type}"
            for n, column in enumerate(attachment.key)
        )
        behind = f"where ({key}) > ({marks})"
    return conn.execute(
        f"select {chosen} from {table.name} as t {behind} order by {key} limit $1",
        (limit, *(str(value) for value in position)),
    ).fetchall()


def _chosen(attachment: Attachment, columns: Sequence[str]) -> str:
    """Columns, those of the key as texts, as ids have them."""
    return ", ".join(
        f"t.{_quoted(column)}{'::text' if column in attachment.key else ''}" for column in columns
    )


def _texts(attachment: Attachment, row: str) -> str:
    return ", ".join(f"{row}.{_quoted(column)}::text" for column in attachment.key)


def _events(table: _Table) -> tuple[str, ...]:
    if table.partitioned:
        return ("rows", "truncate")
    return ("insert", "update", "delete", "truncate")


def _statements(attachment: Attachment, table: _Table) -> list[str]:
    """The function and its triggers."""
    name = _prefix(attachment.kind)
    function = f"evervec.{name}"
    body = _row_body(attachment, table) if table.partitioned else _statement_body(attachment, table)
    rights = "security definer set search_path = pg_catalog, pg_temp"
    statements = [
        f"drop function if exists {function}() cascade",
        f"create function {function}() returns trigger language plpgsql {rights} as $ev${body}$ev$",
        f"revoke all on function {function}() from public",
    ]
    call = f"execute function {function}()"
    if table.partitioned:
        statements.append(
            f"create trigger {name}_rows after insert or update or delete on {table.name} "
            f"for each row {call}"
        )
    else:
        old, new = "old table as old_rows", "new table as new_rows"
        for event, seen in (("insert", new), ("update", f"{old} {new}"), ("delete", old)):
            statements.append(
                f"create trigger {name}_{event} after {event} on {table.name} "
                f"referencing {seen} for each statement {call}"
            )
    statements.append(
        f"create trigger {name}_truncate after truncate on {table.name} for each statement {call}"
    )
    return statements


def _statement_body(attachment: Attachment, table: _Table) -> str:
    """Keys of what a statement changed: of an update only where a watched column differs, and
    both keys where the key or the tenant does."""
    joined = " and ".join(f"o.{_quoted(c)} = n.{_quoted(c)}" for c in attachment.key)
    first = _quoted(attachment.key[0])
    differs = _differs(attachment, table, attachment.columns)
    moved = _differs(attachment, table, [attachment.tenant]) if attachment.tenant else "false"
    return f"""
begin
    if tg_op = 'INSERT' then
        {_log(attachment, "n")} from new_rows as n;
    elsif tg_op = 'DELETE' then
        {_log(attachment, "o")} from old_rows as o;
    elsif tg_op = 'TRUNCATE' then
        {_log_all(attachment)};
    else
        {_log(attachment, "n")} from new_rows as n left join old_rows as o on {joined}
        where o.{first} is null or {differs};
        {_log(attachment, "o")} from old_rows as o left join new_rows as n on {joined}
        where n.{first} is null or {moved};
    end if;
    return null;
end
"""


def _row_body(attachment: Attachment, table: _Table) -> str:
    old_values, new_values = _values(attachment, "old"), _values(attachment, "new")
    columns = attachment.columns
    differs = _differs(attachment, table, columns, "old", "new")
    moves = [*attachment.key, *([attachment.tenant] if attachment.tenant else [])]
    moved = _differs(attachment, table, moves, "old", "new")
    insert = "insert into evervec.changes (kind, tenant, id) values"
    return f"""
begin
    if tg_op = 'TRUNCATE' then
        {_log_all(attachment)};
    elsif tg_op = 'INSERT' then
        {insert} ({new_values});
    elsif tg_op = 'DELETE' then
        {insert} ({old_values});
    elsif {differs} then
        {insert} ({new_values});
        if {moved} then
            {insert} ({old_values});
        end if;
    end if;
    return null;
end
"""


def _differs(
    attachment: Attachment,
    table: _Table,
    columns: Sequence[str],
    old: str = "o",
    new: str = "n",
) -> str:
    parts = []
    for column in columns:
        cast = "" if table.columns[column].comparable else "::text"
        name = _quoted(column)
        parts.append(f"{old}.{name}{cast} is distinct from {new}.{name}{cast}")
    return "(" + " or ".join(parts) + ")"


def _log(attachment: Attachment, row: str) -> str:
    values = _values(attachment, row)
    return f"insert into evervec.changes (kind, tenant, id) select {values}"


def _log_all(attachment: Attachment) -> str:
    return (
        "insert into evervec.changes (kind, tenant, id) "
        f"values ({_literal(attachment.kind)}, null, null)"
    )


def _values(attachment: Attachment, row: str) -> str:
    """Kind, tenant and id of a row: of several columns a JSON list of their texts."""
    texts = [f"{row}.{_quoted(column)}::text" for column in attachment.key]
    id = texts[0]
    if len(texts) > 1:
        parts = " || ',' || ".join(f"to_json({text})::text" for text in texts)
        id = f"'[' || {parts} || ']'"
    tenant = f"{row}.{_quoted(attachment.tenant)}::text" if attachment.tenant else "null"
    return f"{_literal(attachment.kind)}, {tenant}, {id}"


def _prefix(kind: str) -> str:
    return f"attached_{blake2b(kind.encode(), digest_size=6).hexdigest()}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
