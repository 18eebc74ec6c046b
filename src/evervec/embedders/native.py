"""Native code that runs on while Python ends brings the process down.

Provider calls are made by daemon threads, so that one that hangs cannot keep a process
from ending. But a thread that returns from onnxruntime or tokenizers into an interpreter
that is gone aborts the process. So they are entered through `native`: when the process
ends it waits for what is inside, which is short, and lets nothing more in.
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
    """Around a short stretch of native code; `ProviderUnavailable` once the process ends."""
    global _inside
    with _changed:
        if _ending:
            raise ProviderUnavailable("the process is ending")
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
