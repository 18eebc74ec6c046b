"""Turns files into records: text, Markdown, source code, and the visible text of HTML.

A record's id is the path relative to the given folder, so that a second run updates the same
records.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from stat import S_ISREG
from typing import Any

import click

from evervec.chunking.structure import plain_title

LARGEST = 10 << 20
_SKIPPED_FOLDERS = {"node_modules", "__pycache__", "venv", "site-packages"}
_HEADING = re.compile(r"^#[ \t]++(\S.*)$", re.MULTILINE)
_GAP = re.compile(r"\n\s*\n")
_LONGEST_TITLE = 200


@dataclass(frozen=True)
class Source:
    """A file to add, with its record id."""

    path: Path
    id: str
    folder: Path | None = None
    """the given folder in which the file was found, if any"""


def find(named: Sequence[str]) -> tuple[list[Source], list[str]]:
    """The files that match the given paths, folders and globs, and the id prefixes of the
    folders."""
    found: dict[str, Source] = {}
    prefixes = []
    for given in named:
        paths = sorted(glob.glob(given, recursive=True)) if glob.has_magic(given) else [given]
        if not paths:
            raise click.UsageError(f"no file matches '{given}'")
        for name in paths:
            path = Path(name)
            if path.is_dir():
                base = path.resolve().name if path.is_absolute() else os.path.normpath(name)
                base = "" if base == "." or base.startswith("..") else Path(base).as_posix() + "/"
                prefixes.append(base)
                sources: Iterable[Source] = (
                    Source(file, base + file.relative_to(path).as_posix(), path)
                    for file in _walk(path)
                )
            elif path.is_file():
                sources = [Source(path, _id_of(path))]
            else:
                raise click.UsageError(f"file or folder '{name}' does not exist")
            for source in sources:
                other = found.setdefault(source.id, source)
                if other is not source and not _is_same(other.path, source.path):
                    raise click.UsageError(
                        f"'{other.path}' and '{source.path}' would both have the id "
                        f"'{source.id}': add them from a folder above both"
                    )
    return list(found.values()), prefixes


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _id_of(path: Path) -> str:
    return path.name if path.is_absolute() else Path(os.path.normpath(path)).as_posix()


def _walk(folder: Path) -> Iterator[Path]:
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if f not in _SKIPPED_FOLDERS and f[0] != ".")
        for name in sorted(names):
            if not name.startswith("."):
                yield Path(here, name)


def snapshot(folder: str) -> dict[str, tuple[int, int]]:
    """Size and modification time of every file in a folder, to detect changes."""
    seen = {}
    for path in _walk(Path(folder)):
        try:
            stat = path.stat()
        except OSError:  # deleted since it was listed
            continue
        seen[str(path)] = (stat.st_size, stat.st_mtime_ns)
    return seen


def read(source: Source) -> dict[str, Any] | str:
    """The record of a file, or the reason why it is skipped."""
    try:
        stat = source.path.stat()
        if source.folder and _leads_out(source.path, source.folder):
            return "a link to something outside the folder"
        if not S_ISREG(stat.st_mode):
            return "not a regular file"
        if stat.st_size > LARGEST:
            return f"larger than {LARGEST >> 20} MB"
        content = source.path.read_bytes()
    except OSError as error:
        return error.strerror or str(error)
    if b"\0" in content:
        return "not text"
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return "not UTF-8 text"
    title = None
    suffix = source.path.suffix.lower()
    if suffix in (".html", ".htm", ".xhtml"):
        title, text = visible_text(text)
    elif suffix in (".md", ".markdown") and (heading := _HEADING.search(text)):
        title = plain_title(heading.group(1).rstrip())
    if not text.strip():
        return "empty"
    return {
        "id": source.id,
        "text": text,
        "title": title if title and len(title) <= _LONGEST_TITLE else source.id,
        "metadata": {"path": source.id, "type": suffix.lstrip(".")},
        "updated_at": stat.st_mtime,
    }


def _leads_out(path: Path, folder: Path) -> bool:
    return path.is_symlink() and not path.resolve().is_relative_to(folder.resolve())


class _Visible(HTMLParser):
    """Collects the visible text of a page."""

    _HIDDEN = frozenset({"script", "style", "template", "noscript", "head", "svg"})
    _BLOCKS = frozenset({
        "p", "div", "section", "article", "li", "ul", "ol", "table", "tr", "h1", "h2", "h3", "h4",
        "h5", "h6", "pre", "br", "hr", "dt", "dd", "blockquote", "header", "footer", "nav", "main",
        "aside", "figure", "figcaption", "form",
    })  # fmt: skip

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.title = ""
        self._hidden: list[str] = []
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self._HIDDEN:
            self._hidden.append(tag)
        self._in_title = tag == "title"
        if tag in self._BLOCKS:
            self.parts.append("\n\n" if tag != "br" else "\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._hidden:
            del self._hidden[self._hidden.index(tag) :]
        self._in_title = False
        if tag in self._BLOCKS:
            self.parts.append("\n\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data
        elif not self._hidden:
            self.parts.append(re.sub(r"\s+", " ", data))


def visible_text(html: str) -> tuple[str | None, str]:
    """Title and visible text of a page."""
    page = _Visible()
    page.feed(html)
    page.close()
    paragraphs = (part.strip(" ") for part in _GAP.split("".join(page.parts)))
    return " ".join(page.title.split()) or None, "\n\n".join(paragraphs).strip()
