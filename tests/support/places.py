"""Where a store under fault lies, an SQLite file or a database, seen by a stranger to evervec."""

import re
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support import postgres

Place = Path | str
"""the path of a file, or the URL of a database"""

_TABLES = ("records", "jobs", "points", "ledger", "attempts", "versions")
_REMOVED = {True: "removals", False: "removed"}
_NO_POINTS = """(select null::bigint as record, null::bytea as hash, null::bigint as seq,
    null::text as vector where false)"""


def query(place: Place, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """What is in the tables. Their names are those of SQLite, `evervec_…`."""
    if isinstance(place, Path):
        conn = sqlite3.connect(place)
        try:
            return conn.execute(sql, values).fetchall()
        finally:
            conn.close()
    return postgres.execute(place, _as_postgres(place, sql), *values)


def _as_postgres(url: str, sql: str) -> str:
    if "evervec_points" in sql:
        tables = postgres.execute(
            url, "select tablename from pg_tables where tablename like 'points%'"
        )
        every = " union all ".join(f"select * from evervec.{name}" for (name,) in tables)
        sql = sql.replace("evervec_points", f"({every})" if every else _NO_POINTS)
    return re.sub(r"evervec_(\w+)", r"evervec.\1", sql)


def contents(place: Place) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables."""
    tables = (*_TABLES, _REMOVED[isinstance(place, str)])
    return {
        name: sorted(query(place, f"select * from evervec_{name}"), key=repr) for name in tables
    }


def integrity(place: Place) -> str:
    """What the engine itself finds wrong."""
    return str(query(place, "pragma integrity_check")[0][0]) if isinstance(place, Path) else "ok"


def connect(place: Place) -> Any:
    """A caller's own connection."""
    return (
        sqlite3.connect(place, timeout=30) if isinstance(place, Path) else postgres.connect(place)
    )


def somebody_waits(place: Place) -> bool:
    """Whether a transaction waits for another; a file's lock does not tell."""
    waiting = """select 1 from pg_stat_activity
                 where wait_event_type = 'Lock' and datname = current_database()"""
    return isinstance(place, Path) or bool(postgres.execute(place, waiting))


def vector_of(stored: Any) -> NDArray[np.float32]:
    """A vector as the table has it."""
    if isinstance(stored, str):
        return np.array(stored.strip("[]").split(","), np.float32)
    return np.frombuffer(stored, "<f4")
