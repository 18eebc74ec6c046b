"""Measures the size of a text: in bytes, or in the tokens of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measure:
    """A way to count, with a name by which another process recognises it.

    `count` is called once for each block of a text, and for parts of blocks that are too large; the
    sum is taken as the size of the whole. So it should not count the special tokens that a model
    adds to every text.
    """

    name: str
    count: Callable[[str], int]


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


BYTES = Measure("bytes", _bytes)
"""Bytes of UTF-8: one for an English letter, more in scripts where models use more tokens per
letter. It estimates tokens in any script, at about four bytes to one token."""
