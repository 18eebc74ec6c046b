"""How long it takes until all is settled that was due when a fault ended.

At the end of a fault all unfinished jobs are listed. It is over when the last of them is settled
at the seq that it had then. Writes go on meanwhile and so do other faults, whose time is part of
it: this is what a user waits, not what one fault costs by itself.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from evervec import Evervec, EvervecError, Status, Ticket

_LOOK_AGAIN = 0.1
_MOST = 2000


@dataclass
class _Watch:
    fault: str
    since: float
    left: list[tuple[str, Ticket]] | None = None


class Recovery:
    """Watches a store by a handle of its own. A context: it looks until the block ends."""

    def __init__(self, open_store: Callable[[], Evervec]) -> None:
        self._open = open_store
        self._watches: list[_Watch] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="recovery", daemon=True)
        self.longest: dict[str, float] = {}
        """in seconds, by the fault's name"""

    def __enter__(self) -> "Recovery":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def over(self, fault: str) -> None:
        """A fault ended just now."""
        with self._lock:
            self._watches.append(_Watch(fault, time.monotonic()))

    @property
    def waits(self) -> bool:
        with self._lock:
            return bool(self._watches)

    def _look(self) -> None:
        while not self._ended.is_set():
            try:
                with self._open() as ev:
                    while not self._ended.wait(_LOOK_AGAIN):
                        self._look_once(ev)
            except (EvervecError, KeyError):  # the store is under fault; a version went away
                self._ended.wait(_LOOK_AGAIN)

    def _look_once(self, ev: Evervec) -> None:
        with self._lock:
            watches = list(self._watches)
        if not watches:
            return
        due = _due(ev)
        # a ticket is about the version that serves; a job of another one counts as long as it waits
        waiting = {(tenant, ticket.kind, ticket.id) for tenant, ticket in due}
        for watch in watches:
            asked = due if watch.left is None else watch.left
            asked = [one for one in asked if (one[0], one[1].kind, one[1].id) in waiting]
            watch.left = _unsettled(ev, asked)
        now = time.monotonic()
        with self._lock:
            for watch in watches:
                if not watch.left:
                    self._watches.remove(watch)
                    took = now - watch.since
                    self.longest[watch.fault] = max(took, self.longest.get(watch.fault, 0.0))


def _due(ev: Evervec) -> list[tuple[str, Ticket]]:
    return [
        (job.tenant, Ticket(job.kind, job.record_id, job.job_id, job.seq))
        for status in (Status.PENDING, Status.PROCESSING)
        for job in ev.store.jobs.page(None, status=status, limit=_MOST)
    ]


def _unsettled(ev: Evervec, asked: list[tuple[str, Ticket]]) -> list[tuple[str, Ticket]]:
    if not asked:
        return []
    ends = ev.store.jobs.settled(asked)
    return [one for one, end in zip(asked, ends, strict=True) if end is None]
