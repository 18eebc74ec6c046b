"""What a worker on a terminal says of itself: a line each minute."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from evervec.cli.output import say
from evervec.errors import EvervecError
from evervec.model.phrases import counted
from evervec.runtime.threads import start

if TYPE_CHECKING:
    from evervec.facade import Evervec

_EVERY = 60.0


@contextmanager
def narrated(ev: Evervec, *, each_minute: bool, every: float = _EVERY) -> Iterator[None]:
    """Say when the worker in the block stops, and on a terminal what it does each minute."""
    ended = threading.Event()
    if each_minute:
        start("evervec-narration", _narrate, ev, ended, every)
    try:
        yield
    finally:
        ended.set()
        say("the worker has stopped; what it had claimed is done or released", err=True)


def _narrate(ev: Evervec, ended: threading.Event, every: float) -> None:
    """Say what all workers of the store did since the last line; nothing changed: nothing is said."""
    queue = ev.queue_of(None)
    last = ""
    done: int | None = None
    while not ended.wait(every if done is not None else 0):
        with suppress(EvervecError):  # the store is away: the worker itself says so
            stats = queue.stats()
            fresh = max(0, stats.done - (stats.done if done is None else done))
            line = f"{counted(fresh, 'record')} embedded in the last {every:g} s, {stats.pending} waiting"
            line += f", {stats.failed} failed" if stats.failed else ""
            if stats.gate is not None:
                line += f"; the provider is paused: {stats.gate.reason}"
            if done is not None and (fresh or line != last):
                say(line, err=True)
            done, last = stats.done, line
        done = done or 0
