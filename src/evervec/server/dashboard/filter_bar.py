"""The filter bar: a line of qualifiers such as `status:failed kind:note age:>1h`.

A line is read into one value for each qualifier. What cannot be read is said in sentences that name
what is known, so that the page can show the line again together with what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from evervec.server.dashboard.words import clipped, spoken_list

_TERM = re.compile(r'\s*(?:([^\s:"]*):)?(?:"((?:[^"\\]|\\.)*)"|([^\s"]*"?[^\s]*))')
_ESCAPE = re.compile(r"\\(.)")
_PLAIN = re.compile(r'[^\s":\\]+')
_SHOWN = 40
LONGEST = 500
"""characters of a line"""


@dataclass(frozen=True, slots=True)
class Qualifier:
    """One thing that a filter can say."""

    name: str
    about: str
    """what it selects, for people"""
    example: str
    check: Callable[[str], str | None] = lambda _: None
    """what is wrong with a value, if anything is"""


class Line:
    """A line of a filter bar, read."""

    def __init__(self, text: str, known: Iterable[Qualifier]) -> None:
        self.text = " ".join(text[:LONGEST].split())
        self.values: dict[str, str] = {}
        self.errors: list[str] = []
        self._known = {each.name: each for each in known}
        if len(text) > LONGEST:
            self.errors.append(f"a filter has at most {LONGEST} characters")
            return
        for name, value in _terms(text):
            self._take(name, value)

    def _take(self, name: str | None, value: str) -> None:
        said = clipped(value, _SHOWN)
        known = self._known.get((name or "").lower())
        if name is None:
            self.errors.append(f"{said!r} has no qualifier: write {self._examples(value)}")
        elif known is None:
            names = spoken_list(self._known, "or")
            self.errors.append(f"unknown qualifier {clipped(name, _SHOWN)!r}: use {names}")
        elif not value:
            self.errors.append(f"{known.name}: needs a value, such as {known.example}")
        elif not value.isprintable() and not _is_storable(value):
            self.errors.append(f"{known.name}: has characters that cannot be stored")
        elif known.name in self.values:
            self.errors.append(f"{known.name}: is given twice")
        elif wrong := known.check(value):
            self.errors.append(f"{known.name}: {wrong}")
        else:
            self.values[known.name] = value

    def _examples(self, value: str) -> str:
        return spoken_list([term(n, value) for n in ("id", "error") if n in self._known], "or")

    def with_(self, **changes: str | None) -> str:
        """This filter as a line, with some qualifiers set to other values or, with None, left
        out."""
        return compose({**self.values, **changes})


def _is_storable(value: str) -> bool:
    return "\0" not in value and not any("\ud800" <= each <= "\udfff" for each in value)


def _terms(text: str) -> Iterable[tuple[str | None, str]]:
    at = 0
    while at < len(text):
        found = _TERM.match(text, at)
        if found is None or found.end() == at:
            return
        at = found.end()
        name, quoted, plain = found.groups()
        if name is not None or quoted or plain:
            yield name, _ESCAPE.sub(r"\1", quoted) if quoted is not None else plain


def term(name: str, value: str) -> str:
    """One qualifier with its value, quoted if it has to be."""
    if _PLAIN.fullmatch(value):
        return f"{name}:{value}"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}:"{escaped}"'


def compose(values: Mapping[str, str | None]) -> str:
    """The line that says these values."""
    return " ".join(term(name, value) for name, value in values.items() if value)
