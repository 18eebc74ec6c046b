"""How large a text is: in bytes, or in the tokens of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measure:
    """A way to count, under a name by which another process knows it again.

    `count` is asked once for each block of a text, and for parts of those that are too
    large; the sum is taken as the size of all. So it should not count marks that the model
    adds to every text.
    """

    name: str
    count: Callable[[str], int]


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


BYTES = Measure("bytes", _bytes)
"""Bytes of UTF-8: one for a letter of English, more where models spend more on a letter. It is
an estimate of tokens for any script, at about four to one."""
