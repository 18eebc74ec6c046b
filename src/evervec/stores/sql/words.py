"""The words of full text: of a query, and of a text in the form that is indexed.

Engines' own parsers would keep addresses and paths whole, and their notion of a letter may depend
on a locale. So the text is split here into plain words, without case and accents, and the engine
only stems them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from hashlib import blake2b
from itertools import islice

MOST_BYTES = 350_000
"""A tsvector holds at most one megabyte: text beyond this limit is not found by words."""

_PIECE = 256
"""how many characters are normalised at once"""
_ASCII = {code: " " for code in range(128) if not chr(code).isalnum()}
_MARKS = re.compile("[\u0300-\u036f]+")
_NO_WORD = re.compile(r"[\W_]+")
_TERM = re.compile(r'"([^"]+)"|(\w+)')
_WORD = re.compile(r"[^\W_]+")  # as the engines' tokenizers split text
_MOST_WORDS = 64
_MOST_IN_PHRASES = 16
"""for all terms together: engines compare all positions of the words of a phrase"""
_LONGEST_PART = 128
LITTLE_WORDS = frozenset(
    [
        "a", "an", "and", "any", "are", "as", "at", "be", "by", "can", "did", "do", "does",
        "for", "from", "had", "has", "have", "how", "i", "if", "in", "into", "is", "it", "its",
        "me", "my", "no", "not", "of", "on", "or", "our", "so", "that", "the", "their", "them",
        "then", "there", "these", "they", "this", "to", "was", "we", "were", "what", "when",
        "where", "which", "who", "whom", "why", "will", "with", "would", "you", "your",
    ]
)  # fmt: skip
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
    return [t for t in found if t.lower() not in LITTLE_WORDS] or found


def part_of_text(query: str) -> str | None:
    """The query as a substring of a text: a part of a word, or of text that has no spaces between
    its words. None for several words, which are hardly a part of any text, while every text would
    be read for them; and for one too long, slow to find in texts that are much like it."""
    part = query.strip()
    return part if len(part) <= _LONGEST_PART and len(part.split()) == 1 else None


def fold(text: str) -> str:
    """The words of a text, separated by spaces."""
    if text.isascii():
        return text[:MOST_BYTES].translate(_ASCII)
    folded, size = [], 0
    for piece in _pieces(text):
        folded.append(_fold(piece))
        size += len(folded[-1])
        if size >= MOST_BYTES:
            break
    return "".join(folded).encode()[:MOST_BYTES].decode(errors="ignore")


def _fold(text: str) -> str:
    plain = unicodedata.normalize("NFC", _MARKS.sub("", unicodedata.normalize("NFKD", text)))
    return _NO_WORD.sub(" ", plain).lower()


def _pieces(text: str) -> Iterator[str]:
    """Split a text into pieces of bounded length: normalisation sorts the marks of a letter in
    quadratic time. A piece ends within a word only if it contains no space."""
    start = 0
    while len(text) - start > _PIECE:
        end = start + _PIECE
        blank = text.rfind(" ", start + 1, end)
        end = blank if blank > 0 else _letter_before(text, end)
        yield text[start:end]
        start = end
    yield text[start:]


def _letter_before(text: str, end: int) -> int:
    """The last position up to `end` that does not separate a letter from its marks; `end` if there
    is none near."""
    for place in range(end, end - _PIECE // 4, -1):
        if not unicodedata.combining(text[place]):
            return place
    return end


def owner_word(tenant: str) -> str:
    """The word that restricts a full-text search to this tenant's records."""
    return "t" + blake2b(tenant.encode(), digest_size=12).hexdigest()
