"""Full-text search, by the words that SQLite's tokenizer finds."""

from __future__ import annotations

from collections.abc import Sequence

from evervec.stores.sql import records
from evervec.stores.sql.engine import Engine
from evervec.stores.sql.records import Scores, TextQuery
from evervec.stores.sqlite.changes import scope
from evervec.stores.sqlite.engine import SQL, listed
from evervec.stores.sqlite.filters import Filter
from evervec.stores.sqlite.ranking import Counts, Ranking


class Records(records.Records):
    """The part of the store that reads records."""

    filter = Filter

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._counts = Counts()

    def _ranked(self, asked: TextQuery) -> Scores:
        given = Filter(asked.conditions, 2)
        with self.db.snapshot() as conn:

            def passes(records: Sequence[int]) -> set[int]:
                values = [listed(records), asked.kind, *given.values]
                return {record for (record,) in conn.execute(SQL.passing + given.clause, values)}

            filtered = passes if asked.conditions or asked.kind is not None else None
            ranking = Ranking(conn, scope(asked.tenant), self._counts)
            return ranking.best(asked.words, asked.limit, filtered)
