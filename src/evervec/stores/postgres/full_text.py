"""Full text as PostgreSQL's types `tsvector` and `tsquery`, in the text form that it reads.

They are made here, not by the server, which all writers share: to parse and stem a text took it
three times as long as to read the finished vector. The stems are those of the other stores.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice, repeat
from operator import add

from evervec.stores.sql.stems import stems_of

_LONGEST = 2046
"""bytes of a word in a tsvector: longer ones are not found"""
_LAST_PLACE = 16383
"""later words all have this position"""
_TITLE, _TEXT = ([f":{place}{weight}" for place in range(1, _LAST_PLACE + 1)] for weight in "AB")


def vector_text(title: str, text: str) -> str:
    """The words of a title and a text with their positions, in the form of a tsvector."""
    head, body = _words(title), _words(text)
    placed = map(add, body, chain(islice(_TEXT, len(head), None), repeat(_TEXT[-1])))
    if not head:
        return " ".join(placed)
    return " ".join(chain(map(add, head, chain(_TITLE, repeat(_TITLE[-1]))), placed))


def phrases(terms: Iterable[str]) -> list[tuple[str, ...]]:
    """The stems of each word and phrase, without those that have none, each once."""
    return list(filter(None, dict.fromkeys(tuple(_words(term)) for term in terms)))


def any_of(phrases: Iterable[Sequence[str]]) -> str:
    """A tsquery for any of the phrases; empty if there are none."""
    return " | ".join(map(_phrase, phrases))


def all_of(phrases: Iterable[Sequence[str]]) -> str:
    """A tsquery for all of them."""
    return " & ".join(f"({_phrase(words)})" for words in phrases)


def _phrase(words: Sequence[str]) -> str:
    return " <-> ".join(f"'{word}'" for word in words)


def _words(text: str) -> Sequence[str]:
    stems = stems_of(text)
    if max(map(len, stems), default=0) > _LONGEST // 4:  # a character has up to four bytes
        return [stem for stem in stems if len(stem.encode()) <= _LONGEST]
    return stems
