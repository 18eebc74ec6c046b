"""Metadata as flat facts, for engines that can compare texts in lists but cannot query JSON.

A fact has less information than the metadata: long texts are cut, and large integers lose their
last digits. So an engine may find too much by facts, never too little, and its results are checked
again with `filters.matches`.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from evervec.model.filters import Scalar, comparable, is_number

LONGEST = 200
_EXACT = 1 << 53


class Facts(NamedTuple):
    """The searchable facts of one record's metadata."""

    terms: list[str]
    """one for each value of a field, and one that says that the field is present"""
    fields: list[str]
    """fields with ordered values, each with the type of its values"""
    least: list[str]
    most: list[str]
    """highest value of the field at the same position in `fields`; `least` has the lowest"""


def facts_of(metadata: Mapping[str, Any]) -> Facts:
    terms: dict[str, None] = {}
    least: dict[str, str] = {}
    most: dict[str, str] = {}
    for name, value in metadata.items():
        if value is None:
            continue
        terms[present(name)] = None
        for item in comparable(value) if isinstance(value, list | dict) else (value,):
            if item is None:
                continue
            terms[term(name, item)] = None
            if not isinstance(item, bool):
                where, place = ordered(name, item), rank(item)
                if place <= least.setdefault(where, place):
                    least[where] = place
                if place >= most.setdefault(where, place):
                    most[where] = place
    return Facts(list(terms), list(least), list(least.values()), list(most.values()))


def present(name: str) -> str:
    """The fact that a field is present and not null."""
    return _remembered(name) if len(name) <= LONGEST else json.dumps(name, ensure_ascii=False)


@lru_cache(4096)
def _remembered(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def term(name: str, value: Scalar) -> str:
    """The fact that a field has a value, directly or in its list."""
    if isinstance(value, bool):
        said = f"b{int(value)}"
    elif isinstance(value, str):
        said = f"s{value[:LONGEST]}"
    else:
        said = f"n{rank(value)}"
    return f"{present(name)}={said}"


def ordered(name: str, value: Scalar) -> str:
    """The name under which values of this type are ordered."""
    return f"{'n' if is_number(value) else 's'}{name}"


def rank(value: Any) -> str:
    """A text that sorts among texts as the value sorts among values of its type."""
    if isinstance(value, str):
        return value[:LONGEST]
    try:
        number = float(value) + 0.0  # turns -0.0 into 0.0
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    (bits,) = struct.unpack(">Q", struct.pack(">d", number))
    return f"{bits ^ (0xFFFFFFFFFFFFFFFF if bits >> 63 else 1 << 63):016x}"


def is_exact(value: Scalar) -> bool:
    """Whether no other value has the same term."""
    if isinstance(value, str):
        return len(value) < LONGEST
    return value is None or -_EXACT < value < _EXACT
