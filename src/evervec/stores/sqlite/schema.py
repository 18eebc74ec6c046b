"""The schema of a file, created or upgraded when the file is opened."""

from __future__ import annotations

import re

from evervec.errors import StoreError
from evervec.stores.sql.schema import Schema
from evervec.stores.sqlite.connections import Connections

_TYPES = {
    "bigint": "integer", "double": "real", "bytea": "blob", "prose": "text",
    "numbered": "integer primary key", "counted": "integer primary key",
}  # fmt: skip


def _convert(statement: str) -> str:
    """A table whose key is not a number needs no rowid beside it."""
    text = re.sub(r" with \([^()]*\)", "", statement)
    for neutral, own in _TYPES.items():
        text = text.replace(f" {neutral}", f" {own}")
    keyed = "text primary key" in text or "    primary key (" in text
    return text.replace("\n);", "\n) without rowid;") if keyed else text


_EXISTS = "select 1 from sqlite_schema where type = 'table' and name = 'evervec_meta'"
# Triggers first, as some are on tables of the application; a virtual table takes its own tables along.
_DROPS = """
select 'drop ' || type || ' if exists "' || replace(name, '"', '""') || '"' from sqlite_schema
where type in ('trigger', 'view', 'table') and name glob 'evervec_*'
order by type = 'table', sql not like 'create virtual%'
"""
SCHEMA = Schema("evervec.stores.sqlite", _convert, _EXISTS, _DROPS)


def upgrade(db: Connections) -> None:
    """Upgrade the file to the latest schema; reject one that was created by a newer evervec."""
    if not db.read_only:
        SCHEMA.upgrade(db)
        return
    with db.reading() as conn:
        found = SCHEMA.found(conn)
    if found != SCHEMA.latest:
        needs = f"has schema {found}, and this version needs {SCHEMA.latest}"
        raise StoreError(
            f"{db.name} {needs if found else 'is not a store'}, which cannot be changed while it "
            "is open read-only: open it once with write permission"
        )
