"""Jobs that a process of this machine held when it died: they need not wait for their leases.

While a command works, a lock in the store says which process its worker is. A later command that
finds jobs in progress looks up the process of their worker. Only if that is certainly dead, it ends
the leases at once: the jobs are recovered as those of any crashed worker, and the crash counts as an
attempt. A job that is claimed again meanwhile has another token and is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from evervec.errors import StoreError
from evervec.indexes.holder import Holder
from evervec.model.jobs import Status

if TYPE_CHECKING:
    from evervec.facade import Evervec

_KNOWN_SECONDS = 30 * 86400.0
"""after this time housekeeping forgets a process"""
_LOOKED_AT = 10_000
"""jobs in progress, at most: a process holds far fewer"""


@contextmanager
def working(ev: Evervec) -> Iterator[int]:
    """Inside the block, other processes can see whether this one, which works on the jobs, is
    alive. On entry, the leases of dead processes are ended; gives the number of their jobs."""
    lost = _end_leases(ev)
    shared, name = ev.store.shared, _name(ev.queue.worker)
    _forget_dead(ev, name)  # the same number as that of a dead process
    token = shared.lock(name, str(Holder.here("worker")), _KNOWN_SECONDS)
    try:
        yield lost
    finally:
        if token is not None:
            with suppress(StoreError):  # else it would hide the error that ended the block
                shared.unlock(name, token)


def _end_leases(ev: Evervec) -> int:
    queue, lost = ev.queue_of(None), 0
    if not queue.stats().processing:
        return 0
    jobs = queue.jobs(status=Status.PROCESSING, limit=_LOOKED_AT)
    for worker in {job.worker for job in jobs if job.worker}:
        if _forget_dead(ev, _name(worker)):
            its = [job for job in jobs if job.worker == worker]
            lost += sum(ev.store.leases.renew(its, -1.0))
    return lost


def _forget_dead(ev: Evervec, name: str) -> bool:
    """Drop what is known of a process, if it is dead; returns whether it is."""
    known = ev.store.shared.lock_holder(name)
    holder = Holder.parse(known.holder) if known else None
    if known is None or holder is None or not holder.is_dead():
        return False
    ev.store.shared.unlock(name, known.token)
    return True


def _name(worker: str) -> str:
    return f"worker {worker}"
