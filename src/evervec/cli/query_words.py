"""Where the words of a query are in a text, and which part of a text has most of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from evervec.search.matched_words import matched_words, query_stems
from evervec.stores.sql.words import terms

Span = tuple[int, int]

_WORD = re.compile(r"[^\W_]+")
_MOST_PLACES = 200
"""places of rare words around which the others are looked for, at most"""


def query_words(query: str, text: str) -> list[Span]:
    """Where the words of a query are in a text. Of a phrase or a name of several words, such as
    `func_37`, only where it is whole, if it is anywhere."""
    spans: list[Span] = []
    loose = []
    for term in terms(query):
        found = _whole_places(term, text) if _is_compound(term) else []
        spans += found
        if not found:
            loose.append(term)
    taken = list(spans)
    for word in matched_words(" ".join(loose), text) if loose else ():
        if not any(start <= word.start < end for start, end in taken):
            spans.append((word.start, word.end))
    return sorted(spans)


def better_place(query: str, chunk: str, text: str, width: int) -> list[Span] | None:
    """The words of a query in a part of a text, of about `width` characters, that has all of them
    while a chunk has not, or some of them while the chunk has none. None: there is no such part."""
    wanted = list(dict.fromkeys(term for term in terms(query) if query_stems(term)))
    missing = set(wanted) - _present(wanted, query, chunk)
    if not missing:
        return None
    best: list[Span] | None = None
    most = len(wanted) - 1 if len(missing) < len(wanted) else 0
    for start, end in islice(_places(missing, text), _MOST_PLACES):
        first = max(0, start - width // 2)
        near = text[first : end + width // 2]
        count = len(_present(wanted, query, near))
        if count > most:
            most = count
            best = [(first + a, first + b) for a, b in query_words(query, near)]
        if count == len(wanted):
            break
    return best


def _present(wanted: Sequence[str], query: str, text: str) -> set[str]:
    """The terms of a query that a text has; one of several words only as a whole."""
    stems = {stem for word in matched_words(query, text) for stem in query_stems(word.word)}
    return {
        term
        for term in wanted
        if (
            _whole(term).search(text) if _is_compound(term) else stems.issuperset(query_stems(term))
        )
    }


def _places(missing: set[str], text: str) -> Iterator[Span]:
    for term in missing:
        if _is_compound(term):
            yield from _whole_places(term, text)
    yield from query_words(" ".join(term for term in missing if not _is_compound(term)), text)


def _is_compound(term: str) -> bool:
    """Whether it is a phrase or a name such as `func_37`."""
    return len(_WORD.findall(term)) > 1


def _whole_places(term: str, text: str) -> list[Span]:
    return [found.span() for found in islice(_whole(term).finditer(text), _MOST_PLACES)]


def _whole(term: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(term)}(?!\w)", re.IGNORECASE)
