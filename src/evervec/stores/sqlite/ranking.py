"""BM25 over one tenant's records, in a full-text table that all tenants share.

FTS5's own `bm25` counts over the whole table, so other tenants' records would influence a tenant's
scores, and reveal which words they use. But the number of times that a term occurs in a record, an
integer that depends on nothing else, can be derived from FTS5's score of that single term. With
this number and counts of the tenant's own records, the score is computed here.

Terms are processed from rare to common. Once no other record can get among the best, the remaining
terms are looked up only in the records that can.
"""

from __future__ import annotations

import heapq
import math
import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import orjson

from evervec.model.deadlines import check
from evervec.stores.sqlite.engine import SQL, listed

Passes = Callable[[Sequence[int]], set[int]]
"""Which of some records pass a filter."""

K1, B = 1.2, 0.75  # the same as FTS5
MOST = K1 + 1.0
"""the upper bound of a term's score, per unit of its rarity"""
_LEAST_RARITY = 1e-6
_SAMPLE = 100
"""how many of a tenant's latest records are read to estimate their mean length"""
_SPARE = 4
"""with a filter, this many times the wanted number of records is ranked first"""
_ROUNDING = 1 - 1e-9
_KEPT = 1000
"""how many tenants' counts are cached"""

Scores = list[tuple[int, float]]
_State = tuple[bytes, int]
"""FTS5's totals and the store's counter: they differ after each change"""
_Own = tuple[int, float]
"""the number of a tenant's records, and their mean number of words"""


class Counts:
    """A cache of tenants' number of records and their mean length, counted once per state of the
    store. It holds the tenants that searched since the last change."""

    def __init__(self) -> None:
        self._known: tuple[_State, dict[str, _Own]] = ((b"", -1), {})

    def of(self, state: _State, scope: str, count: Callable[[], _Own]) -> _Own:
        """A tenant's counts in a state; `count` computes them on a cache miss."""
        known = self._known
        if known[0] != state or len(known[1]) >= _KEPT:
            known = self._known = (state, {})
        own = known[1].get(scope)
        if own is None:
            own = known[1][scope] = count()
        return own


class Ranking:
    """One search, on a connection with a snapshot."""

    def __init__(self, conn: sqlite3.Connection, scope: str, counts: Counts) -> None:
        self._conn = conn
        self._scope = f"scope : {scope}"
        self._counts = counts
        self._sizes = _Sizes()
        self._packed = conn.execute(SQL.text_totals).fetchone()[0]
        self.rows, words = _totals(self._packed)
        """of all tenants"""
        self._mean = words / max(self.rows, 1)
        self._own, self._usual = 0, 0.0

    def _count_own(self) -> _Own:
        return self._count(self._scope), usual_size(self._conn, self._scope)

    def best(
        self,
        terms: Iterable[str],
        limit: int,
        passes: Passes | None,
        also: Collection[int] = (),
    ) -> Scores:
        """The records with the best scores: those that contain more, and rarer, terms. Then those
        of `also` that contain any."""
        matches = [_match(term) for term in dict.fromkeys(terms)]
        state = (self._packed, self._conn.execute(SQL.mark).fetchone()[0])
        self._own, self._usual = self._counts.of(state, self._scope, self._count_own)
        if not self._own:
            return []
        if passes is None:
            scores = self._ranked(matches, limit, also)
            return with_others(_first(scores, limit), also, scores)
        for most in (_SPARE * limit, self._own):
            scores = self._ranked(matches, most, also)
            found = _first(scores, most)
            good = passes([record for record, _ in found])
            if len(good) >= limit or len(found) < most:
                break
        best = [(record, score) for record, score in found if record in good][:limit]
        return with_others(best, also, scores)

    def occurrences(self, term: str) -> list[tuple[int, int, int]]:
        """Of each of the tenant's records with a term: how often it occurs, and its number of
        words."""
        return self._occurrences(f"{self._scope} AND {_match(term)}")

    def _ranked(self, matches: list[str], limit: int, also: Collection[int]) -> dict[int, float]:
        """The scores of at least the `limit` best records, and of others."""
        scores: dict[int, float] = {}
        if self._own * 2 < self.rows:  # few of the rows: fetch the matches, then count them
            found = [self._occurrences(f"{self._scope} AND {match}") for match in matches]
            for rarity, rows in sorted(
                ((self._rarity(len(rows)), rows) for rows in found), key=lambda term: -term[0]
            ):
                self._add(scores, rarity, rows)
            return scores
        owned = matches
        if self._own < self.rows:
            owned = [f"{self._scope} AND {match}" for match in matches]
        counted = sorted(
            ((self._rarity(self._count(own)), own, match)
             for own, match in zip(owned, matches, strict=True)),
            key=lambda term: -term[0],
        )  # fmt: skip
        left = sum(rarity for rarity, _, _ in counted) * MOST
        closed = False
        for rarity, own, match in counted:
            if not closed and len(scores) >= limit:
                last = heapq.nlargest(limit, scores.values())[-1] * _ROUNDING
                if left < last:  # no other record can reach this score any more
                    closed = True
                    also = frozenset(also)
                    scores = {
                        r: score for r, score in scores.items() if score + left >= last or r in also
                    }
            shared = _shared_rarity(self.rows, self._count(match))
            among = scores.keys() | also if closed else None
            rows = self._occurrences(own, shared, among)
            self._add(scores, rarity, rows)
            left -= rarity * MOST
        return scores

    def _add(
        self, scores: dict[int, float], rarity: float, rows: list[tuple[int, int, int]]
    ) -> None:
        most, least, by_size = rarity * MOST, K1 * (1 - B), K1 * B / self._usual
        for record, times, size in rows:
            score = most * times / (times + least + by_size * size)
            scores[record] = scores.get(record, 0.0) + score

    def _occurrences(
        self, match: str, shared: float | None = None, among: Collection[int] | None = None
    ) -> list[tuple[int, int, int]]:
        """Per record: how often a term occurs in it (an occurrence in the title counts twice), and
        its number of words. `shared`: the term's rarity in the whole table, if known."""
        check()
        sizes, least, by_size = self._sizes, K1 * (1 - B), K1 * B / self._mean
        if shared is None:
            return [
                (record, round(score / (most - score) * (least + by_size * sizes[packed])),
                 sizes[packed])
                for record, score, packed, most in self._rows_of(SQL.score_text_most, match)
            ]  # fmt: skip
        if among is None:
            rows = self._rows_of(SQL.score_text, match)
        else:
            rows = self._rows_of(SQL.score_text_among, match, listed(among))
        most = shared * MOST
        return [
            (record, round(score / (most - score) * (least + by_size * sizes[packed])),
             sizes[packed])
            for record, score, packed in rows
        ]  # fmt: skip

    def _rows_of(self, statement: str, *values: object) -> list[Any]:
        return rows_of(self._conn, statement, *values)

    def _count(self, match: str) -> int:
        check()
        count: int = self._conn.execute(SQL.count_text, (match,)).fetchone()[0]
        return count

    def _rarity(self, having: int) -> float:
        return rarity_of(self._own, having)


