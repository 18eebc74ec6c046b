"""Optimises shards of the embedded engine in a process of its own, see `edge_shard`.

`python -m evervec.indexes.qdrant.optimizer FOLDER PARENT` is that process.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import qdrant_edge as edge

from evervec.indexes.qdrant.edge_shard import Shard, ShardClosed
from evervec.runtime.threads import start

log = logging.getLogger("evervec")

_LOWEST_PRIORITY = 19
_PR_SET_PDEATHSIG = 1
_LOOK = 1.0
"""seconds between two checks of whether the copy can still be used"""


class Optimizer:
    """Optimises the shards of one folder, one at a time."""

    def __init__(self, writing: Callable[[], AbstractContextManager[None]]) -> None:
        self._writing = writing
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, shard: Shard) -> None:
        """Optimise a shard beside the work, unless another one is being optimised."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = start("evervec-optimize", self._quietly, shard)

    def wait(self) -> None:
        """Until nothing is being optimised."""
        if self._thread is not None:
            self._thread.join()

    def stop(self) -> None:
        """End what is being optimised: it begins again another time."""
        if self._process is not None:
            self._process.kill()

    def _quietly(self, shard: Shard) -> None:
        try:
            if self.optimize(shard):
                log.info("optimized %s", shard.folder.name)
            else:
                log.info("optimizing %s is postponed: too much was written", shard.folder.name)
        except ShardClosed:
            pass
        except Exception as error:  # noqa: BLE001 - the engine has no error classes of its own
            said = str(error).partition("\n")[0][:300]
            log.warning("optimizing %s is postponed: %s", shard.folder.name, said)

    def optimize(self, shard: Shard) -> bool:
        """Replace a shard by an optimised copy; False: too much was written meanwhile."""
        with self._writing():
            copy = shard.copy()
        try:
            self._run(copy, shard.outran)
            with self._writing():
                return shard.replace(copy)
        finally:
            shard.end_copy(copy)

    def _run(self, folder: Path, is_useless: Callable[[], bool]) -> None:
        command = [sys.executable, "-m", __name__, str(folder), str(os.getpid())]
        found = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            command, env=found, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        with self._process as process:
            said = _output(process, is_useless)
        self._process = None
        if process.returncode and not is_useless():
            lines = said.decode(errors="replace").strip().splitlines() or [""]
            raise RuntimeError(f"its process ended with {process.returncode}: {lines[-1]}")


def _output(process: subprocess.Popen[bytes], is_useless: Callable[[], bool]) -> bytes:
    """What a process writes until it ends; it is killed when it has become useless."""
    while True:
        try:
            return process.communicate(timeout=_LOOK)[1]
        except subprocess.TimeoutExpired:
            if is_useless():
                process.kill()


def end_with(parent: int) -> None:
    """End this process when its parent does: nobody could use what it makes. Only Linux can; no
    thread could watch, because the engine holds the interpreter lock."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.name == "posix" and os.getppid() != parent:
        sys.exit("the parent process has ended")


def optimize_folder(folder: str, parent: str) -> None:
    end_with(int(parent))
    with suppress(OSError, AttributeError):  # not on every system
        os.nice(_LOWEST_PRIORITY)
    shard = edge.EdgeShard.load(folder)
    shard.optimize()
    shard.close()


if __name__ == "__main__":
    optimize_folder(*sys.argv[1:])
