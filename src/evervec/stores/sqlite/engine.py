"""SQLite's connections, queries and counter."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

import orjson

from evervec.stores.named import FOR_UPDATE, Column, Queries, expand_rows
from evervec.stores.sql import engine
from evervec.stores.sql.engine import Connection, Values
from evervec.stores.sqlite.connections import Connections
from evervec.stores.sqlite.filters import Filter

_NUMBERED = re.compile(r"\?(\d+)")


def _rows(columns: Sequence[Column], name: str) -> str:
    """One row: a statement runs once for each (`executemany`)."""
    given = ", ".join(f"{column.parameter} as {column.name}" for column in columns)
    return f"(select {given}) as {name}"


def _listed_rows(columns: Sequence[Column], name: str) -> str:
    """All rows, in one JSON list of lists."""
    given = (f"json_extract(value, '$[{n}]') as {c.name}" for n, c in enumerate(columns))
    return f"(select {', '.join(given)} from json_each({columns[0].parameter})) as {name}"


def _values(found: re.Match[str]) -> str:
    """Inserting values is a sixth faster than inserting from a query."""
    return f"values ({re.sub(' as [a-z_0-9]+', '', found[1])})"


def _dialect(query: str) -> str:
    """`?1` for `$1`, lists as JSON, no casts."""
    text = expand_rows(expand_rows(query, _listed_rows, "listed "), _rows)
    text = FOR_UPDATE.sub("", re.sub(r"::(?:double precision|\w+)", "", text))
    text = re.sub(r"select \* from \(select ([^()]+)\) as n(?: where true)?", _values, text)
    text = re.sub(r"\$(\d+)", r"?\1", text).replace("evervec_current_jobs", "evervec_jobs")
    text = text.replace("strpos(", "instr(")
    text = re.sub(r"octets\(([\w.]+)\)", r"length(cast(\1 as blob))", text)
    return re.sub(r"in (?:list|texts)\((\?\d+)\)", r"in (select value from json_each(\1))", text)


@cache
def unnumbered(query: str) -> str:
    """The query with `?` for each of `?1`, `?2` and so on, if they come in this order. Python 3.12.0
    to 3.12.3 makes a warning for each value of a numbered parameter, shown or not: inserting a
    record took four times as long."""
    numbers = [int(number) for number in _NUMBERED.findall(query)]
    if numbers != list(range(1, len(numbers) + 1)):
        return query
    return _NUMBERED.sub("?", query)


SQL = Queries.of_store("evervec.stores.sqlite", _dialect)


def listed(values: Iterable[object]) -> str:
    """Values as one parameter, for `in (select value from json_each(?))`."""
    return orjson.dumps(list(values)).decode()


class Engine(engine.Engine):
    """The connections and counter of one store."""

    sql = SQL
    filter = Filter
    dialect = staticmethod(_dialect)
    listed = staticmethod(listed)
    db: Connections

    def __init__(self, db: Connections, clock: Callable[[], float], max_attempts: int) -> None:
        super().__init__(db, clock, max_attempts)
        self._marked: tuple[int | None, int] = (None, 0)
        """the number of `commits`, read just before the mark, and the mark"""

    def mark(self) -> int:
        commits, (seen, mark) = self.db.commits(), self._marked
        if commits is None or commits != seen:
            mark = super().mark()
            self._marked = (commits, mark)
        return mark

    def numbers(self, conn: Connection, count: int) -> Iterator[int]:
        if not count:
            return iter(())
        (last,) = conn.execute(SQL.take_numbers, (count,)).fetchone()
        return iter(range(last - count + 1, last + 1))

    def raise_counter(self, conn: Connection, above: int) -> None:
        conn.execute(SQL.raise_counter, (above,))

    def each(self, conn: Connection, query: str, rows: Sequence[Values]) -> None:
        if rows:
            conn.executemany(unnumbered(query), rows)

    @staticmethod
    def keyed(keys: Sequence[tuple[str, str, str]]) -> tuple[str]:
        return (listed(keys),)
