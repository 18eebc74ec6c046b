"""Full-text search by PostgreSQL's index of words."""

from __future__ import annotations

from evervec.stores.postgres.full_text import query_text
from evervec.stores.sql import records
from evervec.stores.sql.records import Scores, TextQuery
from evervec.stores.sql.words import owner_word


class Records(records.Records):
    def _ranked(self, asked: TextQuery) -> Scores:
        owner = f"'{owner_word(asked.tenant)}'"
        words, also = query_text(asked.words), self.engine.listed(asked.also)
        head = [asked.tenant, asked.kind, asked.limit, owner, words, also]
        return self._best_first(self.sql.match_text, head, asked.conditions) if words else []
