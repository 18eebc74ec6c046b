"""Schema versions and the way up from each to the next.

`schema_N.sql` takes a file from schema N-1 to N. All missing steps run in one
transaction that holds the write lock, so two processes that start at once do them
once, and one that is killed midway leaves the file as it was.
"""

from __future__ import annotations

import sqlite3
from importlib.resources import files

from evervec.errors import StoreError
from evervec.stores.sqlite.connections import Connections

LATEST = 7


def upgrade(db: Connections) -> None:
    """Bring the file to the latest schema; refuse one that a newer evervec made."""
    with db.reading() as conn:
        found = _version(conn)
    if found == LATEST:
        return
    if db.read_only:
        what = f"has schema {found}, and this version needs {LATEST}" if found else "is no store"
        raise StoreError(
            f"{db.name} {what}, which cannot be changed while it is open for reading only: open "
            "it once with the right to write it"
        )
    with db.writing(durable=True) as conn:
        found = _version(conn)  # another process may have been faster
        if found > LATEST:
            raise StoreError(
                f"{db.name} was made by a newer evervec (its schema is {found}, this version "
                f"knows {LATEST}): upgrade evervec, or open another file"
            )
        for number in range(found + 1, LATEST + 1):
            for statement in statements(number):
                conn.execute(statement)
            conn.execute(
                "insert or replace into evervec_meta (key, value) values ('schema', ?)", (number,)
            )


def statements(number: int) -> list[str]:
    """The statements of one step; `executescript` would commit behind our back."""
    text = files(__package__).joinpath(f"schema_{number}.sql").read_text("utf-8")
    found, current = [], ""
    for line in text.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            found.append(current)
            current = ""
    return found


def _version(conn: sqlite3.Connection) -> int:
    known = "select 1 from sqlite_schema where type = 'table' and name = 'evervec_meta'"
    if conn.execute(known).fetchone() is None:
        return 0
    row = conn.execute("select value from evervec_meta where key = 'schema'").fetchone()
    return int(row[0]) if row else 0
