"""A model in a process of its own.

torch gives Python's lock up in each of its many short calls, and has to wait for it afterwards while
another thread computes in Python: beside a worker that chunks and writes, a GPU was idle for most of
the time. So the model, its tokenizer and its threads have a process. Requests and answers go over
its standard input and output: a number, a kind and a length, then texts as JSON or rows as bytes.

Large ones go through files in a private folder, which is in memory where the system has that: a pipe
takes 64 KiB at a time, and the thread that reads has to wait for Python's lock after each. A number is
used again once its answer has arrived, and its files with it: new memory costs more than the copy.

The process ends when its input ends, so it never outlives its parent. If it ends by itself, such as
for lack of memory, calls under way raise `ProviderUnavailable`, and the next call starts another.
"""

from __future__ import annotations

import heapq
import os
import shutil
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict
from itertools import count
from pathlib import Path
from struct import Struct
from tempfile import mkdtemp
from typing import IO, Any, NamedTuple, NoReturn

import numpy as np
import orjson
from numpy.typing import NDArray

from evervec.embedders.base import describe
from evervec.embedders.st.wanted import LoadedModel, Wanted
from evervec.errors import EvervecError, ProviderUnavailable, SettingsError
from evervec.runtime.threads import start

_Rows = NDArray[np.float32]

_HEAD = Struct("<QcQ")
"""the number of a request, the kind of a message, and the bytes behind"""
_SHAPE = Struct("<QQ")
_TEXTS, _QUERY, _ROWS, _ERROR = b"T", b"Q", b"R", b"E"
_LOADED = 0
"""the number of the answer that is sent once the model is loaded: no rows, of its dimensions"""
_PIPE = 65_000
"""bytes of a message that goes through the pipe itself"""
_KEPT = 1 << 25
"""bytes of a message whose file is kept for the next one"""
_IN_MEMORY = Path("/dev/shm")  # nosec B108
"""where a private folder is made, if the system has it"""
_SLICE = 0.0001
_PATIENCE = 5.0
_ERRORS: dict[str, type[Exception]] = {
    error.__name__: error for error in (SettingsError, ProviderUnavailable, MemoryError, TypeError)
}
_START = "import sys; sys.path[:] = {path!r}; from evervec.embedders.st.process import serve; serve({folder!r})"


class _Message(NamedTuple):
    number: int
    kind: bytes
    content: bytes | bytearray


class _Channel:
    """One side's way to the other. Its streams have no buffers: the lock of a buffer that a thread
    reads would stay locked in a fork."""

    def __init__(self, folder: Path, given: IO[bytes], taken: IO[bytes]) -> None:
        self._folder = folder
        self._given, self._taken = given, taken
        self._giving = threading.Lock()

    def write(self, message: _Message) -> None:
        number, kind, content = message
        is_large = len(content) > _PIPE
        if is_large:
            with open(
                self._file(kind, number), "wb", buffering=0, opener=_without_emptying
            ) as file:
                _put(file, content)
        with self._giving:
            head = _HEAD.pack(number, kind, len(content))
            _put(self._given, head if is_large else head + content)

    def read(self) -> _Message | None:
        """None: the other process has ended, or closed its side."""
        head = _take(self._taken, _HEAD.size)
        if head is None:
            return None
        number, kind, length = _HEAD.unpack(head)
        if length > _PIPE:
            path = self._file(kind, number)
            with open(path, "rb", buffering=0) as file:
                content = _take(file, length)
            if length > _KEPT:
                path.unlink()
        else:
            content = _take(self._taken, length)
        return None if content is None else _Message(number, kind, content)

    def close(self) -> None:
        for stream in (self._given, self._taken):
            with suppress(OSError):  # what was still to be written is for nobody
                stream.close()

    def _file(self, kind: bytes, number: int) -> Path:
        return self._folder / f"{kind.decode()}{number}"


def _put(stream: IO[bytes], content: bytes | bytearray) -> None:
    left = memoryview(content)
    while left:
        left = left[stream.write(left) :]


