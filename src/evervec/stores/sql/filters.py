"""Metadata filters as SQL with numbered parameters. Field names are parameters, never SQL."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from evervec.model.filters import Condition, Conditions, Group, Scalar, Wanted, matches

COMPARE = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


class Filter(ABC):
    """A clause that begins with `and`, over the records `r`, and its parameters, which come after
    `taken` others. An engine defines how it reads JSON."""

    def __init__(self, conditions: Conditions, taken: int) -> None:
        self.values: list[Any] = []
        self._taken = taken
        clauses = [self._clause(c) for c in conditions]
        self.clause = f" and {self.of_record(' and '.join(clauses))}" if clauses else ""

    def place(self, value: Any) -> str:
        """Add a value; returns its parameter."""
        self.values.append(value)
        return f"${self._taken + len(self.values)}"

    @abstractmethod
    def of_record(self, test: str) -> str:
        """The test of a record by all conditions together, so that its metadata is read once."""

    @abstractmethod
    def items(self, field: str, test: str) -> str:
        """Whether the field's value, or any item of it if it is a list, passes a test of `item`.
        The test may contain `or`."""

    @abstractmethod
    def is_something(self) -> str:
        """A test that fails only for null."""

    @abstractmethod
    def is_boolean(self, value: bool) -> str: ...

    @abstractmethod
    def is_one_of_texts(self, values: list[str]) -> str: ...

    @abstractmethod
    def is_one_of_numbers(self, values: list[int | float]) -> str: ...

    @abstractmethod
    def compares_text(self, op: str, value: str) -> str: ...

    @abstractmethod
    def compares_number(self, op: str, value: int | float) -> str: ...

    @abstractmethod
    def contains(self, value: str) -> str:
        """Whether it is a text with this part."""

    def _clause(self, c: Condition | Group) -> str:
        """A test that is never null, so that it can be negated."""
        if isinstance(c, Group):
            parts = (" or " if c.op == "or" else " and ").join(map(self._clause, c.parts)) or "true"
            return f"not ({parts})" if c.op == "not" else f"({parts})"
        if "\0" in c.field:  # no record has it, and not every engine accepts it in a query
            return "true" if matches({}, [c]) else "false"
        if c.op in ("eq", "ne", "in"):
            equal = self._equal(c.field, c.values)
            return f"not {equal}" if c.op == "ne" else equal
        if c.op == "contains":
            return self.items(c.field, self.contains(c.value)) if "\0" not in c.value else "false"
        return self.items(c.field, self._compared(COMPARE[c.op], c.value))

    def _equal(self, field: str, values: Sequence[Scalar]) -> str:
        """Read the field once, however many values there are."""
        wanted = Wanted.of(values)
        tests = [self.is_boolean(value) for value in set(wanted.booleans)]
        if wanted.texts:
            tests.append(self.is_one_of_texts(wanted.texts))
        if wanted.numbers:
            tests.append(self.is_one_of_numbers(wanted.numbers))
        parts = [self.items(field, " or ".join(tests))] if tests else []
        if wanted.absent:
            parts.append(f"not {self.items(field, self.is_something())}")
        return f"({' or '.join(parts)})" if parts else "false"

    def _compared(self, op: str, value: Any) -> str:
        if isinstance(value, str):
            return self.compares_text(op, value)
        return "false" if math.isnan(value) else self.compares_number(op, value)
