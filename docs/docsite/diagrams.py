"""Draws the Mermaid diagrams of the pages as SVG.

Mermaid would be loaded from outside when a page is read, so the site has pictures instead. Only
what the pages use is understood: sequence diagrams with `alt` and `loop`, and flow charts that are
a chain of boxes. Anything else is an error, so that no diagram is drawn wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from textwrap import wrap

from docsite.pages import SiteError

_BLOCK = re.compile(r"^```mermaid\n(?P<source>.*?)^```$", re.MULTILINE | re.DOTALL)
_PARTICIPANT = re.compile(r"participant (?P<name>\w+) as (?P<label>.+)")
_MESSAGE = re.compile(r"(?P<from>\w+)(?P<arrow>-->>|->>)(?P<to>\w+): (?P<text>.+)")
_FRAME = re.compile(r"(?P<word>alt|else|loop) (?P<text>.+)")
_BOX = re.compile(r'(?P<name>\w+)(?:\["(?P<label>[^"]+)"\])?')
_LETTER = 7.0
"""width of a letter, on average"""
_LINE, _STEP = 17, 14
_WIDE, _NARROW, _MANY = 215, 158, 4
"""distance of columns; narrow where there are many, so that the letters stay large"""
_STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.head { font-weight: 600 } .note { fill: #59636e }
line, path { stroke: #59636e; fill: none } .reply { stroke-dasharray: 5 4 }
rect { fill: #f6f8fa; stroke: #8c959f } .frame { fill: none; stroke-dasharray: 3 3 }
.tip { fill: #59636e; stroke: none }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .note { fill: #9198a1 } line, path { stroke: #9198a1 }
rect { fill: #21262d; stroke: #6e7681 } .frame { fill: none } .tip { fill: #9198a1 }
}"""


class DiagramError(SiteError):
    """A diagram has a line that is not understood."""


def replaced(path: str, text: str) -> tuple[str, Mapping[str, str]]:
    """A page with pictures for its Mermaid blocks, and the pictures by name."""
    drawings: dict[str, str] = {}
    stem = path.removesuffix(".md").replace("/", "-")
    up = "../" * path.count("/")

    def replace(found: re.Match[str]) -> str:
        name = f"{stem}-{len(drawings) + 1}.svg"
        above = re.findall(r"^#+ (.+)$", text[: found.start()], re.MULTILINE)
        drawings[name] = draw(found["source"])
        return f"![Diagram: {above[-1] if above else stem}]({up}pictures/{name})"

    return _BLOCK.sub(replace, text), drawings


def draw(source: str) -> str:
    """The SVG of a diagram."""
    first, *lines = [line.strip() for line in source.strip().splitlines()]
    if first == "sequenceDiagram":
        return _Sequence(lines).svg()
    if first == "flowchart TD":
        return _chain(lines)
    raise DiagramError(f"cannot draw {first!r}: use sequenceDiagram or flowchart TD")


