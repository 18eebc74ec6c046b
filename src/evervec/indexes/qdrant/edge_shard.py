"""One collection of the embedded engine: a folder with the engine's shard.

The engine optimises a shard (builds its HNSW index, merges segments, reclaims deleted points) in
one call that holds Python's interpreter lock, so that the whole process stands still: 47 s for
20,000 points of 384 dimensions were measured. So another process optimises a copy of the folder,
see `optimizer`. Changes made meanwhile are kept in a journal and applied to the copy too, which
then takes the folder's place.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import qdrant_edge as edge

T = TypeVar("T")

_LEAST = 5_000
"""changed points below which optimising does not pay: the engine indexes no segment so small"""
_DUE_SHARE, _BUSY_SHARE, _JOURNAL_SHARE = 4, 10, 20
"""of a shard's points: it is due when a quarter has changed, but not while a tenth changes from one
look to the next; the journal holds a twentieth"""
_LONGEST_JOURNAL = 20_000
"""points that the journal may always hold, about 80 MB of them"""
_PART = 1 << 20
_COPY, _OLD = "%copy-", "%old"
"""endings of folders beside a collection's own: no quoted name of another collection has them,
since only two hexadecimal digits follow a `%` there"""


class ShardClosed(RuntimeError):
    """The collection was dropped, or its engine closed."""


class Shard:
    """A shard for any number of threads, one call at a time: so does the interpreter lock."""

    def __init__(self, folder: Path, config: Any = None) -> None:
        """`config`: of a shard to create in an empty folder."""
        self.folder = folder
        self._lock = threading.Lock()
        self._closed = False
        self._copies = 0
        self._journal: list[Any] | None = None
        self._room = 0
        """points that the journal may still take; below 0: it was given up"""
        self._given_up = 0
        """copies given up in a row"""
        if config is not None:
            self._engine = edge.EdgeShard.create(str(folder), config)
        else:
            _recover(folder)
            self._engine = edge.EdgeShard.load(str(folder))
        info = self._engine.info()
        self._changed = info.points_count - info.indexed_vectors_count
        self._changed_before = self._changed

    def ask(self, call: Callable[[Any], T]) -> T:
        with self._lock:
            return call(self._open_engine())

    def update(self, operation: Any, points: int) -> None:
        """The caller has the writer lock; `points`: how many it writes."""
        with self._lock:
            self._open_engine().update(operation)
            self._changed += points
            if self._journal is not None:
                self._room -= points
                self._journal.append(operation)
                if self._room < 0:
                    self._journal.clear()

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                self._engine.close()

    def _open_engine(self) -> Any:
        if self._closed:
            raise ShardClosed(f"{self.folder.name} was closed")
        return self._engine

    # optimising
    def check_writes(self) -> bool:
        """Return whether it is worth optimising now, by what was written since the last check.
        Called at each maintenance. A shard that is being filled waits: searches are exact without
        an HNSW index. After each copy that was discarded, half as many writes count as filling."""
        points = self.ask(lambda engine: engine.info().points_count)
        written = self._changed - self._changed_before
        self._changed_before = self._changed
        return (
            self._changed >= max(_LEAST, points // _DUE_SHARE)
            and written <= max(_LEAST, points // _BUSY_SHARE) >> self._given_up
            and self._journal is None
        )

    def copy(self) -> Path:
        """Copy the folder, and begin the journal. The caller has the writer lock."""
        with self._lock:
            engine = self._open_engine()
            engine.flush()
            self._copies += 1
            copy = _beside(self.folder, f"{_COPY}{os.getpid()}-{self._copies}")
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(self.folder, copy, copy_function=_copy_file)
            points = engine.info().points_count
            self._journal, self._room = [], max(_LONGEST_JOURNAL, points // _JOURNAL_SHARE)
            return copy

    def outran(self) -> bool:
        """Whether more was written than the journal holds, so that the copy is of no use."""
        return self._room < 0

    def replace(self, copy: Path) -> bool:
        """Put the optimised copy in the folder's place, with what was changed meanwhile. False:
        too much was. The caller has the writer lock."""
        with self._lock:
            engine = self._open_engine()
            if self._journal is None or self._room < 0:
                self._given_up += 1
                return False
            other = edge.EdgeShard.load(str(copy))
            for operation in self._journal:
                other.update(operation)
            other.flush()
            other.close()
            engine.close()
            try:
                # if the process dies in between, `_recover` goes back: both hold every change
                old = _beside(self.folder, _OLD)
                self.folder.rename(old)
                copy.rename(self.folder)
            finally:
                _recover(self.folder)
                self._engine = edge.EdgeShard.load(str(self.folder))
            self._changed = self._changed_before = self._given_up = 0
            return True

    def end_copy(self, copy: Path) -> None:
        """Forget the journal, and remove what is left of a copy."""
        with self._lock:
            self._journal = None
        shutil.rmtree(copy, ignore_errors=True)


def _recover(folder: Path) -> None:
    """Bring a folder back whose replacement was interrupted, and remove what else is left of it."""
    old = _beside(folder, _OLD)
    if old.exists() and not folder.exists():
        old.rename(folder)
    endings = (folder.name + _COPY, folder.name + _OLD)
    for left in folder.parent.iterdir():
        if left.name.startswith(endings):
            shutil.rmtree(left, ignore_errors=True)


def was_replaced(folder: Path) -> bool:
    """Whether a folder is missing because its replacement was interrupted."""
    return not folder.exists() and _beside(folder, _OLD).exists()


def _beside(folder: Path, ending: str) -> Path:
    return folder.with_name(folder.name + ending)


def _copy_file(source: str, target: str) -> None:
    """Copy a file with its holes: most of the engine's files are larger than what is in them."""
    with Path(source).open("rb") as read, Path(target).open("wb") as write:
        size = os.fstat(read.fileno()).st_size
        write.truncate(size)
        for begin, end in _data(read.fileno(), size):
            read.seek(begin)
            write.seek(begin)
            write.writelines(
                read.read(min(_PART, end - place)) for place in range(begin, end, _PART)
            )


def _data(file: int, size: int) -> list[tuple[int, int]]:
    """The parts of a file that are not holes."""
    if not hasattr(os, "SEEK_DATA"):
        return [(0, size)]
    parts, place = [], 0
    while place < size:
        try:
            begin = os.lseek(file, place, os.SEEK_DATA)
        except OSError:  # only a hole is left
            break
        place = os.lseek(file, begin, os.SEEK_HOLE)
        parts.append((begin, place))
    return parts
