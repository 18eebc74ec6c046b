"""Full-text search: BM25 over a table of words that is written with the records."""

from __future__ import annotations

from typing import Any

from evervec.model.filters import Conditions
from evervec.stores.duckdb.changes import Changes
from evervec.stores.duckdb.engine import SQL
from evervec.stores.duckdb.filters import Filter
from evervec.stores.sql import finding
from evervec.stores.sql.words import part_of_text, terms


class Finding(Changes, finding.Finding):
    """The part of the store that searches use."""

    def mark(self) -> int:
        return self.db.mark()

    def search_text(
        self,
        tenant: str,
        kind: str | None,
        query: str,
        limit: int,
        filter: Conditions,
    ) -> list[tuple[int, float]]:
        stems = dict.fromkeys(self.stemmed(term) for term in terms(query))
        wanted = [stem for stem in stems if stem]
        words = [term for term in wanted if " " not in term]
        phrases = [f" {term} " for term in wanted if " " in term]
        with self.db.reading() as conn:
            if wanted:
                head: list[Any] = [tenant, kind, limit, words, phrases]
                given = Filter(filter, len(head))
                ranked = SQL.match_text.replace("{filter}", given.clause)
                rows = conn.execute(ranked, [*head, *given.values]).fetchall()
                if rows:
                    return rows
            # for text that is not split into words, such as a part of Chinese or Japanese text
            if (part := part_of_text(query)) is None:
                return []
            head = [tenant, kind, limit, part]
            given = Filter(filter, len(head))
            plain = SQL.contains_text.replace("{filter}", given.clause)
            return conn.execute(plain, [*head, *given.values]).fetchall()
