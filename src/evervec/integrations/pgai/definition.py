"""Reads pgai's vectorizers from its tables, in the formats of versions 0.9 to 0.12.

Only `drop` writes, by calling a function of pgai.
"""

from __future__ import annotations

import re
import string
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from evervec.errors import InvalidArgument
from evervec.stores.sql.quotes import quoted
from evervec.tables.base import Row


class Stored(NamedTuple):
    """A chunk that pgai embedded."""

    text: str
    vector: Sequence[float]


@dataclass(frozen=True)
class Vectorizer:
    """A vectorizer of pgai."""

    id: int
    name: str
    table: str
    """quoted, with its schema"""
    key: Mapping[str, str]
    """the columns of the primary key and their types"""
    target: str | None
    """the table of chunks and vectors; None if there is none"""
    queue: str | None
    column: str | None
    """the column that is embedded; None if the source is not a column"""
    template: str
    provider: str
    model: str
    dimensions: int

    @property
    def template_columns(self) -> list[str]:
        """The columns that the template adds to every chunk."""
        names = string.Template(self.template).get_identifiers()
        return [name for name in names if name != "chunk"]

    @property
    def pattern(self) -> re.Pattern[str]:
        """Matches a chunk, and finds the piece of the text between what the template adds."""
        made, at = "", 0
        for found in string.Template.pattern.finditer(self.template):
            made += re.escape(self.template[at : found.start()])
            name = found["named"] or found["braced"]
            made += "(?P<chunk>.*)" if name == "chunk" else ".*?" if name else re.escape("$")
            at = found.end()
        return re.compile(made + re.escape(self.template[at:]), re.DOTALL)

    def chunks(self, conn: Any, rows: Sequence[Row]) -> dict[str, list[Stored]]:
        """The chunks of some rows by record id, in order."""
        found: dict[str, list[Stored]] = defaultdict(list)
        if self.target is not None:
            ids = {tuple(row.key): row.id for row in rows}
            query = f"select {{key}}, e.chunk, e.embedding::real[] from {self.target} as e"
            for *key, text, vector in self._of(conn, query, rows, "order by e.chunk_seq"):
                found[ids[tuple(key)]].append(Stored(text, vector))
        return found

    def queued(self, conn: Any, rows: Sequence[Row]) -> set[str]:
        """The ids of rows that are still in pgai's queue."""
        if self.queue is None:
            return set()
        ids = {tuple(row.key): row.id for row in rows}
        query = f"select distinct {{key}} from {self.queue} as e"
        return {ids[tuple(key)] for key in self._of(conn, query, rows)}

    def _of(self, conn: Any, query: str, rows: Sequence[Row], order: str = "") -> list[Any]:
        texts = ", ".join(f"format('%%s', e.{quoted(column)})" for column in self.key)
        lists = ", ".join("%s::text[]" for _ in self.key)
        names = ", ".join(f"k{n}" for n in range(len(self.key)))
        same = " and ".join(
            f"e.{quoted(column)} = w.k{n}::{type}"
            for n, (column, type) in enumerate(self.key.items())
        )
        keys = [list(part) for part in zip(*(row.key for row in rows), strict=True)]
        found: list[Any] = conn.execute(
            f"{query.format(key=texts)} join unnest({lists}) as w ({names}) on {same} {order}", keys
        ).fetchall()
        return found

    def sample(self, conn: Any, count: int) -> list[Stored]:
        if self.target is None:
            return []
        query = f"select chunk, embedding::real[] from {self.target} limit %s"
        return [Stored(*row) for row in conn.execute(query, (count,))]

    def drop(self, conn: Any) -> None:
        """Let pgai drop its trigger and queue; its vectors are kept."""
        conn.execute("select ai.drop_vectorizer(%s::int)", (self.id,))


def vectorizers(conn: Any) -> list[Vectorizer]:
    """All vectorizers of a database."""
    (there,) = conn.execute("select to_regclass('ai.vectorizer') is not null").fetchone()
    if not there:
        raise InvalidArgument("this database has no pgai: the table ai.vectorizer does not exist")
    # as JSON, because the columns differ between versions of pgai
    rows = conn.execute("select to_jsonb(v) from ai.vectorizer as v order by v.id").fetchall()
    return [_read(row) for (row,) in rows]


def _read(row: Mapping[str, Any]) -> Vectorizer:
    config = row["config"]
    loading = config.get("loading", {})
    embedding = config.get("embedding", {})
    destination = config.get("destination", {})
    target = (
        row.get("target_schema") or destination.get("target_schema"),
        row.get("target_table") or destination.get("target_table"),
    )
    queue = row.get("queue_schema"), row.get("queue_table")
    by_column = loading.get("implementation", "column") == "column"
    # before 0.10 the chunker named the column
    column = loading.get("column_name") or config.get("chunking", {}).get("chunk_column")
    formatting = config.get("formatting", {})
    key = sorted(row["source_pk"], key=lambda part: part["pknum"])
    return Vectorizer(
        id=row["id"],
        name=row.get("name") or str(row["id"]),
        table=_place(row["source_schema"], row["source_table"]),
        key={part["attname"]: part["typname"] for part in key},
        target=_place(*target) if target[1] else None,
        queue=_place(*queue) if queue[1] else None,
        column=column if by_column else None,
        template=formatting.get("template") or "$chunk",
        provider=embedding.get("implementation", ""),
        model=embedding.get("model", ""),
        dimensions=int(embedding.get("dimensions") or 0),
    )


def _place(schema: Any, name: Any) -> str:
    return f"{quoted(schema)}.{quoted(name)}"
