"""Text as full text gets it: plain words, without case and accents.

PostgreSQL's own parser would keep addresses and paths whole, and what counts as a letter
depends on the database's locale. So words are cut here, and the engine only stems them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from hashlib import blake2b

MOST_BYTES = 350_000
"""A tsvector holds one megabyte: what lies behind this is not found by words, anywhere."""

_PIECE = 256
"""characters that are normalised at once"""
_ASCII = {code: " " for code in range(128) if not chr(code).isalnum()}
_MARKS = re.compile("[\u0300-\u036f]+")
_NO_WORD = re.compile(r"[\W_]+")


def fold(text: str) -> str:
    """The words of a text, apart by blanks."""
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
    """A text in pieces of a bounded length: normalisation sorts the marks of a letter, which
    takes the square of their number. No piece ends within a word where there is another place."""
    start = 0
    while len(text) - start > _PIECE:
        end = start + _PIECE
        blank = text.rfind(" ", start + 1, end)
        end = blank if blank > 0 else _letter_before(text, end)
        yield text[start:end]
        start = end
    yield text[start:]


def _letter_before(text: str, end: int) -> int:
    """The last place up to `end` that parts no letter from its marks; `end` where none is near."""
    for place in range(end, end - _PIECE // 4, -1):
        if not unicodedata.combining(text[place]):
            return place
    return end


def owner_word(tenant: str) -> str:
    """The word under which full text finds only this tenant's records."""
    return "t" + blake2b(tenant.encode(), digest_size=12).hexdigest()
