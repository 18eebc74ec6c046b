"""Where in its file a part of a record's text is: a line, a page, a cell or a time, and a definition."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from evervec.files.subtitles import TIME

_PAGED = {"pdf": "page", "docx": "page", "ipynb": "cell"}
_TIMED = ("srt", "vtt")
_LONGEST_SOURCE = 1_000_000
_DEFINITION = re.compile(
    r"^(?P<indent>[ \t]*)"
    r"(?:(?:export|default|public|private|protected|internal|static|final|abstract|async|pub(?:\([a-z]{1,9}\))?"
    r"|unsafe|override|open|data|sealed|inline|virtual|declare)[ \t]+){0,5}"
    r"(?P<what>def|class|function\*?|func|fn|fun|interface|struct|enum|trait|impl|module|namespace|object"
    r"|record|protocol|type|sub|macro_rules!)[ \t]+"
    r"(?:\([^()\n]{0,80}\)[ \t]*)?(?P<name>[A-Za-z_$][\w$.:?!-]{0,80})",
    re.MULTILINE,
)
_DEFINED = frozenset(
    (
        "c", "cc", "cpp", "cs", "dart", "ex", "exs", "go", "h", "hpp", "java", "jl", "js",
        "jsx", "kt", "lua", "mjs", "php", "pl", "ps1", "py", "pyi", "pyw", "rb", "rs", "scala",
        "swift", "ts", "tsx", "vue", "zig",
    )
)  # fmt: skip


class Place(NamedTuple):
    """A place in a file."""

    what: str
    """line, page, cell or time"""
    at: str
    inside: str = ""
    """the definitions of source code around it, from the outermost"""


def place_of(text: str, metadata: Mapping[str, Any], offset: int) -> Place | None:
    """The place of an offset in the text of a record that was read from a file; None for another
    record."""
    kind = metadata.get("type")
    if "path" not in metadata or not isinstance(kind, str):
        return None
    if kind in _PAGED:
        page = text.count("\f", 0, _first_written(text, offset)) + 1
        return None if kind == "docx" and "\f" not in text else Place(_PAGED[kind], str(page))
    if kind in _TIMED:
        times = [found.group(1) for found in TIME.finditer(text, 0, offset + 1 + len("[0000:00:00] "))
                 if found.start() <= offset]  # fmt: skip
        return Place("time", times[-1]) if times else None
    if isinstance(lines := metadata.get("lines"), str):
        return Place("line", str(_line_of(lines, offset)))
    line = text.count("\n", 0, _first_written(text, offset)) + 1
    return Place("line", str(line), " > ".join(definitions_at(text, kind, line)))


def written_lines(lines: Sequence[tuple[int, int]]) -> str:
    """The lines of a document as they are stored in the metadata of its record."""
    return " ".join(f"{offset}:{line}" for offset, line in lines)


def _line_of(lines: str, offset: int) -> int:
    found = 1
    for mark in lines.split():
        at, _, line = mark.partition(":")
        if not (at.isdecimal() and line.isdecimal()) or int(at) > offset:
            break
        found = int(line)
    return found


def _first_written(text: str, offset: int) -> int:
    """The first character from an offset that is not space: a chunk may begin before its line."""
    while offset < len(text) and text[offset].isspace():
        offset += 1
    return offset


def definitions_at(text: str, kind: str, line: int) -> list[str]:
    """The functions and classes around a line of source code, from the outermost."""
    if kind not in _DEFINED or len(text) > _LONGEST_SOURCE:
        return []
    if kind.startswith("py"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return list(_around(ast.parse(text), line))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass
    return _above(text, line)


def _around(tree: ast.AST, line: int) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = min([node.lineno, *(sign.lineno for sign in node.decorator_list)])
            if first <= line <= (node.end_lineno or node.lineno):
                what = "class" if isinstance(node, ast.ClassDef) else "def"
                yield f"{what} {node.name}"
                yield from _around(node, line)
        elif getattr(node, "lineno", line) <= line <= getattr(node, "end_lineno", line):
            yield from _around(node, line)


def _above(text: str, line: int) -> list[str]:
    """Languages without a parser here: a definition reaches to the next line that is indented no
    deeper and closes no bracket."""
    lines = text.split("\n")
    found: list[tuple[int, str]] = []
    for number, written in enumerate(lines[:line], 1):
        if not written.strip():
            continue
        indent = len(written) - len(written.lstrip())
        closes = written.lstrip()[0] in "})]" or written.lstrip().startswith("end")
        if not closes:
            while found and found[-1][0] >= indent:
                found.pop()
        match = _DEFINITION.match(written[:500])
        if match:
            found.append((indent, f"{match['what']} {match['name'].rstrip(':-.')}"))
        elif closes and number < line:
            while found and found[-1][0] >= indent:
                found.pop()
    return [name for _, name in found]
