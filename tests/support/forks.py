"""Python programs that start at once: forks of a process that has imported evervec already.

To start Python and import evervec takes a third of a second of a processor, and the tests start
hundreds of processes. A fork is a process like any other, with memory, signals and connections
of its own. The one that is forked has no threads and has opened nothing.

For each program it forks a keeper, which forks the program itself and tells the test of its
number, and whenever it was stopped or ended.
"""

import atexit
import gc
import json
import os
import runpy
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path

_TESTS = Path(__file__).parents[1]
_NUMBER = struct.Struct("i")
_PATIENCE = 60.0
_KNOWN = (
    "evervec.cli.app", "evervec.cli.doctor", "evervec.cli.index", "evervec.cli.jobs",
    "evervec.cli.migrate", "evervec.cli.operation", "evervec.cli.records", "evervec.cli.tables",
    "evervec.embedders.hashing", "evervec.embedders.openai", "evervec.facade",
    "evervec.indexes.pgvector", "evervec.indexes.sqlite", "evervec.versions.migration", "evervec.search.search",
    "evervec.tables.sqlite", "evervec.stores.postgres", "evervec.stores.sqlite",
    "evervec.verify.verify", "evervec.worker.worker", "httpx", "support.leaps",
)  # fmt: skip


class Fork:
    """A running `python -W error -m module`, with files for its standard input and outputs."""

    def __init__(
        self,
        module: str,
        args: Sequence[str],
        files: tuple[int, int, int],
        *,
        folder: Path | None = None,
        environ: Mapping[str, str] | None = None,
        knows: str = "",
    ) -> None:
        """`knows`: more modules, parted by commas, that it finds imported already."""
        self._talk, theirs = socket.socketpair()
        program = [module, list(args), str(folder or Path.cwd()), dict(environ or os.environ)]
        with theirs:
            self._talk.sendall(json.dumps(program).encode())
            self._talk.shutdown(socket.SHUT_WR)
            socket.send_fds(_mother(knows), [b"+"], [*files, theirs.fileno()])
        self._code: int | None = None
        self.pid = self._hear(_PATIENCE)

    def _hear(self, seconds: float) -> int:
        self._talk.settimeout(max(0.0, seconds))
        said = self._talk.recv(_NUMBER.size)
        assert said, "the keeper of a process ended before it"
        number: int = _NUMBER.unpack(said)[0]
        return number

    def poll(self) -> int | None:
        """Its exit code, once it has ended."""
        with suppress(BlockingIOError):
            self._until_told(0.0)
        return self._code

    def wait(self, seconds: float = _PATIENCE) -> int:
        """Its exit code, when it has ended; `TimeoutError` if it has not by then."""
        end = time.monotonic() + seconds
        while self._code is None:
            self._until_told(end - time.monotonic())
        return self._code

    def _until_told(self, seconds: float) -> None:
        """Wait until it is stopped or ends."""
        if self._code is None:
            status = self._hear(seconds)
            if not os.WIFSTOPPED(status):
                self._code = os.waitstatus_to_exitcode(status)
                self._talk.close()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it ended just now, and its keeper will tell
                os.kill(self.pid, number)

    def freeze(self) -> None:
        """Stop it where it is, as a debugger or a suspended machine would."""
        self.send_signal(signal.SIGSTOP)
        self._until_told(_PATIENCE)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@cache
def _mother(knows: str) -> socket.socket:
    """The way to this process's own mother of forks, which ends with it."""
    ours, theirs = socket.socketpair()
    given = os.environ.get("PYTHONPATH", "")  # first: a planted defect is in a copy of the library
    path = os.pathsep.join(filter(None, [given, str(_TESTS.parent / "src"), str(_TESTS)]))
    # a process with threads must not be forked, and numpy would start some
    environ = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "support.forks", knows],
            stdin=theirs.fileno(),
            env=environ,
            start_new_session=True,
        )

    @atexit.register
    def end() -> None:
        ours.close()
        process.wait(_PATIENCE)

    return ours


_ended: list[int] = []
"""the exit code of this process's program, once that has ended by itself"""


def _leave() -> None:
    """End at once, after all that a program does at its end: only to take its modules apart is left
    out, which takes 30 ms of a processor, twice as long as many a program."""
    if _ended:
        gc.collect()  # what complains that it was never closed
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_ended[0])


def main() -> None:
    atexit.register(_leave)  # the first one is called last
    # Qdrant's client imports it where it is installed, and so onnxruntime, which starts threads
    sys.modules["fastembed"] = None  # type: ignore[assignment]
    for name in filter(None, (*_KNOWN, *sys.argv.pop().split(","))):
        import_module(name)
    del sys.modules["fastembed"]
    gc.freeze()  # else each fork takes all of this apart when it ends: 0.2 s of a processor
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how keepers end
    with socket.socket(fileno=os.dup(0)) as asked:
        while files := socket.recv_fds(asked, 1, 4)[1]:
            if os.fork() == 0:
                asked.close()
                _keep(files)
                return
            for file in files:
                os.close(file)


def _keep(files: list[int]) -> None:
    """Fork the program, and be its keeper."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    talk = socket.socket(fileno=files.pop())
    with talk.makefile("rb") as order:
        module, args, folder, environ = json.load(order)
    pid = os.fork()
    if pid == 0:
        talk.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        _run(module, args, folder, environ)
        return
    for file in (0, 1, *files):
        os.close(file)
    with suppress(BrokenPipeError):  # when the test is over
        talk.sendall(_NUMBER.pack(pid))
        stopped = True
        while stopped:
            _, status = os.waitpid(pid, os.WUNTRACED)
            talk.sendall(_NUMBER.pack(status))
            stopped = os.WIFSTOPPED(status)
    os._exit(0)


def _run(module: str, args: list[str], folder: str, environ: dict[str, str]) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv[1:] = args
    sys.path[0] = folder
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        _ended.append(0)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            _ended.append((end.code or 0) & 0xFF)
        raise


if __name__ == "__main__":
    main()
