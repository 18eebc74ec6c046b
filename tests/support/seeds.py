"""Random histories: some in every run, the others in the long one."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

import pytest


def some_of(seeds: Iterable[int], *, first: int) -> list[Any]:
    """As parameters: the first ones for every run, which find each planted defect; the others are
    left to `make long`."""
    given = iter(seeds)
    later = (pytest.param(seed, marks=pytest.mark.long) for seed in given)
    return [*islice(given, first), *later]
