"""BM25 over one tenant's records, by postings (`word_blocks`): the scores of `ranking`, without
reading what cannot change the result.

Terms are processed from rare to common. Once no other record can get among the best, the remaining
terms are looked up only in the records that can.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evervec.model.deadlines import check
from evervec.stores.sqlite.engine import SQL, listed
from evervec.stores.sqlite.postings import Times, bucket_of, unpack, unpack_shared
from evervec.stores.sqlite.ranking import K1, MOST, B, Passes, Scores, rarity_of, with_others
from evervec.stores.sqlite.word_blocks import View

_WORTH_CLOSING = 1 << 13
"""postings of a term above which it is worth to look whether it needs to be added everywhere"""
_SPARE = 4
"""with a filter, so many times the wanted number of records is ranked first, and in each next round"""
_TESTED = 4096
"""records whose metadata is tested at once"""
_ROUNDING = 1 - 1e-5
"""of scores in single precision"""

Places = NDArray[np.int64]
Floats = NDArray[np.float32]
Phrases = Callable[[str], list[tuple[int, int, int]]]
"""the records that contain a phrase, how often they do, and their sizes"""


_NONE = np.empty(0, np.int64)


class _Piece(NamedTuple):
    """Postings of one part, or of the tail, in order of the places."""

    base: int
    places: NDArray[np.integer[Any]]
    times: Times

    @property
    def span(self) -> int:
        """How many places it can have."""
        return 1 << 16 if self.places.dtype.itemsize == 2 else 1 << 62

    def among(self, wanted: Places) -> tuple[Places, Times]:
        """The postings of some places, which are in order."""
        first, end = np.searchsorted(wanted, (self.base, self.base + self.span))
        some = (wanted[first:end] - self.base).astype(self.places.dtype)  # or all are converted
        at = np.searchsorted(self.places, some)
        at[at == len(self.places)] = 0
        found = self.places[at] == some
        return wanted[first:end][found], self.times[at[found]]


class _Term(NamedTuple):
    rarity: float
    size: int
    pieces: list[_Piece]


class _Scored(NamedTuple):
    places: Places
    scores: Floats
    others: Floats
    """the scores of the other places that were asked for"""


class WordRanking:
    """One search, on a connection with a snapshot."""

    def __init__(self, conn: sqlite3.Connection, tenant: str, view: View, phrases: Phrases) -> None:
        self._conn = conn
        self._tenant = tenant
        self._view = view
        self._phrases = phrases
        self._least, self._by_size = K1 * (1 - B), K1 * B / view.usual

    def best(
        self,
        words: Iterable[int],
        phrases: Iterable[str],
        limit: int,
        passes: Passes | None,
        also: Sequence[int] = (),
    ) -> Scores:
        """The records with the best scores: those that contain more, and rarer, terms. Then those
        of `also` that contain any."""
        terms = self._words(Counter(words)) + list(map(self._phrase, phrases))
        terms = sorted((t for t in terms if t.size), key=lambda term: -term.rarity)
        others = _NONE
        if also:
            others = np.sort(self._view.places_of(np.array(sorted(set(also)), np.int64)))
        if passes is None:
            scored = self._scores(terms, limit, others)
            return with_others(self._first(scored, limit), also, self._of(others, scored.others))
        found: Scores = []
        tested: set[int] = set()
        most = _SPARE * limit
        while True:
            scored = self._scores(terms, most, others)
            ranked = self._first(scored, most)
            left = [item for item in ranked if item[0] not in tested]
            for start in range(0, len(left), _TESTED):
                some = left[start : start + _TESTED]
                good = passes([record for record, _ in some])
                found += [item for item in some if item[0] in good]
                if len(found) >= limit:
                    break
            if len(found) >= limit or len(ranked) < most:
                return with_others(found[:limit], also, self._of(others, scored.others))
            tested.update(record for record, _ in left)
            # as many as will do if the next fit as often, and room for chance
            most = max(_SPARE * most, 2 * limit * len(tested) // max(len(found), 1))

    def _words(self, words: Counter[int]) -> list[_Term]:
        """Words by how often the query has them: two of its words may have one stem."""
        numbers = list(words)
        shared = dict(zip(numbers, bucket_of(np.array(numbers, np.int64)).tolist(), strict=True))
        wanted = listed({*words, *shared.values()})
        rows = defaultdict[int, list[tuple[int, bytes]]](list)
        for row, part, data in self._conn.execute(SQL.words, (self._tenant, wanted)).fetchall():
            rows[row].append((self._view.bases[part], data))
        return [
            self._word(word, rows[word], rows[shared[word]], often) for word, often in words.items()
        ]

    def _word(
        self, word: int, rows: list[tuple[int, bytes]], shared: list[tuple[int, bytes]], often: int
    ) -> _Term:
        pieces = [_Piece(base, *unpack(data)) for base, data in rows]
        pieces += [_Piece(base, *unpack_shared(data, word)) for base, data in shared]
        pieces.append(_Piece(0, *self._view.in_tail(word)))
        return self._term(pieces, often)

    def _phrase(self, phrase: str) -> _Term:
        """A phrase, by FTS5."""
        found = {record: times for record, times, _ in self._phrases(phrase)}
        records = np.array(sorted(found), np.int64)
        places = np.sort(self._view.places_of(records))
        times = [min(found[record], 255) for record in self._view.records[places].tolist()]
        return self._term([_Piece(0, places, np.array(times, np.uint8))])

    def _term(self, pieces: list[_Piece], often: int = 1) -> _Term:
        """A term that the query has so often."""
        pieces = [piece for piece in pieces if len(piece.places)]
        size = sum(len(piece.places) for piece in pieces)
        having = size
        if self._view.dead:
            alive = self._view.alive
            having = sum(int(np.count_nonzero(alive[p.base :][p.places])) for p in pieces)
        return _Term(often * rarity_of(self._view.own, having), size, pieces)

    def _scores(self, terms: Sequence[_Term], limit: int, others: Places) -> _Scored:
        """Places with their scores; those of at least the `limit` best, and of the given others,
        are complete."""
        scores = np.zeros(self._view.count, np.float32)
        left = sum(term.rarity for term in terms) * MOST
        met: list[Places] = []
        some: Places | None = None
        for term in terms:
            check()
            if some is None and term.size > _WORTH_CLOSING:
                some = self._left_over(scores, _all(met), left, limit)
                if some is not None and len(others):
                    some = _joined(some, others)
            for piece in term.pieces:
                if some is None:
                    places, times = piece.base + piece.places.astype(np.int64), piece.times
                    met.append(places[scores[places] == 0])
                else:
                    places, times = piece.among(some)
                often = times.astype(np.float32)
                sizes = self._view.sizes[places]
                scores[places] += (
                    np.float32(term.rarity * MOST) * often
                    / (often + np.float32(self._least) + np.float32(self._by_size) * sizes)
                )  # fmt: skip
            left -= term.rarity * MOST
        if some is None:
            some = self._alive(_all(met))
        elif len(others):
            some = some[scores[some] > 0]
        return _Scored(some, scores[some], scores[others])

    def _of(self, places: Places, scores: Floats) -> dict[int, float]:
        """The scores of places that have any, by record."""
        records = self._view.records[places].tolist()
        return {r: score for r, score in zip(records, scores.tolist(), strict=True) if score > 0}

    def _left_over(self, scores: Floats, met: Places, left: float, limit: int) -> Places | None:
        """Those places that can still be among the best, in order; None: any can."""
        met = self._alive(met)
        if len(met) < limit:
            return None
        reached = scores[met]
        if left >= reached.max():
            return None
        last = np.partition(reached, -limit)[-limit] * _ROUNDING
        return np.sort(met[reached + left >= last]) if left < last else None

    def _alive(self, places: Places) -> Places:
        return places[self._view.alive[places]] if self._view.dead else places

    def _first(self, scored: _Scored, limit: int) -> Scores:
        places, scores, _ = scored
        if limit < len(places):
            best = np.flatnonzero(scores >= np.partition(scores, -limit)[-limit])
            places, scores = places[best], scores[best]
        records = self._view.records[places]
        order = np.lexsort((records, -scores))[:limit]
        return list(zip(records[order].tolist(), scores[order].tolist(), strict=True))


def _all(places: list[Places]) -> Places:
    return np.concatenate((_NONE, *places))


def _joined(some: Places, others: Places) -> Places:
    """Both, each place once; what `np.union1d` does takes it three times as long."""
    both = np.sort(np.concatenate((some, others)))
    return both[np.diff(both, prepend=-1) > 0]
