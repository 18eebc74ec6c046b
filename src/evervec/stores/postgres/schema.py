"""The schema of a database, created or upgraded when the database is opened."""

from __future__ import annotations

import re

from evervec.stores.postgres.connections import Connections, Session
from evervec.stores.postgres.partitions import drop_copies, split_new
from evervec.stores.sql.schema import Schema

_FILES = (
    "schema.sql", "queue.sql", "claim_functions.sql", "queue_in_sql.sql", "counts.sql", "usage.sql",
)  # fmt: skip


def _convert(statement: str) -> str:
    """Texts are compared byte by byte, regardless of the database's locale."""
    text = re.sub(r"create index evervec_", "create index ", statement)
    text = text.replace("evervec_", "evervec.").replace(" double", " double precision")
    text = re.sub(r"^(    \w+ text)\b", r'\1 collate "C"', text, flags=re.MULTILINE)
    text = text.replace(" numbered", " counted primary key").replace(" prose", " text")
    return text.replace(" counted", " bigint generated always as identity")


# query the catalogue itself: the session's cache of names may be stale
_EXISTS = "select 1 from pg_tables where schemaname = 'evervec'"
# with the triggers on tables of the application, whose functions are in the schema
_DROPS = "select 'drop schema evervec cascade'"
SCHEMA = Schema(
    "evervec.stores.postgres", _convert, _EXISTS, _DROPS, _FILES, shared=("schema.sql",),
    meta="evervec.meta",
)  # fmt: skip
_LOCK = 0x65766572  # "ever"


def upgrade(db: Connections, parts: int) -> None:
    """Upgrade the database to the latest schema; reject one that a newer evervec made. `parts`: the
    partitions of a new store's tables."""
    SCHEMA.upgrade(db, _prepare, lambda conn: split_new(conn, parts) if parts > 1 else None)


def _prepare(conn: Session) -> None:
    """Keep other processes from doing the same, and moves into partitions from copying what is about
    to change. An existing schema needs no privilege to create one."""
    conn.execute("select pg_advisory_xact_lock($1)", (_LOCK,))
    there = "select 1 from pg_namespace where nspname = 'evervec'"
    if conn.execute(there).fetchone() is None:
        conn.execute("create schema evervec")
    drop_copies(conn)
