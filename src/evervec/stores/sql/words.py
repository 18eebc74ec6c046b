"""The words of a query that full text looks for."""

from __future__ import annotations

import re
from itertools import islice

_TERM = re.compile(r'"([^"]+)"|(\w+)')
_WORD = re.compile(r"[^\W_]+")  # as the engines' tokenizers split text
_MOST_WORDS = 64
_MOST_IN_PHRASES = 16
"""for all terms together: engines compare all positions of the words of a phrase"""
_LONGEST_PART = 128
_LITTLE_WORDS = frozenset(
    [
        "a",
        "an",
        "and",
        "any",
        "are",
        "as",
        "at",
        "be",
        "by",
        "can",
        "did",
        "do",
        "does",
        "for",
        "from",
        "had",
        "has",
        "have",
        "how",
        "i",
        "if",
        "in",
        "into",
        "is",
        "it",
        "its",
        "me",
        "my",
        "no",
        "not",
        "of",
        "on",
        "or",
        "our",
        "so",
        "that",
        "the",
        "their",
        "them",
        "then",
        "there",
        "these",
        "they",
        "this",
        "to",
        "was",
        "we",
        "were",
        "what",
        "when",
        "where",
        "which",
        "who",
        "whom",
        "why",
        "will",
        "with",
        "would",
        "you",
        "your",
    ]
)
"""Stop words of a query: they say nothing about the answer, yet are rare in terse texts."""


def terms(query: str) -> list[str]:
    """The words and quoted phrases to look for, up to `_MOST_WORDS` words; empty: the query has no
    words. When phrases have more words than `_MOST_IN_PHRASES`, their words are looked for one by
    one."""
    found, left, in_phrases = [], _MOST_WORDS, _MOST_IN_PHRASES
    for match in _TERM.finditer(query):
        term = match.group(match.lastindex or 0)
        words = list(islice(_WORD.finditer(term), left))
        left -= len(words)
        if 1 < len(words) <= in_phrases:
            in_phrases -= len(words)
            found.append(term[: words[-1].end()])
        else:
            found += [word.group() for word in words]
        if not left:
            break
    return [t for t in found if t.lower() not in _LITTLE_WORDS] or found


def part_of_text(query: str) -> str | None:
    """The query as a substring of a text; None for one too long to be one: the search for it would
    be slow in texts that are much like it."""
    part = query.strip()
    return part if len(part) <= _LONGEST_PART else None
