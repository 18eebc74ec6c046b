"""Splits a text into blocks: headings, paragraphs, list items, fenced code, tables.

One pass over the lines reads Markdown, reStructuredText, plain text and code alike, by what they
have in common: blank lines separate, indented lines belong to what is above, a fence holds
together. A block depends only on its own lines and their neighbours, so an edit changes only the
blocks around it; only a fence extends to its other end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# Rank of the start of a block as a place to cut, lowest first. A heading's rank is its depth, 1 to
# 6; the indent is added to the next two.
PARAGRAPH = 10
ITEM = 24
JOINED = 38
"""next to a fence, without a blank line"""
NEVER = 99
"""right behind a heading: only if there is no other place"""

_INTRODUCED = 8  # added after a colon
_DEEPEST = 12
_LONGEST_HEADING = 200

_LINE = re.compile(r"[^\n]+")
_HEADING = re.compile(r"(#{1,6})[ \t]+(.*)")
_BLANK_BELOW = re.compile(r"\n[^\S\n]*(?:\n|\Z)|\Z")
_FENCE = re.compile(r"^[ \t]*((`{3,}+|~{3,}+)([^`\n]*))$", re.MULTILINE)
_ITEM = re.compile(r"(?:[-*+•]|\d{1,9}[.)])[ \t]")
_RULE_SIGNS = frozenset("=-~^\"'`#*+.:_")
_DEPTHS = {"=": 1, "-": 2, "~": 3, "^": 4, '"': 5}


@dataclass(slots=True)
class Block:
    """A span of a text without space at its ends."""

    start: int
    end: int
    level: int
    """rank of its start as a place to cut: lower is better"""
    context: str = ""
    """the headings above it, from the outermost"""
    size: int = 0
    """in the measure in use; 0 before it is measured"""


def blocks(text: str) -> Iterator[Block]:
    """The blocks of a text in order; only space is between them."""
    return _Reader(text).read()


def indent_of(line: str) -> int:
    """The number of columns before a line's first character, up to `_DEEPEST`."""
    width = len(line) - len(line.lstrip())
    if width and "\t" in line[: min(width, _DEEPEST)]:
        width = len(line[: min(width, _DEEPEST)].expandtabs(4))
    return min(width, _DEEPEST)


def plain_title(title: str) -> str:
    """A heading's title without the signs and attributes that may close its line, as in `Title ##`
    and `Title {#anchor}`."""
    while True:
        if title.endswith("}"):
            start = title.rfind("{")
            if start < 0 or title.find("}", start) < len(title) - 1:
                return title
            shorter = title[:start]
        else:
            shorter = title.rstrip("#")
            if shorter == title or not shorter[-1:].isspace():
                return title
        title = shorter.rstrip()


class _Headings:
    """The headings above the current place."""

    def __init__(self) -> None:
        self._open: list[tuple[int, str]] = []
        self.context = ""

    def leave(self, depth: int) -> None:
        """Close the headings of this depth and deeper."""
        if not self._open or self._open[-1][0] < depth:
            return
        while self._open and self._open[-1][0] >= depth:
            self._open.pop()
        self.context = " > ".join(title for _, title in self._open)

    def enter(self, depth: int, title: str) -> None:
        self._open.append((depth, title))
        self.context = " > ".join(title for _, title in self._open)


