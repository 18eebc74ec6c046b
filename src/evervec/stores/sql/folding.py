"""Text as full text gets it: plain words, without case and accents.

PostgreSQL's own parser would keep addresses and paths whole, and what counts as a letter
depends on the database's locale. So words are cut here, and the engine only stems them.
"""

from __future__ import annotations

import re
import unicodedata
from hashlib import blake2b

MOST_BYTES = 350_000
"""A tsvector holds one megabyte: what lies behind this is not found by words, anywhere."""

_ASCII = {code: " " for code in range(128) if not chr(code).isalnum()}
_MARKS = re.compile("[\u0300-\u036f]+")
_NO_WORD = re.compile(r"[\W_]+")


def fold(text: str) -> str:
    """The words of a text, apart by blanks."""
    if text.isascii():
        return text[:MOST_BYTES].translate(_ASCII)
    plain = unicodedata.normalize("NFC", _MARKS.sub("", unicodedata.normalize("NFKD", text)))
    words = _NO_WORD.sub(" ", plain).lower()
    return words.encode()[:MOST_BYTES].decode(errors="ignore")


def owner_word(tenant: str) -> str:
    """The word under which full text finds only this tenant's records."""
    return "t" + blake2b(tenant.encode(), digest_size=12).hexdigest()
