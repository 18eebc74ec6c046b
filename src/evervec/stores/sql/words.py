"""The words of a question that full text looks for."""

from __future__ import annotations

import re
from itertools import islice

_TERM = re.compile(r'"([^"]+)"|(\w+)')
_WORD = re.compile(r"[^\W_]+")  # as the engines' tokenizers cut
_MOST_WORDS = 64
_MOST_IN_PHRASES = 16
"""of all terms together: engines compare all places where the words of a phrase stand"""
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
"""Words of a question that say nothing of its answer, and yet are rare where answers are terse."""


def terms(query: str) -> list[str]:
    """The words and quoted phrases worth looking for, of as many words as count; none: there is
    nothing to find by words. Where phrases have too many words, each is looked for by itself."""
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
    """The query as it may stand in a text; None for one so long that it is none, and that would
    take long to look for where the text is much like it."""
    part = query.strip()
    return part if len(part) <= _LONGEST_PART else None
