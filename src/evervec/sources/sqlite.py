"""Attached tables in the SQLite store's own file."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from evervec.errors import InvalidArgument
from evervec.sources.base import Attached, Attachment
from evervec.stores.named import Queries
from evervec.stores.sqlite import SqliteStore
from evervec.stores.sqlite.engine import listed

SQL = Queries.read("evervec.sources", "sqlite.sql")

_AFFINE = ("INT", "CHAR", "CLOB", "TEXT", "REAL", "FLOA", "DOUB", "NUM", "DEC", "DATE", "TIME")


class SqliteSource:
    """Triggers, log and rows of attached tables."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._db = store.db

    # attaching
    def plan(self, attachment: Attachment) -> Attachment:
        with self._db.reading() as conn:
            types = _types(conn, attachment.table)
        if not types:
            raise InvalidArgument(
                f"there is no table {attachment.table!r} in {self._store.url}: attach a table of "
                "the same file"
            )
        for column in attachment.columns:
            if column not in types:
                raise InvalidArgument(
                    f"{attachment.table} has no column {column!r}; it has {', '.join(types)}"
                )
        return replace(attachment, sql=tuple(_triggers(attachment).values()))

    def attach(self, attachment: Attachment) -> None:
        planned = self.plan(attachment)
        with self._db.writing(durable=True) as conn:
            self._drop_triggers(conn, attachment.kind)
            for statement in planned.sql:
                conn.execute(statement)
            conn.execute(SQL.put_attached, (attachment.kind, attachment.dump()))
        self._store.wake()

    def detach(self, kind: str) -> bool:
        with self._db.writing(durable=True) as conn:
            self._drop_triggers(conn, kind)
            conn.execute(SQL.drop_changes, (kind,))
            return conn.execute(SQL.drop_attached, (kind,)).rowcount == 1

    def _drop_triggers(self, conn: sqlite3.Connection, kind: str) -> None:
        mine = _prefix(kind)
        for (name,) in conn.execute(SQL.triggers).fetchall():
            if name.startswith(mine):
                conn.execute(f"drop trigger {_quoted(name)}")

    def attached(self) -> list[Attached]:
        with self._db.reading() as conn:
            rows = conn.execute(SQL.attached).fetchall()
        return [Attached(Attachment.load(text), bool(done)) for text, done in rows]

    def trouble(self, attachment: Attachment) -> str | None:
        with self._db.reading() as conn:
            types = _types(conn, attachment.table)
            there = {name for (name,) in conn.execute(SQL.triggers)}
        if not types:
            return f"the table {attachment.table} is gone: detach it, or attach its new name"
        gone = [column for column in attachment.columns if column not in types]
        if gone:
            return f"{attachment.table} has no column {', '.join(gone)} any more: attach it anew"
        if missing := set(_triggers(attachment)) - there:
            return (
                f"{attachment.table} lacks the trigger {', '.join(sorted(missing))}, so changes "
                "go unnoticed: attach it anew"
            )
        return None

    # following
    def fold(self, limit: int) -> int:
        with self._db.reading() as conn:
            if conn.execute(SQL.any_changes).fetchone() is None:
                return 0
        with self._db.writing(durable=False) as conn:
            rows = conn.execute(SQL.changes, (limit,)).fetchall()
            known = {a.attachment.kind: a.attachment for a in self._attached(conn)}
            changed: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
            for _, kind, tenant, id in rows:
                if kind in known and id is not None:
                    owner = known[kind].owner if tenant is None else tenant
                    changed[owner, kind][id] = None
            self._enqueue(conn, changed, 0)
            if rows:
                conn.execute(SQL.folded, (rows[-1][0],))
        return len(rows)

    def backfill(self, limit: int, priority: int) -> int:
        with self._db.reading() as conn:
            if conn.execute(SQL.unfinished).fetchone() is None:
                return 0
        with self._db.writing(durable=False) as conn:
            row = conn.execute(SQL.unfinished).fetchone()
            if row is None:
                return 0
            attachment, position = Attachment.load(row[0]), json.loads(row[1])
            if self.trouble(attachment) is not None:
                return 0
            columns = [*attachment.key, *([attachment.tenant] if attachment.tenant else [])]
            chosen = ", ".join(map(_quoted, columns)) + ("" if attachment.tenant else ", null")
            found = _behind(conn, attachment, chosen, position, limit)
            changed: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
            for *key, tenant in found:
                if None not in key:
                    owner = attachment.owner if tenant is None else str(tenant)
                    changed[owner, attachment.kind][attachment.id_of(key)] = None
            self._enqueue(conn, changed, priority)
            last = json.dumps(found[-1][:-1]) if len(found) == limit else None
            conn.execute(SQL.set_position, (last, attachment.kind))
        return len(found)

    def _enqueue(
        self,
        conn: sqlite3.Connection,
        changed: Mapping[tuple[str, str], Mapping[str, None]],
        priority: int,
    ) -> None:
        for (tenant, kind), ids in changed.items():
            self._store.enqueue(tenant, kind, list(ids), loaded=True, priority=priority, conn=conn)

    def _attached(self, conn: sqlite3.Connection) -> list[Attached]:
        rows = conn.execute(SQL.attached).fetchall()
        return [Attached(Attachment.load(text), bool(done)) for text, done in rows]

    # reading
    def count(self, attachment: Attachment) -> int:
        with self._db.reading() as conn:
            count: int = conn.execute(
                f"select count(*) from {_quoted(attachment.table)}"
            ).fetchone()[0]
        return count

    def page(
        self, attachment: Attachment, position: Sequence[Any], limit: int
    ) -> list[Mapping[str, Any]]:
        columns = attachment.columns
        with self._db.reading() as conn:
            chosen = ", ".join(map(_quoted, columns))
            found = _behind(conn, attachment, chosen, position, limit)
        return [dict(zip(columns, row, strict=True)) for row in found]

    def rows(
        self, attachment: Attachment, ids: Sequence[str], *, whole: bool = False
    ) -> dict[str, Mapping[str, Any]]:
        keys = [key for id in ids if len(key := attachment.key_of(id)) == len(attachment.key)]
        with self._db.reading() as conn:
            types = _types(conn, attachment.table)
            columns = tuple(types) if whole else attachment.columns
            chosen = ", ".join(f"t.{_quoted(column)}" for column in columns)
            same = " and ".join(
                f"{_comparable(f't.{_quoted(column)}', types.get(column, ''))} = "
                f"json_extract(w.value, '$[{place}]')"
                for place, column in enumerate(attachment.key)
            )
            found = conn.execute(
                f"select {chosen} from json_each(?) as w "
                f"cross join {_quoted(attachment.table)} as t on {same}",
                (listed(keys),),
            ).fetchall()
        rows = (dict(zip(columns, row, strict=True)) for row in found)
        return {attachment.id_of([row[column] for column in attachment.key]): row for row in rows}


