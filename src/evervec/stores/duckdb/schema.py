"""The schema of a file, created or upgraded when the file is opened."""

from __future__ import annotations

import re

import duckdb

from evervec.stores.duckdb.connections import Connections
from evervec.stores.sql.schema import Schema

_KEYED = re.compile(
    r"create table evervec_(records|jobs|kinds|pauses|sketches|notes|locks|spend|workers|asked"
    r"|streams|stream_parts|failed_messages|history|failures|failure_times) "
)
"""the tables whose keys two transactions could else insert at the same time, and small ones"""

_KEY = re.compile(r"^([^,\n]+),(.*)\n    (?:primary key|unique) \([^()]*\)", re.MULTILINE)


def _convert(statement: str) -> str:
    """Without other keys and indexes: an index would slow every write, and columns are scanned
    fast."""
    if "create index" in statement:
        return ""
    text = re.sub(r" with \([^()]*\)", "", statement).replace(" prose", " text")
    text = text.replace(" bigint primary key", " bigint not null")
    if not _KEYED.search(text):
        text = _KEY.sub(r"\1\2", text)
        text = text.replace(" primary key", " not null")
    counts = r"(create table (\w+) \(\n    \w+) (?:numbered|counted)"
    count = r"create sequence \2_numbers;\n\1 bigint not null default nextval('\2_numbers')"
    return re.sub(counts, count, text)


_EXISTS = "select 1 from duckdb_tables() where table_name = 'evervec_meta' and not internal"
_DROPS = r"""
select 'drop table if exists ' || table_name from duckdb_tables()
where table_name like 'evervec\_%' escape '\' and not internal
union all
select 'drop sequence if exists ' || sequence_name from duckdb_sequences()
where sequence_name like 'evervec\_%' escape '\'
"""
# the first look at the catalogue takes 8 ms, a third of an `open`
SCHEMA = Schema(
    "evervec.stores.duckdb", _convert, _EXISTS, _DROPS, missing=(duckdb.CatalogException,)
)


def upgrade(db: Connections) -> None:
    """Upgrade the file to the latest schema; reject one that a newer evervec made."""
    SCHEMA.upgrade(db)
