"""The schema of a file, created or upgraded when the file is opened."""

from __future__ import annotations

import re

from evervec.stores.duckdb.connections import Connections, Session
from evervec.stores.sql.schema import Schema


def _convert(tables: str) -> str:
    """Without keys and indexes: an index would slow every write, and columns are scanned fast."""
    text = re.sub(r"create index [^;]*;\n| with \(.*?\)", "", tables)
    text = re.sub(r",(.*)\n    (?:primary key|unique) \(.*\)", r"\1", text)
    text = text.replace(" primary key", " not null")
    counts = r"(create table (\w+) \(\n    \w+) numbered"
    count = r"create sequence \2_numbers;\n\1 bigint not null default nextval('\2_numbers')"
    return re.sub(counts, count, text)


SCHEMA = Schema("evervec.stores.duckdb", _convert)


def upgrade(db: Connections) -> None:
    """Upgrade the file to the latest schema; reject one that a newer evervec made."""
    with db.file.lock:
        with db.reading() as conn:
            found = _version(conn)
        SCHEMA.check(found, db.name)
        if found == SCHEMA.latest:
            return
        with db.writing(durable=True) as conn:
            SCHEMA.upgrade(conn, found, db.name)
            conn.execute("update evervec_meta set value = $1 where key = 'schema'", [SCHEMA.latest])


def _version(conn: Session) -> int:
    exists = "select 1 from duckdb_tables() where table_name = 'evervec_meta' and not internal"
    return SCHEMA.found(conn, exists, "evervec_meta")