def _types(conn: sqlite3.Connection, table: str) -> dict[str, str]:
    """The columns of a table and their declared types."""
    return {
        name: kind.upper()
        for name, kind in conn.execute("select name, type from pragma_table_xinfo(?)", (table,))
    }


def _comparable(column: str, declared: str) -> str:
    """A key column as it equals its text: by its own affinity, so that its index is used, or,
    where it has none, as text."""
    if any(word in declared for word in _AFFINE):
        return column
    return f"cast({column} as text)"


def _behind(
    conn: sqlite3.Connection,
    attachment: Attachment,
    chosen: str,
    position: Sequence[Any],
    limit: int,
) -> list[tuple[Any, ...]]:
    """Rows in order of their keys, behind a key."""
    key = ", ".join(map(_quoted, attachment.key))
    marks = ", ".join("?" * len(position))
    behind = f"where ({key}) > ({marks})" if position else ""
    return conn.execute(
        f"select {chosen} from {_quoted(attachment.table)} {behind} order by {key} limit ?",
        (*position, limit),
    ).fetchall()


def _triggers(attachment: Attachment) -> dict[str, str]:
    """The triggers by name. They only append to a narrow log, in the writer's transaction."""
    prefix, table = _prefix(attachment.kind), _quoted(attachment.table)
    watched = ", ".join(map(_quoted, attachment.columns))
    differs = " or ".join(f"old.{_quoted(c)} is not new.{_quoted(c)}" for c in attachment.columns)
    moved = " or ".join(
        f"old.{_quoted(c)} is not new.{_quoted(c)}"
        for c in (*attachment.key, *([attachment.tenant] if attachment.tenant else []))
    )
    return {
        f"{prefix}_insert": f"create trigger {prefix}_insert after insert on {table} "
        f"begin {_log(attachment, 'new')} end",
        f"{prefix}_update": f"create trigger {prefix}_update after update of {watched} on {table} "
        f"when {differs} begin {_log(attachment, 'new')} end",
        f"{prefix}_moved": f"create trigger {prefix}_moved after update of {watched} on {table} "
        f"when {moved} begin {_log(attachment, 'old')} end",
        f"{prefix}_delete": f"create trigger {prefix}_delete after delete on {table} "
        f"begin {_log(attachment, 'old')} end",
    }


def _log(attachment: Attachment, row: str) -> str:
    texts = [f"cast({row}.{_quoted(column)} as text)" for column in attachment.key]
    id = texts[0] if len(texts) == 1 else f"json_array({', '.join(texts)})"
    tenant = f"cast({row}.{_quoted(attachment.tenant)} as text)" if attachment.tenant else "null"
    return (
        "insert into evervec_changes (kind, tenant, id) "
        f"values ({_literal(attachment.kind)}, {tenant}, {id});"
    )


def _prefix(kind: str) -> str:
    return f"evervec_attached_{blake2b(kind.encode(), digest_size=6).hexdigest()}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
