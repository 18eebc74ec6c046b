"""Full-text search by PostgreSQL's index of words."""

from __future__ import annotations

from evervec.stores.postgres.full_text import query_text
from evervec.stores.sql import records
from evervec.stores.sql.records import Scores, TextQuery
from evervec.stores.sql.words import owner_word


class Records(records.Records):
    def _ranked(self, asked: TextQuery) -> Scores:
        owner = f"'{owner_word(asked.tenant)}'"
        head = [asked.tenant, asked.kind, asked.limit, owner, query_text(asked.words)]
        return self._matching(self.sql.match_text, head, asked.conditions) if head[-1] else []
