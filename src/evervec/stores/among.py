"""Finds a few numbers in a long array that is in no order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_SLOTS = 1 << 16
"""A table by the last bits leaves one in so many for each number to compare. `np.isin` takes ten times as
long; a table of all numbers would be as large as the largest of them."""


def places_among(numbers: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places of the wanted numbers, which are in order."""
    if not len(wanted):
        return np.empty(0, np.int64)
    table = np.zeros(_SLOTS, np.bool_)
    table[wanted & (_SLOTS - 1)] = True
    places: NDArray[np.int64] = np.flatnonzero(table.take(numbers & (_SLOTS - 1)))
    found = numbers.take(places)
    at: NDArray[Any] = wanted.take(np.searchsorted(wanted, found), mode="clip")
    chosen: NDArray[np.int64] = places[at == found]
    return chosen
