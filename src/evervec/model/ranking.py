"""How weight and age change the relevance of a kind's records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from evervec.errors import InvalidArgument
from evervec.model.bounds import shown

_DAY = 86400.0


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


@dataclass(frozen=True, slots=True)
class Rescore:
    """`score * (base + gain * weight) / (1 + age_days / days)`; without `days`, age does not
    count."""

    base: float = 0.6
    gain: float = 0.3
    days: float | None = 90.0

    def __post_init__(self) -> None:
        for name in ("base", "gain"):
            if not (_is_number(value := getattr(self, name)) and value >= 0):
                raise InvalidArgument(f"rescore: {name} must be at least 0, not {shown(value)}")
        if self.days is not None and not (_is_number(self.days) and self.days > 0):
            raise InvalidArgument(
                f"rescore: days must be more than 0, or None, not {shown(self.days)}"
            )

    def strength(self, weight: float) -> float:
        """The factor of a record's weight."""
        return self.base + self.gain * weight

    @property
    def decay(self) -> float:
        """The age in seconds that halves the relevance; infinite if age does not count."""
        return math.inf if self.days is None else self.days * _DAY


RESCORES = {"plain": Rescore(2 / 3, 1 / 3, None), "recent": Rescore()}
"""Those with a name. Plain: weight counts by up to a third, age does not; it is used for kinds that
say nothing. Recent: 90 days of age halve the relevance."""
PLAIN = RESCORES["plain"]


def read_rescore(given: Any) -> Rescore:
    """The rescoring that a caller gave, by name or as a `Rescore`."""
    if isinstance(given, Rescore):
        return given
    if isinstance(given, str) and given in RESCORES:
        return RESCORES[given]
    raise InvalidArgument(
        f"rescore must be {' or '.join(map(repr, RESCORES))}, or an evervec.Rescore, "
        f"not {shown(given)}"
    )
