"""A value that is made on first use, by whichever thread needs it first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Once(Generic[T]):
    """Other threads wait for the first; if making it fails, the next call tries again."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: T | None = None
        self._lock = threading.Lock()

    def __call__(self) -> T:
        made = self._made
        if made is None:
            with self._lock:
                made = self._made = self._make() if self._made is None else self._made
        return made
