"""Full-text search: BM25 over a table of words that is written with the records."""

from __future__ import annotations

from evervec.stores.duckdb.engine import Engine
from evervec.stores.sql import records
from evervec.stores.sql.records import Scores, TextQuery


class Records(records.Records):
    engine: Engine

    def _ranked(self, asked: TextQuery) -> Scores:
        stems = [stem for stem in dict.fromkeys(map(self.engine.stemmed, asked.words)) if stem]
        if not stems:
            return []
        single = [stem for stem in stems if " " not in stem]
        phrases = [f" {stem} " for stem in stems if " " in stem]
        also = self.engine.listed(asked.also)
        head = [asked.tenant, asked.kind, asked.limit, single, phrases, also]
        return self._best_first(self.sql.match_text, head, asked.conditions)
