"""Child processes that are stopped at named points; `process_worker` is their program."""

import json
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from support.forks import Fork
from support.process_worker import Orders

_PATIENCE = 60.0
_T = TypeVar("_T")


_SLOW = {"duckdb": "evervec.stores.duckdb", "lancedb": "lance_namespace",
         "qdrant": "evervec.indexes.qdrant.client"}  # fmt: skip
"""what takes long to import of the engines that few children use"""


_PROGRAM = "support.process_worker"


def _slow(orders: Orders) -> str:
    index, store = (orders.index or "").partition(":")[0], orders.store.partition(":")[0]
    return _SLOW.get(index) or _SLOW.get(store, "")


class Child:
    """A process that says where it stands. All waits end with a clear failure."""

    def __init__(self, orders: Orders, log: Path, program: str = _PROGRAM, knows: str = "") -> None:
        """`knows`: a module that its program finds imported already."""
        self._log = log
        self._closed = False
        heard, self._told = os.pipe()
        listened, said = os.pipe()
        with log.open("wb") as errors:
            files = (heard, said, errors.fileno())
            known = ",".join(filter(None, (_slow(orders), knows)))
            self._process = Fork(program, [orders.dump()], files, knows=known)
        os.close(heard)
        os.close(said)
        self._listened = os.fdopen(listened, "rb")
        self._points: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self.seen: list[dict[str, Any]] = []
        """every point that was waited for or passed on the way"""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._listened:
            self._points.put(json.loads(line))
        self._points.put(None)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log.read_text()

    def at(self, point: str, about: str = "", seconds: float = _PATIENCE) -> dict[str, Any]:
        """Wait until it reaches a point, and return what it said there."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                said = self._points.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(
                    f"the child did not reach {point!r}; it passed {self._passed()}\n{self.log}"
                ) from None
            if said is None:
                self._points.put(None)
                raise AssertionError(
                    f"the child ended before {point!r}; it passed {self._passed()}\n{self.log}"
                )
            self.seen.append(said)
            if said["at"] == point and about in said["about"]:
                return said

    def reaches(self, point: str, seconds: float) -> bool:
        """Whether it comes to a point within this time."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                said = self._points.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return False
            if said is None:
                self._points.put(None)
                return False
            self.seen.append(said)
            if said["at"] == point:
                return True

    def hear_out(self) -> None:
        """Take note of all that it has said up to now."""
        while self.reaches("", seconds=0):
            pass

    def _passed(self) -> list[str]:
        return [said["at"] for said in self.seen]

    def go(self, point: str, times: int = 1) -> None:
        """Let it go on from a point where it pauses."""
        os.write(self._told, f"go {point}\n".encode() * times)

    def freeze(self) -> None:
        """Stop it where it is, as a debugger or a suspended machine would."""
        self._process.freeze()

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def end(self, point: str) -> None:
        """Ask it to end, and let it go on where it pauses on its way; it may have ended before."""
        self.terminate()
        with suppress(BrokenPipeError):
            self.go(point, times=10)

    def kill(self) -> None:
        """End it at once, and wait until it is gone."""
        self._process.kill()
        self._process.wait(_PATIENCE)

    def exit_code(self) -> int:
        """Wait until it ends by itself."""
        try:
            return self._process.wait(_PATIENCE)
        except TimeoutError:
            raise AssertionError(f"the child did not end\n{self.log}") from None

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def rest(self) -> list[dict[str, Any]]:
        """Wait until it ends, and return all that it ever said."""
        self.exit_code()
        while (said := self._points.get(timeout=_PATIENCE)) is not None:
            self.seen.append(said)
        self._points.put(None)
        return self.seen

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self.running:
            self.kill()
        self._reader.join(_PATIENCE)
        self._listened.close()
        os.close(self._told)


Start = Callable[..., Child]


@contextmanager
def children(folder: Path) -> Iterator[Start]:
    """Starts children that do not outlive the block."""
    started: list[Child] = []

    def start(
        do: str, store: object, *, program: str = _PROGRAM, knows: str = "", **orders: Any
    ) -> Child:
        log = folder / f"child-{len(started)}.log"
        child = Child(Orders(do, str(store), **orders), log, program, knows)
        started.append(child)
        return child

    try:
        yield start
    finally:
        for child in started:
            child.close()


def until(condition: Callable[[], _T], what: str = "", seconds: float = _PATIENCE) -> _T:
    """Look again and again until the condition holds, and return what it gave; fail when it does
    not hold in time."""
    pause = threading.Event()
    for _ in range(int(seconds * 100)):
        if found := condition():
            return found
        pause.wait(0.01)
    raise AssertionError(f"{what or condition} did not come true within {seconds:g} s")
