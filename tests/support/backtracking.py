"""How many steps a regular expression takes, by a matcher that backtracks as `re` does.

`re` does not tell its steps, and a clock tells other processes' too. This matcher tries what
`re` tries, in the same order, and counts each character and each place that it looks at. `re` has
shortcuts, so it takes at most as many.
"""

import re
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from re import _constants as c
from re import _parser as parser
from typing import Any, TypeVar

T = TypeVar("T")
Next = Callable[[int], int | None]
_CATEGORIES = {
    c.CATEGORY_SPACE: r"\s", c.CATEGORY_NOT_SPACE: r"\S", c.CATEGORY_WORD: r"\w",
    c.CATEGORY_NOT_WORD: r"\W", c.CATEGORY_DIGIT: r"\d", c.CATEGORY_NOT_DIGIT: r"\D",
}  # fmt: skip


class TooMany(Exception):
    """More steps than are of interest."""


class Matcher:
    """One pattern over one text."""

    def __init__(self, pattern: re.Pattern[str], text: str, most: int = 1_000_000) -> None:
        self.steps = 0
        self._most = most
        self._text = text
        self._flags = pattern.flags
        self._tree = _parsed(pattern)
        self._groups: dict[int, tuple[int, int]] = {}

    def find_all(self) -> int:
        """As `finditer` goes through a text; the number of matches."""
        at = found = 0
        while at <= len(self._text):
            end = self._sequence(self._tree, at, lambda place: place)
            if end is not None:
                found += 1
            at = at + 1 if end is None or end == at else end
        return found

    def _sequence(self, nodes: list[Any], at: int, go_on: Next) -> int | None:
        self.steps += 1
        if self.steps > self._most:
            raise TooMany
        if not nodes:
            return go_on(at)
        rest = nodes[1:]
        return self._node(nodes[0], at, lambda place: self._sequence(rest, place, go_on))

    def _node(self, node: Any, at: int, go_on: Next) -> int | None:
        op, given = node
        if self._is_single(op):
            return go_on(at + 1) if self._takes(node, at) else None
        if op is c.AT:
            return go_on(at) if self._stands(given, at) else None
        if op is c.SUBPATTERN:
            group, _, _, inner = given

            def close(place: int) -> int | None:
                before = self._groups.get(group)
                self._groups[group] = (at, place)
                end = go_on(place)
                if end is None and before is not None:
                    self._groups[group] = before
                return end

            return self._sequence(list(inner), at, close)
        if op is c.BRANCH:
            ways = (self._sequence(list(way), at, go_on) for way in given[1])
            return next((end for end in ways if end is not None), None)
        if op in (c.ASSERT, c.ASSERT_NOT):
            assert given[0] == 1, "only what is ahead"
            ahead = self._sequence(list(given[1]), at, lambda place: place)
            return go_on(at) if (ahead is not None) is (op is c.ASSERT) else None
        if op is c.GROUPREF:
            start, end = self._groups[given]
            wanted = self._text[start:end]
            self.steps += len(wanted)
            return go_on(at + len(wanted)) if self._text.startswith(wanted, at) else None
        if op in (c.MAX_REPEAT, c.MIN_REPEAT, c.POSSESSIVE_REPEAT):
            least, most, inner = given
            return self._repeat(op, least, most, list(inner), at, go_on)
        raise NotImplementedError(op)

    def _repeat(
        self, op: Any, least: int, most: int, inner: list[Any], at: int, go_on: Next
    ) -> int | None:
        if len(inner) == 1 and self._is_single(inner[0][0]):
            run = 0
            if op is c.MIN_REPEAT:
                while run < least:
                    if not self._takes(inner[0], at + run):
                        return None
                    run += 1
                while (end := go_on(at + run)) is None:
                    if run >= most or not self._takes(inner[0], at + run):
                        return None
                    run += 1
                return end
            while run < most and self._takes(inner[0], at + run):
                run += 1
            if op is c.POSSESSIVE_REPEAT:
                return go_on(at + run) if run >= least else None
            for length in range(run, least - 1, -1):
                self.steps += 1
                if (end := go_on(at + length)) is not None:
                    return end
            return None
        assert op is not c.POSSESSIVE_REPEAT

        def again(count: int, place: int) -> int | None:
            def more() -> int | None:
                if count >= most:
                    return None
                return self._sequence(
                    inner, place, lambda end: None if end == place else again(count + 1, end)
                )

            ways = (more, lambda: go_on(place) if count >= least else None)
            for way in ways if op is c.MAX_REPEAT else reversed(ways):
                if (end := way()) is not None:
                    return end
            return None

        return again(0, at)

    def _is_single(self, op: Any) -> bool:
        return op in (c.LITERAL, c.NOT_LITERAL, c.ANY, c.IN)

    def _takes(self, node: Any, at: int) -> bool:
        self.steps += 1
        if at >= len(self._text):
            return False
        op, given = node
        char = self._text[at]
        if op is c.ANY:
            return char != "\n" or bool(self._flags & re.DOTALL)
        if op is c.IN:
            negated = given[0][0] is c.NEGATE
            return (
                any(self._has(part, char) for part in given if part[0] is not c.NEGATE) != negated
            )
        same = self._has((c.LITERAL, given), char)
        return same is (op is c.LITERAL)

    def _has(self, part: Any, char: str) -> bool:
        op, given = part
        if op is c.RANGE:
            return bool(given[0] <= ord(char) <= given[1])
        if op is c.CATEGORY:
            return re.match(_CATEGORIES[given], char) is not None
        if self._flags & re.IGNORECASE:
            return chr(given).lower() == char.lower()
        return bool(ord(char) == given)

    def _stands(self, where: Any, at: int) -> bool:
        self.steps += 1
        text, lines = self._text, bool(self._flags & re.MULTILINE)
        if where in (c.AT_BEGINNING, c.AT_BEGINNING_STRING):
            return at == 0 or (lines and where is c.AT_BEGINNING and text[at - 1] == "\n")
        if where is c.AT_END_STRING:
            return at == len(text)
        assert where is c.AT_END
        return at >= len(text) - text.endswith("\n") or (lines and text[at] == "\n")


@cache
def _parsed(pattern: re.Pattern[str]) -> list[Any]:
    return list(parser.parse(pattern.pattern, pattern.flags))


def steps(pattern: re.Pattern[str], text: str, most: int) -> int:
    """The steps that it takes to find all matches in a text; `most` where it takes more."""
    matcher = Matcher(pattern, text, most)
    with suppress(TooMany):
        matcher.find_all()
    return min(matcher.steps, most)


def with_deep_stack(do: Callable[[], T]) -> T:
    """What a function gives that recurses deeply."""
    limit, before = sys.getrecursionlimit(), threading.stack_size(256 << 20)
    sys.setrecursionlimit(100_000)
    try:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(do).result()
    finally:
        threading.stack_size(before)
        sys.setrecursionlimit(limit)
