"""Which words of a query a text contains, compared by their stems, as full text compares them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice

from evervec.model.deadlines import check
from evervec.model.explanations import MatchedWord
from evervec.stores.sql.stems import STEMS, stems_of
from evervec.stores.sql.words import fold, terms

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


def coverage(query: str, *texts: str | None) -> float:
    """The share of a query's words that texts which full text found contain together. If it is
    none of them, the query was found as a part of the text: 1."""
    wanted = query_stems(query)
    words = {
        word for text in texts if text for word in fold(text[:_MOST_CHARACTERS]).lower().split()
    }
    prefixes = tuple(stem[:-1] or stem for stem in wanted)  # a stem may end in another letter
    near = [word for word in words if word.startswith(prefixes)]
    found = set(STEMS.of(near)).intersection(wanted)
    return len(found) / len(wanted) if found else 1.0


def matched_words(query: str, text: str) -> tuple[MatchedWord, ...]:
    """The words of a text that are words of the query, with their places."""
    wanted = frozenset(query_stems(query))
    return tuple(islice(_matched(wanted, text[:_MOST_CHARACTERS]), _MOST_PLACES))


def _matched(wanted: frozenset[str], text: str) -> Iterator[MatchedWord]:
    places = _WORD.finditer(text)
    while some := list(islice(places, _AT_ONCE)):
        check()
        for place, stem in zip(some, _stems(some), strict=True):
            if stem in wanted:
                yield MatchedWord(place.group(), place.start(), place.end())


def _stems(places: Sequence[re.Match[str]]) -> list[str]:
    return STEMS.of([fold(place.group()).strip().lower() for place in places])
