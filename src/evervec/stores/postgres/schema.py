"""The schema of a database, created or upgraded when the database is opened."""

from __future__ import annotations

import re

from evervec.stores.postgres.connections import Connections, Session
from evervec.stores.sql.schema import Schema

_FILES = ("schema.sql", "queue.sql", "queue_in_sql.sql", "usage.sql")


def _convert(tables: str) -> str:
    """Texts are compared byte by byte, regardless of the database's locale."""
    text = re.sub(r"create index evervec_", "create index ", tables)
    text = text.replace("evervec_", "evervec.").replace(" double", " double precision")
    text = re.sub(r"^(    \w+ text)\b", r'\1 collate "C"', text, flags=re.MULTILINE)
    return text.replace(" numbered", " bigint generated always as identity primary key")


SCHEMA = Schema("evervec.stores.postgres", _convert, _FILES)
_LOCK = 0x65766572  # "ever"


def upgrade(db: Connections) -> None:
    """Upgrade the database to the latest schema; reject one that a newer evervec made."""
    with db.reading() as conn:
        if _version(conn) == SCHEMA.latest:
            return
    with db.writing(durable=True) as conn:
        conn.execute("select pg_advisory_xact_lock($1)", (_LOCK,))
        found = _version(conn)  # another process may have been faster
        if not found:
            # an existing schema needs no privilege to create one
            there = "select 1 from pg_namespace where nspname = 'evervec'"
            if conn.execute(there).fetchone() is None:
                conn.execute("create schema evervec")
            conn.execute("create table evervec.meta (key text primary key, value bigint)")
        SCHEMA.upgrade(conn, found, db.name)
        conn.execute(
            "insert into evervec.meta (key, value) values ('schema', $1) "
            "on conflict (key) do update set value = excluded.value",
            (SCHEMA.latest,),
        )


def _version(conn: Session) -> int:
    # query the catalogue itself: the session's cache of names may be stale
    exists = "select 1 from pg_tables where schemaname = 'evervec'"
    return SCHEMA.found(conn, exists, "evervec.meta")
