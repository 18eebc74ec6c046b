"""Metadata as flat facts, for engines that can compare texts in lists but not look into JSON.

A fact says less than the metadata does: long texts are cut, and large whole numbers lose
their last digits. So what an engine finds by facts may be too much, never too little, and
is looked at once more with `filters.matches`.
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
    """What can be asked of one record's metadata."""

    terms: list[str]
    """one for each value of a field, and one that says that there is any"""
    fields: list[str]
    """fields that have an order, each with the type of what is ordered"""
    least: list[str]
    most: list[str]
    """of the fields in the same place"""


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
    """The fact that a field is there and not null."""
    return _remembered(name) if len(name) <= LONGEST else json.dumps(name, ensure_ascii=False)


@lru_cache(4096)
def _remembered(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def term(name: str, value: Scalar) -> str:
    """The fact that a field has a value, itself or in its list."""
    if isinstance(value, bool):
        said = f"b{int(value)}"
    elif isinstance(value, str):
        said = f"s{value[:LONGEST]}"
    else:
        said = f"n{rank(value)}"
    return f"{present(name)}={said}"


def ordered(name: str, value: Scalar) -> str:
    """The field under which values of this type are in order."""
    return f"{'n' if is_number(value) else 's'}{name}"


def rank(value: Any) -> str:
    """A text that has the place among texts that the value has among its like."""
    if isinstance(value, str):
        return value[:LONGEST]
    try:
        number = float(value) + 0.0  # there are two zeros
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    (bits,) = struct.unpack(">Q", struct.pack(">d", number))
    return f"{bits ^ (0xFFFFFFFFFFFFFFFF if bits >> 63 else 1 << 63):016x}"


def is_exact(value: Scalar) -> bool:
    """Whether no other value has the same term."""
    if isinstance(value, str):
        return len(value) < LONGEST
    return value is None or -_EXACT < value < _EXACT
