"""Checks the HTML of a built site: links, anchors, and that nothing is loaded from outside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

_LOADED = {
    ("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("source", "src"),
    ("video", "src"), ("audio", "src"), ("object", "data"), ("embed", "src"), ("use", "href"),
}  # fmt: skip
"""what a browser loads by itself"""
_OUTSIDE = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)""")


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[tuple[str, str, str]] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif name in ("href", "src", "data") and value:
                self.links.append((tag, name, value))


def broken_links(site: Path) -> list[str]:
    """What is wrong with the links of a site, one line for each."""
    pages = {path: _read(path) for path in sorted(site.rglob("*.html"))}
    found = [
        f"{path.relative_to(site)}: {problem}"
        for path, page in pages.items()
        for problem in _problems(site, path, page, pages)
    ]
    for style in sorted(site.rglob("*.css")):
        outside = _OUTSIDE.findall(style.read_text("utf-8"))
        found += [f"{style.relative_to(site)}: loads {link} from outside" for link in outside]
    return found


def _read(path: Path) -> _Reader:
    reader = _Reader()
    reader.feed(path.read_text("utf-8"))
    return reader


def _problems(site: Path, path: Path, page: _Reader, pages: dict[Path, _Reader]) -> Iterator[str]:
    for tag, attribute, link in page.links:
        parts = urlsplit(link)
        if parts.scheme == "data":
            continue
        if parts.scheme or parts.netloc:
            if (tag, attribute) in _LOADED:
                yield f"<{tag}> loads {link} from outside the site"
            continue
        if path.name == "404.html":  # its links are absolute: it is shown at any address
            continue
        where, anchor = urldefrag(link)
        target = (path.parent / unquote(where.partition("?")[0])).resolve() if where else path
        if target.is_dir():
            target /= "index.html"
        if not target.is_relative_to(site.resolve()) or not target.exists():
            yield f"{link} leads nowhere"
        elif anchor and target in pages and unquote(anchor) not in pages[target].anchors:
            yield f"{link}: there is no such heading"
