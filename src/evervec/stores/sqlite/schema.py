"""The schema of a file, created or upgraded when the file is opened."""

from __future__ import annotations

import re
import sqlite3

from evervec.errors import StoreError
from evervec.stores.sql.schema import Schema
from evervec.stores.sqlite.connections import Connections

_TYPES = {"bigint": "integer", "double": "real", "bytea": "blob", "numbered": "integer primary key"}


def _convert(statement: str) -> str:
    """A table whose key is not a number needs no rowid beside it."""
    text = re.sub(r" with \([^()]*\)", "", statement)
    for neutral, own in _TYPES.items():
        text = text.replace(f" {neutral}", f" {own}")
    keyed = "text primary key" in text or "    primary key (" in text
    return text.replace("\n);", "\n) without rowid;") if keyed else text


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
