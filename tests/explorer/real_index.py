"""The real engines of an index apart from its store: LanceDB and Qdrant inside the process.

Each call is a step that the scheduler allows, and may meet a fault; what an engine asks of the
store inside a call (its writers' lock, the head of a table) are steps of the store. The folder is
put back before each run.
"""

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from greenlet import getcurrent

from evervec.errors import IndexUnavailable
from evervec.indexes.base import Index
from evervec.indexes.qdrant import QdrantIndex
from evervec.model.records import Change
from evervec.opening import open_index
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.stores.values import Applied
from explorer.disk import Ask
from explorer.steps import AWAY, ENGINE, GO, INDEX, LOST, PART, Step

T = TypeVar("T")
REAL = ("lancedb", "qdrant")
_SCHEMES = {"lancedb": "lancedb", "qdrant": "qdrant-edge"}
_READS = ("search", "held", "strays")
_WRITES = ("remove", "drop", "revive", "drop_strays", "maintain")
OPTIONS = {"writer_lock_seconds": 10.0}
"""a writer that stands still loses its turn within the pause that a schedule makes"""


class RealIndex:
    """The folder of one index, which is put back before each run."""

    def __init__(self, name: str) -> None:
        base = Path(tempfile.mkdtemp(prefix=f"explorer-{name}-"))
        weakref.finalize(self, shutil.rmtree, base, ignore_errors=True)
        self._folder, self._kept = base / "index", base / "kept"
        self.url = f"{_SCHEMES[name]}://{self._folder}"
        self._opened: list[Index] = []

    def open(self, store: Store, settings: Settings, ask: Ask) -> Index:
        index = open_index(self.url, store, settings)
        if isinstance(index, QdrantIndex):
            _step_engine(index._engine)
        self._opened.append(index)
        return Stepped(index, ask)  # type: ignore[return-value]

    def _close(self) -> None:
        while self._opened:
            self._opened.pop().close()

    def keep(self) -> None:
        """What is there now is what `reset` goes back to."""
        self._close()
        shutil.rmtree(self._kept, ignore_errors=True)
        if self._folder.exists():
            shutil.copytree(self._folder, self._kept, copy_function=_copy)

    def reset(self) -> None:
        self._close()
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._kept.exists():
            shutil.copytree(self._kept, self._folder, copy_function=_copy)


def _copy(source: str, target: str) -> None:
    """Only what there is of a file: Qdrant's are megabytes of nothing."""
    with open(source, "rb") as given, open(target, "wb") as made:
        size, place = os.fstat(given.fileno()).st_size, 0
        while place < size:
            try:
                start = os.lseek(given.fileno(), place, os.SEEK_DATA)
            except OSError:  # nothing is left
                break
            place = os.lseek(given.fileno(), start, os.SEEK_HOLE)
            os.lseek(made.fileno(), start, os.SEEK_SET)
            os.lseek(given.fileno(), start, os.SEEK_SET)
            os.write(made.fileno(), os.read(given.fileno(), place - start))
        made.truncate(size)


def _step_engine(engine: Any) -> None:
    """Let others come between two calls to the engine that is shared by all: what keeps them out
    must be its own lock."""
    if "scroll" not in vars(engine):
        for name in ("scroll", "update"):
            setattr(engine, name, _handing_over(getattr(engine, name), name))


def _handing_over(call: Callable[..., T], name: str) -> Callable[..., T]:
    def stepped(*args: Any, **named: Any) -> T:
        process = getattr(getcurrent(), "process", None)
        if process is not None:
            process.ask(Step(ENGINE, name, name == "update"))
        return call(*args, **named)

    return stepped


class Stepped:
    """An index whose calls are steps."""

    shares_store = False
    generation = 0

    def __init__(self, index: Index, ask: Ask) -> None:
        self._index = index
        self._ask = ask
        self.url = index.url
        self.table, self.refuses, self.close = index.table, index.refuses, index.close
        for name in _READS:
            setattr(self, name, self._reading(name))
        for name in _WRITES:
            setattr(self, name, self._writing(name))

    def _reading(self, name: str) -> Callable[..., Any]:
        call: Callable[..., Any] = getattr(self._index, name)

        def read(*args: Any, **named: Any) -> Any:
            if self._ask(Step(INDEX, name, False)) != GO:
                raise IndexUnavailable("the index cannot be reached")
            return call(*args, **named)

        return read

    def _writing(self, name: str) -> Callable[..., Any]:
        call: Callable[..., Any] = getattr(self._index, name)

        def write(*args: Any, **named: Any) -> Any:
            action = self._ask(Step(INDEX, name, True))
            if action == AWAY:
                raise IndexUnavailable("the index cannot be reached")
            done = call(*args, **named)
            if action in (LOST, PART):
                raise IndexUnavailable("the index did not answer")
            return done

        return write

    def apply(self, changes: Sequence[Change], conn: Any = None) -> Applied | None:
        if not changes:
            return Applied()
        action = self._ask(Step(INDEX, "apply", True))
        if action == AWAY:
            raise IndexUnavailable("the index cannot be reached")
        some = changes[: len(changes) // 2] if action == PART else changes
        applied = self._index.apply(some, conn)
        if action in (LOST, PART):
            raise IndexUnavailable("the index did not answer")
        return applied
