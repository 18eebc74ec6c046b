"""The words of a question that full text looks for."""

from __future__ import annotations

import re

_TERM = re.compile(r'"([^"]+)"|(\w+)')
_MOST_TERMS = 64
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
    """The words and quoted phrases worth looking for; none: there is nothing to find by words."""
    found = [phrase or word for phrase, word in _TERM.findall(query)][:_MOST_TERMS]
    found = [t for t in found if any(c.isalnum() for c in t)]
    return [t for t in found if t.lower() not in _LITTLE_WORDS] or found
