"""No regular expression of evervec takes more than linearly many steps, whatever the text is.

Texts are made of the signs that a pattern has, alone and in pairs, and doubled: twice the text may
take twice the steps. Steps are counted by a matcher of our own (`support.backtracking`).
"""

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

import evervec
from support.backtracking import Matcher, steps, with_deep_stack

SOURCE = Path(evervec.__file__).parent
SIZE = 32
MOST = 100_000
_USES = re.compile(r"\bre\.")
FRAMES = [("", ""), ("#  a", "!")]


def compiled() -> Iterator[tuple[str, re.Pattern[Any]]]:
    """The patterns that modules keep, and those that are compiled where they are used.

    Only modules that compile patterns are imported: to import all of evervec takes seconds. Those of
    the Django application are read instead: they need a project's settings.
    """
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text("utf-8")
        if "re.compile" in text and "django" not in path.parts:
            module = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
            for name, value in vars(importlib.import_module(module)).items():
                for each in value if isinstance(value, tuple) else (value,):
                    if isinstance(each, re.Pattern):
                        yield f"{module}.{name}", each
        for node in ast.walk(ast.parse(text)) if _USES.search(text) else ():
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name("re"), attr=attr),
                    args=[ast.Constant(value=str() as pattern), *_],
                ) if attr != "escape" and (attr != "compile" or "django" in path.parts):
                    yield f"{path.relative_to(SOURCE)}:{node.lineno}", re.compile(pattern)


@cache
def patterns() -> dict[tuple[str, int], tuple[str, re.Pattern[str]]]:
    """Not parameters of the tests: to find them imports all of evervec, which each process of a run
    would do before its first test."""
    return {(p.pattern, p.flags): (name, p) for name, p in map(_of_text, compiled())}


def _of_text(found: tuple[str, re.Pattern[Any]]) -> tuple[str, re.Pattern[str]]:
    """A pattern of bytes as the same pattern of a text."""
    name, pattern = found
    if isinstance(pattern.pattern, bytes):
        pattern = re.compile(pattern.pattern.decode("ascii"), pattern.flags | re.ASCII)
    return name, pattern


def signs(pattern: re.Pattern[str]) -> list[str]:
    own = [sign for sign in pattern.pattern if not sign.isalnum() and sign not in "\\()[]|?*+^$"]
    return list(dict.fromkeys((" ", "\n", "a", "0", *own)))[:8]


def grows(pattern: re.Pattern[str]) -> str | None:
    """A text for which the steps grow with more than its length; None if none was found."""
    alone = signs(pattern)
    for unit in (*alone, *map("".join, permutations(alone, 2))):
        for before, behind in FRAMES:
            taken = [
                steps(pattern, before + (unit * size)[:size] + behind, MOST)
                for size in (SIZE, 2 * SIZE)
            ]
            if taken[1] < MOST and taken[1] <= 2.5 * taken[0]:
                continue
            most = steps(pattern, before + (unit * 4 * SIZE)[: 4 * SIZE] + behind, MOST)
            if most == MOST or most > 2.5 * taken[1]:
                return repr(before + unit * 3 + "…" + behind)
    return None


def test_every_pattern_takes_linear_steps() -> None:
    def all_that_grow() -> dict[str, str]:
        return {name: text for name, p in patterns().values() if (text := grows(p))}

    assert len(patterns()) > 50
    assert with_deep_stack(all_that_grow) == {}


@pytest.mark.parametrize(
    "pattern",
    [
        re.compile(r"^#\s+(.+?)\s*#*$", re.MULTILINE),
        re.compile(r"(?:\s+#+|\s*\{[^{}]*\})+\Z"),
        re.compile(r" *\n[\s\n]*\n *"),
        re.compile(r"(\d+(?:\.\d+)?)(ms|s)"),
        re.compile(r"(a+)+!"),
    ],
    ids=lambda pattern: pattern.pattern,
)
def test_a_bad_pattern_is_noticed(pattern: re.Pattern[str]) -> None:
    assert with_deep_stack(lambda: grows(pattern))


TEXTS = [
    "a b  c\n\n- d", "## x ##\n\n", 'wait=30, wait = "7"', "```py\nx\n```\n", ". a! b? c\u3002d",
    "ev_0123456789ab_" + "x" * 43, "lock is held in foo bar (PID 77)", "12.5 min 1m30s", '"a b" c',
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_the_matcher_finds_what_re_finds(text: str) -> None:
    for name, pattern in patterns().values():
        found = Matcher(pattern, text).find_all()
        assert found == len(list(pattern.finditer(text))), name
