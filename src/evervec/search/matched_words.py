"""Which words of a query a text contains, compared by their stems, as full text compares them.

A stop word of the text is none of them, unless the query has it too: the stem of `Ines` is `in`, that of
`canned` is `can`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice

from evervec.model.deadlines import check
from evervec.model.explanations import MatchedWord
from evervec.stores.sql.stems import STEMS, stems_of
from evervec.stores.sql.words import LITTLE_WORDS, fold, terms

_WORD = re.compile(r"[^\W_]+")
_MOST_PLACES = 200
"""matched words that are listed for one text, at most"""
_MOST_CHARACTERS = 100_000
"""of a text that is looked through for words"""
_AT_ONCE = 1000


@lru_cache(256)
def query_stems(query: str) -> tuple[str, ...]:
    """The stems of a query's words, each once; words that say nothing are left out."""
    return tuple(dict.fromkeys(stem for term in terms(query) for stem in stems_of(term)))


@lru_cache(256)
def _other_stop_words(query: str) -> frozenset[str]:
    """The stop words that the query does not ask for."""
    return LITTLE_WORDS.difference(word for term in terms(query) for word in _words(term))


@lru_cache(256)
def is_like_stop_words(query: str) -> bool:
    """Whether full text takes every word of a query for a stop word that is not in it."""
    wanted = query_stems(query)
    return bool(wanted) and _stems_of(_other_stop_words(query)).issuperset(wanted)


@lru_cache(256)
def _stems_of(words: frozenset[str]) -> frozenset[str]:
    return frozenset(STEMS.of(sorted(words)))


def has_words(query: str, *texts: str | None) -> bool:
    """Whether texts contain any word of a query."""
    return bool(_found_in(query, texts))


def coverage(query: str, *texts: str | None) -> float:
    """The share of a query's words that texts which full text found contain together. If it is
    none of them, the query was found as a part of the text: 1."""
    found = _found_in(query, texts)
    return len(found) / len(query_stems(query)) if found else 1.0


def _found_in(query: str, texts: Iterable[str | None]) -> set[str]:
    """The stems of the query's words that texts contain."""
    wanted = query_stems(query)
    words = {word for text in texts if text for word in _words(text[:_MOST_CHARACTERS])}
    if is_like_stop_words(query):  # a query with other words gets worse hits on SciFact by this
        words -= _other_stop_words(query)
    prefixes = tuple(stem[:-1] or stem for stem in wanted)  # a stem may end in another letter
    near = [word for word in words if word.startswith(prefixes)]
    return set(STEMS.of(near)).intersection(wanted)


def _words(text: str) -> list[str]:
    return fold(text).lower().split()


def matched_words(query: str, text: str) -> tuple[MatchedWord, ...]:
    """The words of a text that are words of the query, with their places."""
    wanted, others = frozenset(query_stems(query)), _other_stop_words(query)
    return tuple(islice(_matched(wanted, others, text[:_MOST_CHARACTERS]), _MOST_PLACES))


def _matched(wanted: frozenset[str], others: frozenset[str], text: str) -> Iterator[MatchedWord]:
    places = _WORD.finditer(text)
    while some := list(islice(places, _AT_ONCE)):
        check()
        for place, stem in zip(some, _stems(some), strict=True):
            if stem in wanted and place.group().lower() not in others:
                yield MatchedWord(place.group(), place.start(), place.end())


def _stems(places: Sequence[re.Match[str]]) -> list[str]:
    return STEMS.of([fold(place.group()).strip().lower() for place in places])
