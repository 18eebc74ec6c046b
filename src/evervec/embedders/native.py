"""Prevents crashes when native code is still running at the exit of the process.

Provider calls are made by daemon threads, so that a call that hangs cannot keep a process from
exiting. But a thread that returns from onnxruntime or tokenizers into an interpreter that is gone
aborts the process. So native code is entered through `native`: at exit, the process waits for the
code inside, which is short, and lets no more in.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from evervec.errors import ProviderUnavailable

_PATIENCE = 10.0

_changed = threading.Condition()
_inside = 0
_ending = False


@contextmanager
def native() -> Iterator[None]:
    """Wraps a short run of native code; raises `ProviderUnavailable` once the process is
    exiting."""
    global _inside
    with _changed:
        if _ending:
            raise ProviderUnavailable("the process is shutting down")
        _inside += 1
    try:
        yield
    finally:
        with _changed:
            _inside -= 1
            _changed.notify_all()


def _end() -> None:
    global _ending
    with _changed:
        _ending = True
        _changed.wait_for(lambda: _inside == 0, _PATIENCE)


atexit.register(_end)
