"""A disk that can be filled up and cleared again.

As root it is a real one, a small file system in memory. Without those rights SQLite itself is
told that the file may not grow.
"""

import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import pytest

PAGE = 4096
_MOST_PAGES = 0xFFFFFFFE


class Disk(Protocol):
    folder: Path
    stops_every_write: bool
    """when full; else only those that make the file larger"""

    def fill(self, leave: int = 0) -> None:
        """Leave only so many bytes free."""

    def clear(self) -> None: ...


class SmallDisk:
    """A mounted file system, filled by a file of ballast."""

    stops_every_write = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self, leave: int = 0) -> None:
        self.clear()
        with self._ballast.open("wb") as ballast:
            for _ in range(100):  # somebody may write in between
                space = os.statvfs(self.folder)
                size = space.f_bavail * space.f_frsize - leave
                with suppress(OSError):
                    if size > 0:
                        os.posix_fallocate(ballast.fileno(), 0, size)
                    return

    def clear(self) -> None:
        self._ballast.unlink(missing_ok=True)


class StintedDisk:
    """Connections that may not make their file any larger."""

    stops_every_write = False

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._connections: list[sqlite3.Connection] = []
        self._leave: int | None = None
        connect = sqlite3.connect

        def stinted(*args: Any, **kwargs: Any) -> sqlite3.Connection:
            conn: sqlite3.Connection = connect(*args, **kwargs)
            if str(args[0]).startswith(str(folder)):
                self._connections.append(conn)
                self._limit(conn)
            return conn

        monkeypatch.setattr(sqlite3, "connect", stinted)

    def fill(self, leave: int = 0) -> None:
        self._leave = leave // PAGE
        for conn in self._connections:
            self._limit(conn)

    def clear(self) -> None:
        self._leave = None
        for conn in self._connections:
            self._limit(conn)

    def _limit(self, conn: sqlite3.Connection) -> None:
        try:
            pages = conn.execute("pragma page_count").fetchone()[0]
        except sqlite3.ProgrammingError:  # closed by now
            return
        most = _MOST_PAGES if self._leave is None else max(1, pages + self._leave)
        conn.execute(f"pragma max_page_count = {most}").fetchall()


@cache
def mounts() -> bool:
    """Whether a real disk can be had."""
    if os.geteuid():
        return False
    with TemporaryDirectory() as folder:
        if not _mount(Path(folder), "1m"):
            return False
        _unmount(Path(folder))
    return True


def _mount(folder: Path, size: str) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def mounted(folder: Path, size: str = "256m") -> Iterator[SmallDisk]:
    """A real disk, where one can be had."""
    folder.mkdir()
    assert _mount(folder, size)
    try:
        yield SmallDisk(folder)
    finally:
        _unmount(folder)


@contextmanager
def small_disk(folder: Path, monkeypatch: pytest.MonkeyPatch, size: str = "12m") -> Iterator[Disk]:
    if mounts():
        with mounted(folder, size) as disk:
            yield disk
        return
    folder.mkdir()
    yield StintedDisk(folder, monkeypatch)
