"""Metadata filters as SQL with numbered parameters. Field names are parameters, never SQL."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

from evervec.filters import Condition, Scalar

COMPARE = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


class Filter(ABC):
    """A clause that begins with `and`, over the records `r`, and its parameters, which stand
    behind `taken` others. An engine says how it looks into JSON."""

    def __init__(self, conditions: tuple[Condition, ...], taken: int) -> None:
        self.values: list[Any] = []
        self._taken = taken
        self.clause = "".join(f" and {self._clause(c)}" for c in conditions)

    def place(self, value: Any) -> str:
        """The parameter that stands for a value."""
        self.values.append(value)
        return f"${self._taken + len(self.values)}"

    @abstractmethod
    def items(self, field: str, test: str) -> str:
        """Whether the field's own value, or an item of it where it is a list, passes a test of
        `item`."""

    @abstractmethod
    def is_something(self) -> str:
        """A test that only null fails."""

    @abstractmethod
    def is_boolean(self, value: bool) -> str: ...

    @abstractmethod
    def is_text(self, op: str, value: str) -> str: ...

    @abstractmethod
    def is_number(self, op: str, value: int | float) -> str: ...

    def _clause(self, c: Condition) -> str:
        if c.op == "eq":
            return self._equal(c.field, c.value)
        if c.op == "ne":
            return f"not {self._equal(c.field, c.value)}"
        if c.op == "in":
            parts = [self._equal(c.field, value) for value in c.value]
            return f"({' or '.join(parts)})" if parts else "false"
        return self.items(c.field, self._compared(COMPARE[c.op], c.value))

    def _equal(self, field: str, value: Scalar) -> str:
        if value is None:
            return f"not {self.items(field, self.is_something())}"
        if isinstance(value, bool):
            return self.items(field, self.is_boolean(value))
        return self.items(field, self._compared("=", value))

    def _compared(self, op: str, value: Any) -> str:
        if isinstance(value, str):
            return self.is_text(op, value)
        if math.isnan(value):
            return "false"
        return self.is_number(op, value)
