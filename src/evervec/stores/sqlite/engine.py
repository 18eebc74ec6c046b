"""What all parts of the SQLite store share: connections, queries, clock, counter."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import orjson

from evervec.stores.named import Queries
from evervec.stores.sql import engine
from evervec.stores.sqlite.connections import Connections


def _dialect(shared: str) -> str:
    """Translate the shared queries: `?1` for `$1`, lists as JSON, no casts."""
    text = re.sub(r"::(?:double precision|\w+)", "", shared)
    text = re.sub(r"\$(\d+)", r"?\1", text)
    return re.sub(r"list\((\?\d+)\)", r"(select value from json_each(\1))", text)


SQL = Queries.of_store("evervec.stores.sqlite", _dialect)


def listed(values: Iterable[object]) -> str:
    """Values as one parameter, for `in (select value from json_each(?))`."""
    return orjson.dumps(list(values)).decode()


class Engine(engine.Engine):
    """The base of the store's parts."""

    sql = SQL
    listed = staticmethod(listed)
    db: Connections

    def __init__(self, db: Connections, clock: Callable[[], float], max_attempts: int) -> None:
        super().__init__(clock, max_attempts)
        self.db = db

    def take_numbers(self, conn: sqlite3.Connection, count: int) -> int:
        """Take `count` new numbers from the store's single counter; returns the first."""
        last: int = conn.execute(SQL.take_numbers, (count,)).fetchone()[0]
        return last - count + 1

    def numbers(self, conn: Any, count: int) -> Iterator[int]:
        first = self.take_numbers(conn, count) if count else 0
        return iter(range(first, first + count))

    def raise_counter(self, conn: engine.Connection, above: int) -> None:
        conn.execute(SQL.raise_counter, (above,))

    def each(self, conn: engine.Connection, query: str, rows: Sequence[tuple[Any, ...]]) -> None:
        conn.executemany(query, rows)

    def fresh_number(self, conn: engine.Connection) -> int:
        number: int = conn.execute(SQL.take_numbers, (1,)).fetchone()[0]
        return number
