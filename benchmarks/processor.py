"""Processor time of this process and of a PostgreSQL server beside it.

On a machine that others use too, seconds on the clock tell little; processor time does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

_TICKS = os.sysconf("SC_CLK_TCK")


class Spent:
    """Processor seconds of a `with` block; None: the server runs on another machine."""

    seconds: float | None = None

    def per(self, count: int) -> float | None:
        """Microseconds for each of so many."""
        return None if self.seconds is None else self.seconds / count * 1e6


@contextmanager
def processor(url: str) -> Iterator[Spent]:
    """Measure this process, and all processes of the server together."""
    spent, server = Spent(), _postmaster(url)
    own, before = time.process_time(), _all_of(server)
    yield spent
    after = _all_of(server)
    if before is not None and after is not None:
        spent.seconds = time.process_time() - own + after - before


def process_seconds(pid: int) -> float:
    """Processor seconds that a process has spent so far."""
    found = _stat(pid)
    assert found is not None, f"there is no process {pid}"
    return sum(map(int, found[11:13])) / _TICKS


def _postmaster(url: str) -> int:
    """The server's first process: the parent of the one that serves a connection."""
    with psycopg.connect(url) as conn:
        found = _stat(conn.info.backend_pid)
    return 0 if found is None else int(found[1])


def _all_of(server: int) -> float | None:
    """Seconds of the server's processes, those that ended included."""
    first = _stat(server) if server else None
    if first is None:
        return None
    ticks = sum(map(int, first[11:15]))
    for folder in Path("/proc").glob("[0-9]*"):
        found = _stat(int(folder.name))
        if found is not None and int(found[1]) == server:
            ticks += sum(map(int, found[11:13]))
    return ticks / _TICKS


def _stat(pid: int) -> list[str] | None:
    """The fields behind a process's name: state, parent, and so on."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()
