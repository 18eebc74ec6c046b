"""Full-text search, with PostgreSQL's stemming."""

from __future__ import annotations

from evervec.stores.sql import records
from evervec.stores.sql.records import Scores, TextQuery
from evervec.stores.sql.words import fold, owner_word


class Records(records.Records):
    def _ranked(self, asked: TextQuery) -> Scores:
        owner = f"'{owner_word(asked.tenant)}'"
        head = [asked.tenant, asked.kind, asked.limit, owner, *map(fold, asked.words)]
        any_of = " || ".join(
            f"phraseto_tsquery('evervec.words', ${place}::text)"
            for place in range(5, len(head) + 1)
        )
        return self._matching(
            self.sql.match_text.replace("{words}", any_of), head, asked.conditions
        )
