"""Titles of Markdown, reStructuredText, plain text and source code, whose text is kept as it is."""

from __future__ import annotations

import ast
import re
import warnings
from itertools import pairwise

from evervec.chunking.structure import plain_title
from evervec.files.document import Document, first_line, short_title

_HEADING = re.compile(r"^#[ \t]++(\S.*)$", re.MULTILINE)
_FRONT = re.compile(r"---[ \t]*\r?\n(.*?)^---[ \t]*$", re.DOTALL | re.MULTILINE)
_FRONT_TITLE = re.compile(r"^title:[ \t]*(\S.*)$", re.MULTILINE)
_RULE = re.compile(r"([=\-`:.'\"~^_*+#])\1*")
_TITLE_LINES = 50
"""lines at the top of a reStructuredText file that may hold its title"""
_LONGEST_SOURCE = 1_000_000
"""characters of Python that are parsed for their docstring"""


def read_markdown(text: str) -> Document:
    front = _FRONT.match(text[:10_000])
    named = _FRONT_TITLE.search(front.group(1)) if front else None
    if named:
        return Document(text, short_title(named.group(1).strip().strip("\"'")))
    heading = _HEADING.search(text)
    title = plain_title(heading.group(1).rstrip()) if heading else None
    return Document(text, short_title(title) or _underlined(text))


def read_rst(text: str) -> Document:
    return Document(text, _underlined(text))


def read_plain(text: str) -> Document:
    return Document(text, first_line(text))


def read_python(text: str) -> Document:
    """Python, with the first line of the module's docstring as its title."""
    if len(text) > _LONGEST_SOURCE:
        return Document(text)
    try:
        with (
            warnings.catch_warnings()
        ):  # the file's own escapes and comparisons are no concern here
            warnings.simplefilter("ignore")
            written = ast.get_docstring(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Document(text)
    return Document(text, short_title((written or "").partition("\n")[0].rstrip(".")))


def read_source(text: str) -> Document:
    return Document(text)


def _underlined(text: str) -> str | None:
    """The first line with a rule below it, as titles have in reStructuredText."""
    lines = [line.rstrip() for line in text[:20_000].split("\n", _TITLE_LINES)[:_TITLE_LINES]]
    for above, below in pairwise(lines):
        rule = _RULE.fullmatch(below)
        if (
            above[:1].strip()
            and rule
            and not _RULE.fullmatch(above)
            and len(below) >= min(len(above), 4)
        ):
            return short_title(above)
    return None
