"""The time of day in all processes that share a store, and leaps that a test lets it make."""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from support.places import Place

_CLOCK = """create or replace function evervec.now_seconds() returns double precision
language sql as 'select extract(epoch from clock_timestamp())::double precision + {}'"""


class Leaps:
    """A clock for the test itself; `file` is for the others. A database has its own."""

    def __init__(self, place: Place, folder: Path) -> None:
        self._place = place
        self.file = folder / "leaps"
        self._by = 0.0
        self._write()

    def __call__(self) -> float:
        return time.time() + self._by

    def leap(self, seconds: float) -> None:
        self._by += seconds
        self._write()
        if isinstance(self._place, str):
            from support import postgres  # not for those who only look at the clock

            postgres.execute(self._place, _CLOCK.format(self._by))

    def _write(self) -> None:
        with self.file.open("r+b" if self.file.exists() else "wb") as file:
            file.write(struct.pack("d", self._by))


def leaping(file: str) -> Callable[[], float]:
    """The clock of another process."""
    with Path(file).open("rb") as opened:
        seen = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    return lambda: time.time() + float(struct.unpack_from("d", seen)[0])
