"""Full-text search, by the words that SQLite's tokenizer finds."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import starmap
from typing import TYPE_CHECKING

from evervec.stores.sql import records
from evervec.stores.sql.engine import Engine
from evervec.stores.sql.records import Scores, TextQuery
from evervec.stores.sqlite.changes import scope
from evervec.stores.sqlite.engine import SQL, listed
from evervec.stores.sqlite.filters import Filter
from evervec.stores.sqlite.ranking import Counts, Passes, Ranking, rows_of
from evervec.stores.values import Candidate, Found

if TYPE_CHECKING:
    from evervec.stores.sqlite.word_blocks import View, WordBlocks
    from evervec.stores.sqlite.word_parts import WordParts

MANY = 1 << 15
"""Records of all tenants up to which FTS5 alone ranks. It counts all records with a word before the
first score: above, that takes more than about 50 ms."""
_WORDS_BYTES = 256 << 20
_SHORT = 50_000
"""characters of a record up to which it is read together with others"""


class Records(records.Records):
    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._counts = Counts()
        self._blocks: WordBlocks | None = None
        self._parts: WordParts | None = None

    def _ranked(self, asked: TextQuery) -> Scores:
        word = scope(asked.tenant)
        with self.db.snapshot() as conn:
            ranking = Ranking(conn, word, self._counts)
            if ranking.rows <= MANY:
                return ranking.best(asked.words, asked.limit, _passes(conn, asked), asked.also)
        with self._word_blocks().snapshot(asked.tenant, f"scope : {word}") as (conn, view):
            ranking = Ranking(conn, word, self._counts)
            if view is None:
                return ranking.best(asked.words, asked.limit, _passes(conn, asked), asked.also)
            return self._by_postings(conn, asked, view, ranking) if view.own else []

    def _by_postings(
        self, conn: sqlite3.Connection, asked: TextQuery, view: View, ranking: Ranking
    ) -> Scores:
        from evervec.stores.sqlite.word_ranking import WordRanking

        words: list[int] = []
        phrases = []
        for term in dict.fromkeys(asked.words):
            found = self._word_blocks().tokens.of(term)
            if len(found) == 1:
                words += found
            elif found:
                phrases.append(term)
        postings = WordRanking(conn, asked.tenant, view, ranking.occurrences)
        return postings.best(words, phrases, asked.limit, _passes(conn, asked), asked.also)

    def candidates(self, tenant: str, records: Sequence[int]) -> dict[int, Candidate]:
        with self.db.reading() as conn:
            rows = rows_of(conn, SQL.candidates, listed(records), tenant)
        return {found.record: found for found in starmap(Candidate, rows)}

    def found(self, records: Sequence[int]) -> dict[int, Found]:
        with self.db.reading() as conn:
            rows = rows_of(conn, SQL.found_short, listed(records), _SHORT)
        found = {known.record: known for known in starmap(Found, rows)}
        if rest := [record for record in records if record not in found]:
            found |= super().found(rest)
        return found

    def maintain(self) -> None:
        """Write the words of large tenants, for searches of any process."""
        with self.db.snapshot() as conn:
            rows = Ranking(conn, "", self._counts).rows
        if rows <= MANY:
            return
        if self._parts is None:
            from evervec.stores.sqlite.word_parts import WordParts

            self._parts = WordParts(self.db, self._word_blocks().tokens)
        self._parts.maintain()

    def _word_blocks(self) -> WordBlocks:
        if self._blocks is None:
            from evervec.stores.sqlite.tokens import Tokens
            from evervec.stores.sqlite.word_blocks import WordBlocks

            self._blocks = WordBlocks(self.db, Tokens(), _WORDS_BYTES)
        return self._blocks


def _passes(conn: sqlite3.Connection, asked: TextQuery) -> Passes | None:
    """How to test a search's filter; None: it has none."""
    if not asked.conditions and asked.kind is None:
        return None
    given = Filter(asked.conditions, 2)

    def passes(records: Sequence[int]) -> set[int]:
        values = [listed(records), asked.kind, *given.values]
        return {record for (record,) in conn.execute(SQL.passing + given.clause, values)}

    return passes