def _take(stream: Any, size: int) -> bytearray | None:
    """So many bytes; None if there are fewer."""
    found = bytearray(size)
    left = memoryview(found)
    while left:
        count = stream.readinto(left)
        if not count:
            return None
        left = left[count:]
    return found


def _without_emptying(path: str, flags: int) -> int:
    """Opens a file to write over what it has, so that its memory is used again."""
    return os.open(path, flags & ~os.O_TRUNC, 0o600)


class ModelProcess:
    """The parent's side; may be called from several threads, and after a fork."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._starting = threading.Lock()
        self._child: _Child | None = None
        self._closed = False
        self.dimensions = self._running().dimensions

    def embed(self, texts: Sequence[str]) -> _Rows:
        """One row for each text."""
        return self._running().ask(_TEXTS, orjson.dumps(list(texts)))

    def embed_query(self, text: str) -> _Rows:
        row: _Rows = self._running().ask(_QUERY, orjson.dumps(text))[0]
        return row

    def close(self) -> None:
        """End the process. Calls under way fail."""
        with self._starting:
            self._closed = True
            child, self._child = self._child, None
        if child is not None:
            child.end()

    def _running(self) -> _Child:
        with self._starting:
            if self._closed:
                raise ProviderUnavailable("the embedder is closed")
            child = self._child
            if child is None or child.has_ended or child.owner != os.getpid():
                self._child = child = _Child(self._wanted)
                weakref.finalize(self, child.end)  # also when this process exits
            return child


class _Child:
    """A process that has loaded the model."""

    def __init__(self, wanted: Wanted) -> None:
        self.owner = os.getpid()
        self.has_ended = False
        self._name = wanted.name
        self._numbers = count(_LOADED + 1)
        self._free: list[int] = []
        """numbers whose answers have arrived; the lowest is used first"""
        self._asked: dict[int, Future[_Rows]] = {}
        self._changing = threading.Lock()
        # not a TemporaryDirectory: a fork that ends would remove it
        self.folder = Path(mkdtemp("", "evervec-", _IN_MEMORY if _IN_MEMORY.is_dir() else None))
        loaded = self._asked[_LOADED] = Future()
        program = _START.format(path=sys.path, folder=str(self.folder))
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
            )
        except OSError as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise ProviderUnavailable(
                f"no process can be started for {self._name}: {describe(error)}"
            ) from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._channel = _Channel(self.folder, self._process.stdin, self._process.stdout)
        start("evervec-model", self._collect)
        try:
            self._send(_Message(_LOADED, _TEXTS, orjson.dumps(asdict(wanted))))
            self.dimensions = loaded.result().shape[1]
        except BaseException:
            self.end()
            raise

    def ask(self, kind: bytes, content: bytes) -> _Rows:
        answer = Future[_Rows]()
        with self._changing:
            if self.has_ended:
                raise self._lost()
            number = heapq.heappop(self._free) if self._free else next(self._numbers)
            self._asked[number] = answer
        self._send(_Message(number, kind, content))
        return answer.result()

    def end(self) -> None:
        if self.owner != os.getpid():
            return  # this is a fork of the process that started it
        self._process.kill()  # it holds nothing that has to be kept
        self._process.wait(_PATIENCE)

    def _send(self, message: _Message) -> None:
        try:
            self._channel.write(message)
        except (BrokenPipeError, ValueError):
            pass  # it has ended: the thread that reads its answers says so
        except OSError as error:
            raise ProviderUnavailable(
                f"{self._name} cannot be given texts: {describe(error)}"
            ) from error

    def _collect(self) -> None:
        """Hand out answers until the process ends."""
        try:
            while (message := self._channel.read()) is not None:
                with self._changing:
                    answer = self._asked.pop(message.number)
                    heapq.heappush(self._free, message.number)
                if message.kind == _ROWS:
                    answer.set_result(_rows_of(message.content))
                else:
                    answer.set_exception(_error_of(message.content))
        finally:
            self._process.wait()
            with self._changing:
                self.has_ended = True
                asked, self._asked = self._asked, {}
            for answer in asked.values():
                answer.set_exception(self._lost())
            self._channel.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _lost(self) -> ProviderUnavailable:
        code = self._process.returncode
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return ProviderUnavailable(
            f"the process that runs {self._name} ended ({how}); the next call starts another"
        )


def _pack_rows(rows: _Rows) -> bytes:
    flat = np.ascontiguousarray(rows, "<f4").reshape(-1)
    return b"".join((_SHAPE.pack(*rows.shape), flat.view(np.uint8).data))


def _rows_of(content: bytes | bytearray) -> _Rows:
    rows: _Rows = np.frombuffer(content, "<f4", offset=_SHAPE.size)
    return rows.reshape(_SHAPE.unpack_from(content))


def _pack_error(error: BaseException) -> bytes:
    known = type(error).__name__ in _ERRORS
    message = str(error) if known or isinstance(error, EvervecError) else describe(error)
    return orjson.dumps([type(error).__name__, message.encode(errors="replace").decode()])


def _error_of(content: bytes | bytearray) -> Exception:
    name, message = orjson.loads(content)
    return _ERRORS.get(name, RuntimeError)(message)


def serve(folder: str) -> None:
    """The child's side: load a model, then answer until the input ends."""
    sys.setswitchinterval(_SLICE)  # threads tokenise, feed devices, and talk to the parent
    for number in (signal.SIGINT, signal.SIGTERM):  # a parent that drains still needs its model
        signal.signal(number, signal.SIG_IGN)
    answers, requests = os.fdopen(os.dup(1), "wb", 0), os.fdopen(0, "rb", 0, closefd=False)
    os.dup2(2, 1)  # what libraries print must not get among the answers
    channel = _Channel(Path(folder), answers, requests)

    def answer(number: int, kind: bytes, content: bytes) -> None:
        try:
            channel.write(_Message(number, kind, content))
        except BrokenPipeError:  # the parent has ended
            _leave(folder)
        except OSError as error:  # such as no space for the file
            channel.write(_Message(number, _ERROR, _pack_error(error)))

    def read() -> _Message | None:
        try:
            return channel.read()
        except OSError:  # the parent has ended, and its folder is gone
            return None

    def embed(model: LoadedModel, message: _Message) -> None:
        try:
            given = orjson.loads(message.content)
            is_query = message.kind == _QUERY
            rows = model.embed_query(given)[None] if is_query else model.embed(given)
            answer(message.number, _ROWS, _pack_rows(rows))
        except BaseException as error:  # noqa: BLE001 - raised by the parent
            answer(message.number, _ERROR, _pack_error(error))

    first = read()
    if first is None:
        _leave(folder)
    ready: Future[LoadedModel] = Future()
    start("evervec-load", _load, Wanted(**orjson.loads(first.content)), ready, answer)
    while (message := read()) is not None:
        start("evervec-embed", embed, ready.result(), message)
    _leave(folder)


def _leave(folder: str) -> NoReturn:
    """End at once, whatever the devices do: nobody waits for it. A parent that was killed has left
    the folder behind."""
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def _load(
    wanted: Wanted, ready: Future[LoadedModel], answer: Callable[[int, bytes, bytes], None]
) -> None:
    """In a thread: the main thread has to notice if the parent ends meanwhile."""
    from evervec.embedders.st.model import Model

    try:
        model = Model(wanted)
        _spare_processors(lane.replica.device for lane in model.lanes.lanes)
    except BaseException as error:  # noqa: BLE001 - raised by the parent
        answer(_LOADED, _ERROR, _pack_error(error))
        return
    ready.set_result(model)
    answer(_LOADED, _ROWS, _pack_rows(np.empty((0, model.dimensions), np.float32)))


def _spare_processors(devices: Iterable[str]) -> None:
    """Leave the processors to the tokenizer, if no device is one. Torch's threads only copy then, but
    spin between two copies: beside them, the tokenizer took more than twice the processor time, and
    texts went through at two thirds of the rate."""
    import torch

    if not any(device.startswith("cpu") for device in devices):
        torch.set_num_threads(1)
