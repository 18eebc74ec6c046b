"""Integrations use what the facade offers, as anybody's program could: never a second path."""

import ast
from collections.abc import Iterator
from pathlib import Path

from evervec import integrations

FOLDER = Path(integrations.__path__[0])
INSIDE = {"pgai/takeover.py"}
"""takes the vectors of another tool over, which no public method does"""


def _stores(code: ast.AST) -> Iterator[ast.Attribute]:
    """Where the parts of an open store are used: `….store.PART.METHOD(…)`, or one that is private."""
    for node in ast.walk(code):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
            yield from [node] if node.value.attr == "store" and _is_evervec(node.value) else []


def _is_evervec(found: ast.Attribute) -> bool:
    owner = found.value
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    return name.lstrip("_") in ("ev", "sync", "inner")


def test_no_integration_reaches_into_the_store() -> None:
    wrong = []
    for path in sorted(FOLDER.rglob("*.py")):
        name = path.relative_to(FOLDER).as_posix()
        wrong += [
            f"{name}:{found.lineno}: store.{found.attr}"
            for found in _stores(ast.parse(path.read_text()))
            if found.attr != "url" and name not in INSIDE
        ]
    assert not wrong


def test_the_check_finds_what_it_looks_for() -> None:
    code = "ev.store.changes.save(1); self._ev.store.streams; self.store.search(); ev.store.url"
    assert {found.attr for found in _stores(ast.parse(code))} == {"changes", "streams", "url"}
