"""Schema versions and the way up from each to the next.

`schema_N.sql` takes a database from schema N-1 to N. All missing steps run in one
transaction under an advisory lock, so two processes that start at once do them once, and
one that is killed midway leaves the database as it was.
"""

from __future__ import annotations

from importlib.resources import files

from evervec.errors import StoreError
from evervec.stores.postgres.connections import Connections, Session

LATEST = 6
_LOCK = 0x65766572  # "ever"


def upgrade(db: Connections) -> None:
    """Bring the database to the latest schema; refuse one that a newer evervec made."""
    with db.reading() as conn:
        found = _version(conn)
    if found == LATEST:
        return
    with db.writing(durable=True) as conn:
        conn.execute("select pg_advisory_xact_lock($1)", (_LOCK,))
        found = _version(conn)  # another process may have been faster
        if found > LATEST:
            raise StoreError(
                f"{db.name} was made by a newer evervec (its schema is {found}, this version "
                f"knows {LATEST}): upgrade evervec, or open another database"
            )
        if not found:
            # one that is there needs no right to make it
            there = "select 1 from pg_namespace where nspname = 'evervec'"
            if conn.execute(there).fetchone() is None:
                conn.execute("create schema evervec")
            conn.execute("create table evervec.meta (key text primary key, value bigint)")
        for number in range(found + 1, LATEST + 1):
            for statement in statements(number):
                conn.execute(statement)
            conn.execute(
                "insert into evervec.meta (key, value) values ('schema', $1) "
                "on conflict (key) do update set value = excluded.value",
                (number,),
            )


def statements(number: int) -> list[str]:
    """The statements of one step. A semicolon ends one only at a line's end, outside of a
    function's body."""
    text = files(__package__).joinpath(f"schema_{number}.sql").read_text("utf-8")
    found, current = [], ""
    for line in text.splitlines(keepends=True):
        current += line
        if line.rstrip().endswith(";") and current.count("$$") % 2 == 0:
            found.append(current)
            current = ""
    return found


def _version(conn: Session) -> int:
    # asked of the catalogue itself: what the session remembers of names may be older
    if conn.execute("select 1 from pg_tables where schemaname = 'evervec'").fetchone() is None:
        return 0
    row = conn.execute("select value from evervec.meta where key = 'schema'").fetchone()
    return int(row[0]) if row else 0
