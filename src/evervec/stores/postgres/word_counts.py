"""How many records contain a word: an estimate, from the statistics that PostgreSQL keeps."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping

from evervec.stores.postgres.engine import SQL
from evervec.stores.sql.engine import Database

_LOOK_AGAIN = 60.0
"""seconds for which the statistics are cached"""
_OF_THE_RAREST = 0.1
"""A word that is not among the thousand most frequent is assumed to be in so many records, as a share
of those with the least frequent of the thousand."""
_WORTH_COUNTING = 10_000
"""changed records from which the statistics are missed"""


class WordCounts:
    """The estimates of one store."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._looked = -math.inf
        self._records = 0.0
        self._shares: Mapping[str, float] = {}
        self._least = 0.0

    def of(
        self, owner: str, terms: Iterable[tuple[str, ...]]
    ) -> dict[tuple[str, ...], float] | None:
        """In how many records of a tenant each term is expected, by its rarest word; None: the
        table is not analyzed yet. `owner`: the word of the tenant."""
        if time.monotonic() - self._looked > _LOOK_AGAIN:
            self._look()
        if not self._shares:
            return None
        other = self._least * _OF_THE_RAREST
        records = self._records * self._shares.get(owner, self._least)
        return {
            term: records * min(self._shares.get(word, other) for word in term) for term in terms
        }

    def has_most(self, owner: str) -> bool:
        """Whether most records are the tenant's."""
        return self._shares.get(owner, 0.0) > 0.5

    def _look(self) -> None:
        with self._db.reading() as conn:
            records, words, shares = conn.execute(SQL.word_shares).fetchone()
        self._records, self._looked = max(records, 0.0), time.monotonic()
        # after the words' shares come the least and the greatest of them
        self._shares = dict(zip(words, shares, strict=False)) if words else {}
        self._least = shares[len(words)] if words else 0.0

    def maintain(self) -> None:
        """Analyze the table of records if most of it is new since: autovacuum does so earlier."""
        with self._db.reading() as conn:
            (is_due,) = conn.execute(SQL.words_uncounted, (_WORTH_COUNTING,)).fetchone()
            if is_due:
                conn.execute("analyze (skip_locked) evervec.records")
                self._looked = -math.inf