@dataclass
class _Sequence:
    """A sequence diagram: a column for each participant, messages from top to bottom."""

    lines: list[str]
    columns: dict[str, float] = field(default_factory=dict)
    parts: list[str] = field(default_factory=list)
    frames: list[float] = field(default_factory=list)
    y: float = 60

    @property
    def gap(self) -> int:
        return _NARROW if sum(map(_is_participant, self.lines)) > _MANY else _WIDE

    def svg(self) -> str:
        labels: list[tuple[float, str]] = []
        for line in self.lines:
            if found := _PARTICIPANT.fullmatch(line):
                x = labels[-1][0] + self.gap if labels else self.gap / 2
                self.columns[found["name"]] = x
                labels.append((x, found["label"]))
            elif found := _FRAME.fullmatch(line):
                self._frame(found["word"], found["text"])
            elif line == "end":
                self._end()
            elif found := _MESSAGE.fullmatch(line):
                self._message(found)
            else:
                raise DiagramError(f"cannot draw the line {line!r}")
        width = max(self.columns.values()) + self.gap / 2
        heads = [
            part for x, label in labels for part in _head(x, label, self.gap - 14, self.y + 10)
        ]
        return _svg(width, self.y + 20, [*heads, *self.parts])

    def _message(self, found: re.Match[str]) -> None:
        start, end = self.columns[found["from"]], self.columns[found["to"]]
        own = start == end
        room = self.gap if own else abs(end - start)
        texts = wrap(found["text"], int((room - 16) / _LETTER))
        middle = start + 14 if own else (start + end) / 2
        for text in texts:
            self.y += _LINE
            anchor = "start" if own else "middle"
            self.parts.append(
                f'<text x="{middle}" y="{self.y}" text-anchor="{anchor}">{escape(text)}</text>'
            )
        kind = ' class="reply"' if found["arrow"] == "-->>" else ""
        if own:
            top = self.y - _LINE * len(texts) + 6
            self.parts.append(f'<path d="M{start} {top} h8 V{self.y + 4} h-4"/>')
            self.parts.append(_tip(start, self.y + 4, -1))
        else:
            self.y += 7
            side = 1 if end > start else -1
            self.parts.append(
                f'<line{kind} x1="{start}" y1="{self.y}" x2="{end - 6 * side}" y2="{self.y}"/>'
            )
            self.parts.append(_tip(end, self.y, side))
        self.y += _STEP

    def _frame(self, word: str, text: str) -> None:
        if word == "else":
            self.parts.append(
                f'<line class="reply" x1="8" y1="{self.y}" x2="{self._right}" y2="{self.y}"/>'
            )
        else:
            self.frames.append(self.y)
        self.y += _LINE
        self.parts.append(f'<text class="note" x="16" y="{self.y}">{word}: {escape(text)}</text>')
        self.y += 4

    def _end(self) -> None:
        top = self.frames.pop()
        height = self.y - top
        self.parts.append(
            f'<rect class="frame" x="8" y="{top}" width="{self._right - 8}" height="{height}" rx="4"/>'
        )
        self.y += _STEP

    @property
    def _right(self) -> float:
        return max(self.columns.values()) + self.gap / 2 - 8


def _is_participant(line: str) -> bool:
    return _PARTICIPANT.fullmatch(line) is not None


def _head(x: float, label: str, width: float, bottom: float) -> Iterator[str]:
    yield f'<line x1="{x}" y1="50" x2="{x}" y2="{bottom}" opacity="0.5"/>'
    yield f'<rect x="{x - width / 2}" y="8" width="{width}" height="42" rx="6"/>'
    before, dot, last = label.rpartition(".")
    rows = [before + dot, last] if dot and len(label) * 7.8 > width else [label]
    for number, row in enumerate(rows):
        y = 34 - 9 * (len(rows) - 1) + _LINE * number
        yield f'<text class="head" x="{x}" y="{y}" text-anchor="middle">{escape(row)}</text>'


def _chain(lines: list[str]) -> str:
    """Boxes below each other, each with an arrow to the next."""
    labels: dict[str, str] = {}
    last = None
    for line in lines:
        names = []
        for end in line.split(" --> "):
            found = _BOX.fullmatch(end)
            if found is None:
                raise DiagramError(f"cannot draw the line {line!r}")
            if found["label"]:
                labels[found["name"]] = found["label"]
            names.append(found["name"])
        if len(names) != 2 or last not in (None, names[0]):
            raise DiagramError(f"cannot draw the line {line!r}: it does not continue the chain")
        last = names[1]
    parts, y, width = [], 10.0, 640.0
    for number, label in enumerate(labels.values()):
        rows = label.split("<br/>")
        height = 18 + _LINE * len(rows)
        if number:
            parts.append(f'<line x1="{width / 2}" y1="{y}" x2="{width / 2}" y2="{y + 16}"/>')
            parts.append(f'<path class="tip" d="M{width / 2} {y + 22} l-4 -8 h8 z"/>')
            y += 22
        parts.append(f'<rect x="10" y="{y}" width="{width - 20}" height="{height}" rx="6"/>')
        for row, text in enumerate(rows):
            kind = "head" if row == 0 else "note"
            at = y + 22 + _LINE * row
            parts.append(
                f'<text class="{kind}" x="{width / 2}" y="{at}" text-anchor="middle">{escape(text)}</text>'
            )
        y += height
    return _svg(width, y + 10, parts)


def _tip(x: float, y: float, side: int) -> str:
    return f'<path class="tip" d="M{x} {y} l{-8 * side} -4 v8 z"/>'


def _svg(width: float, height: float, parts: list[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" role="img">\n<style>\n{_STYLE}\n</style>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )
