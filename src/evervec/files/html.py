"""The visible text of HTML: paragraphs, headings as in Markdown, and code as it is laid out."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from evervec.files.document import Document, short_title

_HIDDEN = frozenset({"script", "style", "template", "noscript", "head", "svg"})
_BLOCKS = frozenset({
    "p", "div", "section", "article", "li", "ul", "ol", "table", "tr", "h1", "h2", "h3", "h4",
    "h5", "h6", "pre", "br", "hr", "dt", "dd", "blockquote", "header", "footer", "nav", "main",
    "aside", "figure", "figcaption", "form",
})  # fmt: skip
_HEADINGS = {f"h{depth}": "#" * depth + " " for depth in range(1, 7)}
_SPACE = re.compile(r"\s+")
_MOST_LINES = 300
"""places of which the line is kept, at most: they are stored with the record"""


class _Page(HTMLParser):
    """Collects the visible blocks of a page, each with the line on which it starts."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[tuple[str, int]] = []
        self.title = ""
        self.heading = ""
        self._parts: list[str] = []
        self._line = 0
        self._mark = ""
        """what the open block begins with, such as the signs of a heading"""
        self._hidden: list[str] = []
        self._in_title = False
        self._in_pre = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _HIDDEN:
            self._hidden.append(tag)
        self._in_title = tag == "title"
        if tag == "br":
            self._parts.append("\n")
        elif tag in _BLOCKS:
            self._end_block()
            self._mark = _HEADINGS.get(tag, "- " if tag == "li" else "")
            self._in_pre = tag == "pre"
        elif tag in ("td", "th") and self._parts:
            self._parts.append(" | ")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._hidden:
            del self._hidden[self._hidden.index(tag) :]
        self._in_title = False
        if tag in _BLOCKS:
            self._end_block()
            self._mark, self._in_pre = "", False

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data
        elif not self._hidden:
            if not self._line and data.strip():
                before = data[: len(data) - len(data.lstrip())]
                self._line = self.getpos()[0] + before.count("\n")
            self._parts.append(data if self._in_pre else _SPACE.sub(" ", data))

    def end(self) -> None:
        self.close()
        self._end_block()

    def _end_block(self) -> None:
        written = "".join(self._parts)
        if self._in_pre:
            text = written.strip("\n").rstrip()
            text = f"```\n{text}\n```" if "\n" in text and "```" not in text else text.strip()
        else:
            text = "\n".join(filter(None, map(str.strip, written.split("\n"))))
        if text:
            if self._mark.startswith("#"):
                text = " ".join(text.split())
                self.heading = self.heading or text
            self.blocks.append((self._mark + text, self._line))
            self._mark = ""
        self._parts, self._line = [], 0


def read_html(html: str) -> Document:
    """Title and visible text of a page."""
    page = _Page()
    page.feed(html)
    page.end()
    lines, texts, offset = [], [], 0
    sparse = max(1, len(page.blocks) // _MOST_LINES + (len(page.blocks) > _MOST_LINES))
    for number, (text, line) in enumerate(page.blocks):
        if number % sparse == 0:
            lines.append((offset, line))
        texts.append(text)
        offset += len(text) + 2
    title = short_title(page.title) or short_title(page.heading)
    return Document("\n\n".join(texts), title, tuple(lines))