def with_others(best: Scores, also: Iterable[int], scores: Mapping[int, float]) -> Scores:
    """The best records, and after them others that have scores too."""
    known = {record for record, _ in best}
    return best + [(r, scores[r]) for r in also if r in scores and r not in known]


def rarity_of(own: int, having: int) -> float:
    """The rarity of a term that `having` of a tenant's `own` records contain."""
    return math.log1p((own - having + 0.5) / (having + 0.5))


def usual_size(conn: sqlite3.Connection, scope: str) -> float:
    """The mean number of words of the latest records of a scope."""
    sizes = _Sizes()
    sample = rows_of(conn, SQL.text_sizes, scope, _SAMPLE)
    return sum(map(sizes.__getitem__, sample)) / max(len(sample), 1)


def _match(term: str) -> str:
    return f'{{title text}} : "{term}"'


def rows_of(conn: sqlite3.Connection, statement: str, *values: object) -> list[Any]:
    """The rows of a statement that packs them into one JSON value. Each step to a row would release
    the interpreter's lock: while other threads compute, that takes five times as long."""
    rows: list[Any] = orjson.loads(conn.execute(statement, values).fetchone()[0])
    return rows


def _first(scores: dict[int, float], limit: int) -> Scores:
    return heapq.nsmallest(limit, scores.items(), key=lambda item: (-item[1], item[0]))


def _shared_rarity(rows: int, having: int) -> float:
    """The rarity of a term in the whole table, as FTS5 computes it."""
    rarity = math.log((rows - having + 0.5) / (having + 0.5))
    return rarity if rarity > 0 else _LEAST_RARITY


def _varints(packed: bytes) -> list[int]:
    """Decode SQLite's varints: seven bits per byte, the highest first."""
    numbers, number = [], 0
    for byte in packed:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    return numbers


class _Sizes(dict[str, int]):
    """The number of words of a record, over all columns, by FTS5's size entry in hexadecimal."""

    def __missing__(self, packed: str) -> int:
        size = self[packed] = sum(_varints(bytes.fromhex(packed)))
        return size


def _totals(packed: bytes) -> tuple[int, int]:
    """The number of rows and of words of the whole table, from FTS5's totals."""
    rows, *words = _varints(packed) or [0]
    return rows, sum(words)
