"""DuckDB's connections, queries and numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from evervec.stores.duckdb.connections import Connections
from evervec.stores.duckdb.filters import Filter
from evervec.stores.named import FOR_UPDATE, Column, Queries, expand_rows
from evervec.stores.sql import engine
from evervec.stores.sql.engine import Connection
from evervec.stores.sql.stems import stems_of


def _rows(columns: Sequence[Column], name: str) -> str:
    arrays = (f"unnest({c.parameter}::{c.type}[]) as {c.name}" for c in columns)
    return f"(select {', '.join(arrays)}) as {name}"


def _dialect(query: str) -> str:
    """Lists as arrays."""
    text = expand_rows(query, _rows).replace("octets(", "strlen(")
    text = FOR_UPDATE.sub("", text.replace("evervec_current_jobs", "evervec_jobs"))
    text = re.sub(r"cross (join \w+ as \w+ on)", r"\1", text)
    text = re.sub(r"in list\((\$\d+)\)", r"in (select unnest(\1::bigint[]))", text)
    return re.sub(r"in texts\((\$\d+)\)", r"in (select unnest(\1::varchar[]))", text)


class Engine(engine.Engine):
    """The connections and counter of one store."""

    sql = Queries.of_store("evervec.stores.duckdb", _dialect)
    filter = Filter
    dialect = staticmethod(_dialect)
    db: Connections

    def mark(self) -> int:
        return self.db.mark()

    def numbers(self, conn: Connection, count: int) -> Iterator[int]:
        return iter(self.db.file.take(count) if count else ())

    def raise_counter(self, conn: Connection, above: int) -> None:
        self.db.file.raise_counter(above)

    def stemmed(self, text: str) -> str:
        """The stems of a text's words, separated by spaces."""
        return " ".join(stems_of(text))
