"""A search as the fields of a form, which are also its address."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import QueryParams

from evervec.search.request import MODES
from evervec.server.dashboard.filter_form import FilterForm
from evervec.server.dashboard.words import spoken_list
from evervec.server.problems import Problem

MOST_HITS = 50
_DEFAULT_HITS = 10
_MOST_DIGITS = 9


@dataclass(frozen=True, slots=True)
class SearchForm:
    """A search as it was typed."""

    query: str
    kinds: tuple[str, ...]
    mode: str
    k: str
    min_similarity: str
    min_relevance: str
    version: str
    """the embedding version to search; empty: the serving ones"""
    other: str
    """the version whose hits are shown beside"""
    filter: FilterForm

    @classmethod
    def read(cls, params: QueryParams) -> SearchForm:
        """The search in an address."""
        return cls(
            params.get("q", "").strip(),
            tuple(dict.fromkeys(kind for kind in params.getlist("kind") if kind)),
            params.get("mode") or MODES[0],
            params.get("k", "").strip(),
            params.get("min_similarity", "").strip(),
            params.get("min_relevance", "").strip(),
            params.get("version", ""),
            params.get("other", ""),
            FilterForm.read(params),
        )

    @property
    def is_detailed(self) -> bool:
        """Whether more than the query was filled in."""
        return bool(
            self.filter.rows or self.filter.json or self.min_similarity or self.min_relevance
        )

    def arguments(self) -> dict[str, Any]:
        """The arguments of `search` that differ from its defaults; raises a `Problem` that names a
        field with another value than it can have."""
        found: dict[str, Any] = {"query": self.query, "k": self._hits()}
        if self.kinds:
            found["kind"] = list(self.kinds)
        if self.mode not in MODES:
            raise Problem(422, f"mode: must be {spoken_list(MODES, 'or')}")
        if self.mode != MODES[0]:
            found["mode"] = self.mode
        if filter := self.filter.filter():
            found["filter"] = filter
        for name in ("min_similarity", "min_relevance"):
            if text := getattr(self, name):
                found[name] = _number(name, text)
        if self.version:
            found["version"] = self.version
        return found

    def _hits(self) -> int:
        if not self.k:
            return _DEFAULT_HITS
        # `int` itself raises an error for thousands of digits
        found = int(self.k) if self.k.isdecimal() and len(self.k) <= _MOST_DIGITS else 0
        if not 1 <= found <= MOST_HITS:
            raise Problem(422, f"hits: must be a number from 1 to {MOST_HITS}")
        return found


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Problem(422, f"{name}: must be a number, not {text[:40]!r}")
    return value
