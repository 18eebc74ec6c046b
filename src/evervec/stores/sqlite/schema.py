"""The schema of a file, created or upgraded when the file is opened."""

from __future__ import annotations

import re
import sqlite3

from evervec.errors import StoreError
from evervec.stores.sql.schema import Schema
from evervec.stores.sqlite.connections import Connections

_TYPES = {"bigint": "integer", "double": "real", "bytea": "blob", "numbered": "integer primary key"}


def _convert(tables: str) -> str:
    """Tables that have no number as their key need no rowid beside it."""
    text = re.sub(r" with \(.*?\)", "", tables)
    text = re.sub(r"\b(bigint|double|bytea|numbered)\b", lambda found: _TYPES[found[0]], text)
    keyed = r"(create table [^;]*?(?:text primary key|primary key \()[^;]*?\n\));"
    return re.sub(keyed, r"\1 without rowid;", text)


SCHEMA = Schema("evervec.stores.sqlite", _convert)


def upgrade(db: Connections) -> None:
    """Upgrade the file to the latest schema; reject one that was created by a newer evervec."""
    with db.reading() as conn:
        found = _version(conn)
    if found == SCHEMA.latest:
        return
    if db.read_only:
        needs = f"has schema {found}, and this version needs {SCHEMA.latest}"
        raise StoreError(
            f"{db.name} {needs if found else 'is not a store'}, which cannot be changed while it "
            "is open read-only: open it once with write permission"
        )
    with db.writing(durable=True) as conn:
        SCHEMA.upgrade(conn, _version(conn), db.name)  # another process may have upgraded it
        conn.execute(
            "insert or replace into evervec_meta (key, value) values ('schema', ?)",
            (SCHEMA.latest,),
        )


def _version(conn: sqlite3.Connection) -> int:
    exists = "select 1 from sqlite_schema where type = 'table' and name = 'evervec_meta'"
    return SCHEMA.found(conn, exists, "evervec_meta")
