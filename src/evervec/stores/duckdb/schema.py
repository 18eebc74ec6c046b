"""Schema versions and the way up from each to the next.

`schema_N.sql` takes a file from schema N-1 to N. All missing steps run in one transaction, so
a process that is killed midway leaves the file as it was.
"""

from __future__ import annotations

from importlib.resources import files

from evervec.errors import StoreError
from evervec.stores.duckdb.connections import Connections, Session

LATEST = 5


def upgrade(db: Connections) -> None:
    """Bring the file to the latest schema; refuse one that a newer evervec made."""
    with db.file.lock:
        with db.reading() as conn:
            found = _version(conn)
        if found > LATEST:
            raise StoreError(
                f"{db.name} was made by a newer evervec (its schema is {found}, this version "
                f"knows {LATEST}): upgrade evervec, or open another file"
            )
        if found == LATEST:
            return
        with db.writing(durable=True) as conn:
            for number in range(found + 1, LATEST + 1):
                for statement in statements(number):
                    conn.execute(statement)
                conn.execute("update evervec_meta set value = $1 where key = 'schema'", [number])


def statements(number: int) -> list[str]:
    """The statements of one step. A semicolon ends one only at a line's end."""
    text = files(__package__).joinpath(f"schema_{number}.sql").read_text("utf-8")
    return [f"{statement};" for statement in text.split(";\n") if statement.strip()]


def _version(conn: Session) -> int:
    known = "select 1 from duckdb_tables() where table_name = 'evervec_meta' and not internal"
    if conn.execute(known).fetchone() is None:
        return 0
    row = conn.execute("select value from evervec_meta where key = 'schema'").fetchone()
    return int(row[0]) if row else 0
