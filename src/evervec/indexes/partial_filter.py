"""Filters for engines that can test only a part of them.

What such an engine finds may be too much, never too little, and is checked again with
`filters.matches`. So a test that it cannot express is left out of an `and`, and an `or` that has
such a test is left out as a whole. A negation is moved inwards to the single conditions, because
the opposite of a test that finds too much finds too little.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from evervec.model.filters import Condition, Conditions, Group

T = TypeVar("T")
Express = Callable[[Condition], T | None]
"""a test that all records pass that fit the condition; None if there is none"""


def narrowed(
    conditions: Conditions,
    fits: Express[T],
    is_not: Express[T],
    either: Callable[[Sequence[Sequence[T]]], T],
) -> list[T]:
    """Tests that are ANDed. `is_not` expresses the opposite of a condition; `either` joins groups
    of ANDed tests by `or`."""

    def all_of(parts: Conditions, negated: bool) -> list[T]:
        return [test for part in parts for test in tests_of(part, negated)]

    def any_of(parts: Conditions, negated: bool) -> list[T]:
        groups = [tests_of(part, negated) for part in parts]
        return [either(groups)] if all(groups) else []

    def tests_of(part: Condition | Group, negated: bool) -> list[T]:
        if isinstance(part, Condition):
            test = (is_not if negated else fits)(part)
            return [] if test is None else [test]
        inverted = negated is not (part.op == "not")
        join = all_of if (part.op == "or") is inverted else any_of
        return join(part.parts, inverted)

    return all_of(conditions, False)