class _Reader:
    """Reads line by line, with one open block."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._headings = _Headings()
        self._block: Block | None = None
        self._first = self._last = ""
        """lines of the open block"""
        self._lines = 0
        self._fences = _fences(text)
        self._fence_end = 0
        self._starts_block = False
        """the next line begins a block, whatever it is"""
        self._is_heading = False
        """the open block is a heading"""

    def read(self) -> Iterator[Block]:
        for match in _LINE.finditer(self._text):
            whole = match.group()
            line = whole.strip()
            if not line:
                continue
            start = match.start() + len(whole) - len(whole.lstrip())
            done = self._block
            if done is not None and start < self._fence_end:
                done.end = start + len(line)
            elif self._begins(whole, line, start, match.end()):
                if done is not None:
                    yield done
            elif done is not None:
                self._goes_on(done, start, line)
        if self._block is not None:
            yield self._block

    def _begins(self, whole: str, line: str, start: int, end: int) -> bool:
        """Open a block if the line begins one."""
        behind = self._block
        blank = behind is None or self._text.count("\n", behind.end, start) > 1
        fence = self._fences.get(start, 0)
        heading = self._heading(line, end, blank) if line[0] == "#" else None
        if not (blank or self._starts_block or fence or heading or _ITEM.match(line)):
            return False
        if self._is_heading:
            level = NEVER
        elif heading:
            level = heading[0]
        elif not blank and (fence or self._starts_block):
            level = JOINED
        else:
            level = (PARAGRAPH if blank else ITEM) + indent_of(whole)
            if self._last.endswith((":", "\uff1a")):
                level += _INTRODUCED
        if heading:
            self._headings.leave(heading[0])
        self._block = Block(start, start + len(line), level, self._headings.context)
        if heading:
            self._headings.enter(*heading)
        self._is_heading = heading is not None
        self._starts_block = self._is_heading or fence > 0
        self._fence_end = fence
        self._first, self._last = line, "" if fence else line
        self._lines = 1
        return True

    def _goes_on(self, block: Block, start: int, line: str) -> None:
        """Add a line to the open block; an underline turns the block into a heading."""
        block.end = start + len(line)
        self._lines += 1
        title = self._underlined(line)
        if title:
            depth = _DEPTHS.get(line[0], 6)
            self._headings.leave(depth)
            block.context = self._headings.context
            block.level = depth if block.level != NEVER else NEVER
            self._headings.enter(depth, title)
            self._is_heading = self._starts_block = True
        self._last = line

    def _heading(self, line: str, end: int, blank: bool) -> tuple[int, str] | None:
        """Depth and title of a heading with #. A single # is also a comment in many languages, so
        it counts only between blank lines."""
        found = _HEADING.match(line) if len(line) <= _LONGEST_HEADING else None
        if found is None:
            return None
        depth, title = len(found.group(1)), plain_title(found.group(2))
        if depth == 1 and not (blank and _BLANK_BELOW.match(self._text, end)):
            return None
        return (depth, title) if any(map(str.isalnum, title)) else None

    def _underlined(self, line: str) -> str:
        """The title that a line underlines, if any: the block's only line, or its second line if
        the first is the same rule above it."""
        if self._lines == 2:
            above = 3
        elif self._lines == 3 and line == self._first:
            above = len(self._last)
        else:
            return ""
        title = self._last
        if not above <= len(line) or len(title) > _LONGEST_HEADING or not _is_rule(line):
            return ""
        return title if any(map(str.isalnum, title)) and not _ITEM.match(title) else ""


def _is_rule(line: str) -> bool:
    return len(line) > 2 and line[0] in _RULE_SIGNS and line.count(line[0]) == len(line)


def _fences(text: str) -> dict[int, int]:
    """The start and end of each closed fence."""
    if "```" not in text and "~~~" not in text:
        return {}
    marks = list(_FENCE.finditer(text))
    closings = _closings(marks)
    found, place = {}, 0
    while place < len(marks):
        closing = None if _underlines(text, marks[place]) else closings[place]
        if closing is not None:
            found[marks[place].start(1)] = marks[closing].end()
        place = (place if closing is None else closing) + 1
    return found


def _closings(marks: list[re.Match[str]]) -> list[int | None]:
    """For each mark, the mark that closes the fence it opens: the next of the same sign and at
    least its length. If that one opens another fence, the first was never closed. The loop runs
    backwards; `ahead` has the marks that can still close an earlier one."""
    found: list[int | None] = [None] * len(marks)
    ahead: dict[str, list[int]] = {"`": [], "~": []}
    for place in reversed(range(len(marks))):
        fence = marks[place].group(2)
        later = ahead[fence[0]]
        while later and len(marks[later[-1]].group(2)) < len(fence):
            later.pop()
        if later and not marks[later[-1]].group(3).strip():
            found[place] = later[-1]
        later.append(place)
    return found


def _underlines(text: str, mark: re.Match[str]) -> bool:
    """Whether a mark is the underline of a title, as in reStructuredText."""
    above = text[text.rfind("\n", 0, max(0, mark.start() - 1)) + 1 : mark.start()].strip()
    return bool(above) and not mark.group(3).strip() and len(mark.group(2)) >= max(4, len(above))
