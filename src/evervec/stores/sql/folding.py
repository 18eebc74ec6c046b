"""Text in the form that is indexed for full text: plain words, without case and accents.

PostgreSQL's own parser would keep addresses and paths whole, and its notion of a letter depends on
the database's locale. So the text is split into words here, and the engine only stems them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from hashlib import blake2b

MOST_BYTES = 350_000
"""A tsvector holds at most one megabyte: text beyond this limit is not found by words."""

_PIECE = 256
"""how many characters are normalised at once"""
_ASCII = {code: " " for code in range(128) if not chr(code).isalnum()}
_MARKS = re.compile("[\u0300-\u036f]+")
_NO_WORD = re.compile(r"[\W_]+")


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
