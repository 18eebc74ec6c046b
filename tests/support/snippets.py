"""Reads the fenced blocks of a Markdown page and runs the Python ones as its reader would.

The blocks of a page run in order and share their names. A comment on the line above a block
changes what is done with it:

    <!-- not run -->    the Python block below is left out
    <!-- output -->     the block below is exactly what the Python block before it printed
"""

import contextlib
import io
import re
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

NOT_RUN = "<!-- not run -->"
OUTPUT = "<!-- output -->"

_FENCE = re.compile(r"(?P<fence>`{3,}|~{3,})\s*(?P<language>[\w+-]*)")


@dataclass(frozen=True)
class Block:
    """A fenced block; `line` is that of its first line of content, counted from 1."""

    language: str
    content: str
    line: int
    comment: str

    @property
    def is_python(self) -> bool:
        return self.language in {"python", "python3", "py"}

    @property
    def runs(self) -> bool:
        return self.is_python and self.comment != NOT_RUN


def read_blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page in order; a fence that is never closed is an error."""
    return list(_blocks(page, page.read_text(encoding="utf-8").splitlines()))


def _blocks(page: Path, lines: list[str]) -> Iterator[Block]:
    above = ""
    numbered = iter(enumerate(lines, start=1))
    for number, line in numbered:
        opening = _FENCE.match(line.lstrip())
        if opening is None:
            above = line.strip() or above
            continue
        content: list[str] = []
        for _, inner in numbered:
            if _closes(inner.strip(), opening["fence"]):
                break
            content.append(inner)
        else:
            raise ValueError(f"{page.name}:{number}: this block is never closed")
        # Blocks inside a list are indented with it.
        text = dedent("\n".join(content))
        yield Block(opening["language"].lower(), text, number + 1, above)
        above = ""


def _closes(line: str, fence: str) -> bool:
    return len(line) >= len(fence) and set(line) == {fence[0]}


def run_page(page: Path) -> None:
    """Run a page's Python blocks in the current folder, as one program.

    What a block raises comes out with the page's own line numbers. An output block that differs
    from what was printed, or that follows nothing that ran, raises `AssertionError`.
    """
    with _main_module() as program:
        printed: str | None = None
        for block in read_blocks(page):
            where = f"{page.name}:{block.line}"
            if block.runs:
                printed = _run(block, page, program)
            elif block.comment == OUTPUT:
                assert printed is not None, f"{where}: no Python block ran right before this output"
                assert printed.rstrip() == block.content.rstrip(), (
                    f"{where}: the page says\n{block.content}\nbut the code printed\n{printed}"
                )
                printed = None
            else:
                printed = None


def _run(block: Block, page: Path, program: types.ModuleType) -> str:
    above = "\n" * (block.line - 1)  # so that tracebacks point into the page
    code = compile(above + block.content, str(page), "exec", dont_inherit=True)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, program.__dict__)
    return out.getvalue()


@contextlib.contextmanager
def _main_module() -> Iterator[types.ModuleType]:
    """A fresh `__main__`, where the classes that a page defines can be found by their module."""
    before = sys.modules["__main__"]
    program = types.ModuleType("__main__")
    sys.modules["__main__"] = program
    try:
        yield program
    finally:
        sys.modules["__main__"] = before
