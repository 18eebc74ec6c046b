"""Finds places where a text can be cut without splitting a user-perceived character."""

from __future__ import annotations

import unicodedata

_JOINER = "\u200d"
_REACH = 32
"""how far back to look for a character's start; longer sequences of marks are not a character"""


def whole(text: str, at: int, least: int = 0) -> int:
    """The last place up to `at`, but after `least`, that does not separate a letter from its
    accents or an emoji from what it is joined with; `at` itself if there is none nearby."""
    for place in range(at, max(least, at - _REACH), -1):
        if not parts_character(text, place):
            return place
    return at


def parts_character(text: str, at: int) -> bool:
    """Whether a cut before `text[at]` would split one character. A space never belongs to one."""
    if not 0 < at < len(text):
        return False
    before, after = text[at - 1], text[at]
    if before.isspace() or after.isspace():
        return before == "\r" and after == "\n"
    if before == _JOINER:
        return True
    if after < "\u0300":  # there are no combining marks below this
        return False
    return _extends(after) or (_is_flag(after) and _half_flag(text, at))


def _extends(char: str) -> bool:
    return (
        char == _JOINER
        or unicodedata.category(char)[0] == "M"
        or "\U0001f3fb" <= char <= "\U0001f3ff"  # skin tones
        or "\U000e0020" <= char <= "\U000e007f"  # the letters of a region's flag
        or "\u1160" <= char <= "\u11ff"  # vowels and finals of a Hangul syllable
    )


def _is_flag(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _half_flag(text: str, at: int) -> bool:
    """Whether an odd number of flag letters precedes."""
    start = at
    while start > max(0, at - 2 * _REACH) and _is_flag(text[start - 1]):
        start -= 1
    return (at - start) % 2 == 1
