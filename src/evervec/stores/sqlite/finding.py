"""Full-text search, by the words that SQLite's tokenizer finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evervec.model.filters import Conditions
from evervec.stores.sql import finding
from evervec.stores.sql.records import scope
from evervec.stores.sql.words import part_of_text, terms
from evervec.stores.sqlite.engine import SQL, Engine, listed
from evervec.stores.sqlite.filters import filter_sql
from evervec.stores.sqlite.ranking import Counts, Ranking


class Finding(Engine, finding.Finding):
    """The part of the store that searches use."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._marked: tuple[int | None, int] = (None, 0)
        """the number of `commits`, read just before the mark, and the mark"""
        self._counts = Counts()

    def mark(self) -> int:
        commits, (seen, mark) = self.db.commits(), self._marked
        if commits is None or commits != seen:
            mark = super().mark()
            self._marked = (commits, mark)
        return mark

    def search_text(
        self,
        tenant: str,
        kind: str | None,
        query: str,
        limit: int,
        filter: Conditions,
    ) -> list[tuple[int, float]]:
        clause, needed = filter_sql(filter)
        with self.db.snapshot() as conn:

            def passes(records: Sequence[int]) -> set[int]:
                values = [listed(records), kind, *needed]
                return {row[0] for row in conn.execute(SQL.passing + clause, values)}

            if words := terms(query):
                filtered = passes if clause or kind is not None else None
                ranking = Ranking(conn, scope(tenant), self._counts)
                if found := ranking.best(words, limit, filtered):
                    return found
            # for words that the tokenizer cannot find, such as a part of Chinese or Japanese text
            if (part := part_of_text(query)) is None:
                return []
            plain = f"{SQL.contains_text}{clause} order by r.record desc limit ?"
            values = [part, tenant, kind, *needed, limit]
            return conn.execute(plain, values).fetchall()
