"""Where a store under fault lies, a file or a database, seen by a stranger to evervec."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from evervec import Evervec
from support import postgres

Place = Path | str
"""the path of an SQLite file, or the URL of a DuckDB file or a database"""

_TABLES = ("records", "jobs", "points", "ledger", "attempts", "versions")
_REMOVED = {"sqlite": "removed", "duckdb": "removed", "postgres": "removals"}
_NO_POINTS = """(select null::bigint as record, null::bytea as hash, null::bigint as seq,
    null::text as vector where false)"""


def kind_of(place: Place) -> str:
    """The engine's name, as the tests have it."""
    if isinstance(place, Path):
        return "sqlite"
    return "duckdb" if place.startswith("duckdb:") else "postgres"


def query(place: Place, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """What is in the tables. Their names are those of SQLite, `evervec_…`."""
    if kind_of(place) != "postgres":
        conn = connect(place)
        try:
            rows: list[tuple[Any, ...]] = conn.execute(sql, values).fetchall()
            return rows
        finally:
            conn.close()
    assert isinstance(place, str)
    return postgres.execute(place, _as_postgres(place, sql), *values)


def _as_postgres(url: str, sql: str) -> str:
    if "evervec_points" in sql:
        tables = postgres.execute(
            url, "select tablename from pg_tables where tablename ~ '^points_[0-9]+$'"
        )
        every = " union all ".join(f"select * from evervec.{name}" for (name,) in tables)
        sql = sql.replace("evervec_points", f"({every})" if every else _NO_POINTS)
    sql = sql.replace("evervec_attempts", "evervec_current_attempts")
    return re.sub(r"evervec_(\w+)", r"evervec.\1", sql)


def contents(place: Place) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables."""
    tables = (*_TABLES, _REMOVED[kind_of(place)])
    return {
        name: sorted(query(place, f"select * from evervec_{name}"), key=repr) for name in tables
    }


def integrity(place: Place) -> str:
    """What the engine itself finds wrong."""
    if kind_of(place) == "sqlite":
        return str(query(place, "pragma integrity_check")[0][0])
    return "ok"


def connect(place: Place) -> Any:
    """A connection by the engine's own driver. To a DuckDB file only the process that has it
    open can have another."""
    if isinstance(place, Path):
        return sqlite3.connect(place, timeout=30)
    if kind_of(place) == "duckdb":
        return duckdb.connect(place.removeprefix("duckdb:///"))
    return postgres.connect(place)


def caller(ev: Evervec, place: Place) -> Any:
    """A connection for `conn=`."""
    return ev.connection() if kind_of(place) == "duckdb" else connect(place)


def somebody_waits(place: Place) -> bool:
    """Whether a transaction waits for another; a file's lock does not tell."""
    waiting = """select 1 from pg_stat_activity
                 where wait_event_type = 'Lock' and datname = current_database()"""
    if isinstance(place, Path) or kind_of(place) == "duckdb":
        return True
    return bool(postgres.execute(place, waiting))


def is_written(place: Place) -> bool:
    """Whether a transaction of evervec's is under way that others may have to wait for."""
    under_way = """select 1 from pg_stat_activity where datname = current_database()
                   and application_name = 'evervec' and xact_start is not null"""
    if isinstance(place, str):
        return bool(postgres.execute(place, under_way))
    with closing(sqlite3.connect(place, timeout=0, isolation_level=None)) as conn:
        try:
            conn.execute("begin immediate")
        except sqlite3.OperationalError:
            return True
        return False


def vector_of(stored: Any) -> NDArray[np.float32]:
    """A vector as the table has it."""
    if isinstance(stored, str):
        return np.array(stored.strip("[]").split(","), np.float32)
    return np.frombuffer(stored, "<f4")
