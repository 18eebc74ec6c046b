"""Full-text search by PostgreSQL's index of words.

`ts_rank` reads a record to score it, so the records that are scored must be few however large the
store is. Common words find no candidates of their own while rarer words of the query find enough;
the score counts all words of the query. On SciFact, this ranks better than to score every match.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any, NamedTuple

from evervec.stores.postgres.engine import SQL
from evervec.stores.postgres.full_text import all_of, any_of, phrases
from evervec.stores.postgres.word_counts import WordCounts
from evervec.stores.sql import records
from evervec.stores.sql.engine import Engine
from evervec.stores.sql.records import Scores, TextQuery
from evervec.stores.sql.words import owner_word

_FEW = 2000
"""expected matches of the rarest words, all of which are scored"""
_MOST = 4 * _FEW
"""scored matches of words that are expected to be rare, and are not"""
_SOME = 1000
"""scored matches of common words"""
_BY_WORDS = (
    "set local enable_seqscan = off; set local enable_indexscan = off; "
    "set local max_parallel_workers_per_gather = 0"
)
"""The matches come from the index of words, in the order in which they are stored. With a limit, the
planner would also read the table until it has met enough of them, wherever they are in it."""


class _Step(NamedTuple):
    """Candidates of a search."""

    query: str
    """a tsquery"""
    most: int | None
    """so many of its matches are scored; None: all"""


class Records(records.Records):
    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._counts = WordCounts(engine.db)

    def _ranked(self, asked: TextQuery) -> Scores:
        terms = phrases(asked.words)
        if not terms:
            return []
        owner, words = owner_word(asked.tenant), any_of(terms)
        given = self.engine.filter(asked.conditions, 6)
        query = SQL.match_text.replace("{filter}", given.clause)
        counts = self._counts.of(owner, terms)
        steps = [_Step(words, None)] if counts is None else list(_steps(counts))
        # to test each candidate for the word of a tenant that has most records costs more than it saves
        is_one_of_many = not self._counts.has_most(owner)
        with self.db.snapshot() as conn:
            named = [asked.tenant, words, self.engine.listed(asked.also)]
            also = conn.execute(SQL.score_records, named).fetchall() if asked.also else []
            conn.execute(_BY_WORDS)
            found = dict[int, float]()
            for step in steps:
                candidates = f"'{owner}' & ({step.query})" if is_one_of_many else step.query
                most = None if step.most is None else max(step.most, asked.limit)
                head: list[Any] = [asked.tenant, asked.kind, asked.limit, candidates, words]
                found |= dict(conn.execute(query, [*head, most, *given.values]).fetchall())
                if len(found) >= asked.limit:
                    break
        best = sorted(found.items(), key=lambda item: (-item[1], item[0]))[: asked.limit]
        return sorted({*best, *also}, key=lambda item: (-item[1], item[0]))

    def maintain(self) -> None:
        """Let the server count the words, if it does not do so by itself."""
        self._counts.maintain()


def _steps(counts: Mapping[tuple[str, ...], float]) -> Iterator[_Step]:
    """Candidates, each step needed only if those before have found too few: what contains any of
    the rarest words, all of the common ones, any of the common ones."""
    order = sorted(counts, key=counts.__getitem__)
    upto = accumulate(counts[term] for term in order)
    rare = [term for term, total in zip(order, upto, strict=True) if total <= _FEW]
    common = order[len(rare) :]
    if rare:
        yield _Step(any_of(rare), _MOST)
    if len(common) > 1:
        yield _Step(all_of(common), _SOME)
    if common:
        yield _Step(any_of(common), _SOME)
