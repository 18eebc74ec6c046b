"""When a worker claims jobs, and how many."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from evervec.embedders.base import is_remote
from evervec.model.jobs import Job
from evervec.settings import Settings
from evervec.worker.batch import Batch
from evervec.worker.pipeline import Pipeline

_FEW_BATCHES = 4
"""number of batches in a claim, when one batch holds fewer jobs than a claim"""
_MOST = 4096
"""jobs in one claim, however many a model embeds at once"""
_suspects_lock = threading.Lock()
"""Only one worker of a process at a time runs jobs that have killed a worker. Two such jobs would
die together, and neither could be identified as the cause."""


class Debounce:
    """Waits for more jobs before the next claim, while they trickle in.

    Claiming, embedding and writing one job costs about as much as ten, and in the meantime callers
    that add the next job wait for locks and for the GIL. A job that comes alone is claimed at once.
    """

    few = 64
    seconds = 0.02

    def __init__(self) -> None:
        self._trickles = False
        self._until = 0.0

    @property
    def left(self) -> float:
        """Seconds until the next claim."""
        return self._until - time.monotonic() if self._until else 0.0

    def record_claim(self, count: int, limit: int) -> None:
        """Record a claim that found `count` of `limit` jobs. A few jobs time after time, or more
        than one after a wait, are a trickle."""
        waited = self._until > 0.0
        trickles = waited < count < min(self.few, limit)
        again = trickles and (waited or self._trickles)
        self._until = time.monotonic() + self.seconds if again else 0.0
        self._trickles = trickles


def most_jobs(pipeline: Pipeline, batch_size: int) -> int:
    """The jobs of one claim, at most: those that a model in this process embeds at once, such as
    one on a GPU, if it takes more than the setting; a setting below the default holds."""
    if batch_size < Settings.batch_size:
        return batch_size
    embedders = [model.provider.embedder for model in pipeline.models]
    inside = [embedder.max_batch for embedder in embedders if not is_remote(embedder)]
    return max(batch_size, min(max(inside, default=0), _MOST))


class Claims:
    """The jobs that a worker has claimed and not prepared yet."""

    def __init__(self, pipeline: Pipeline, most: int) -> None:
        """`most`: jobs in one claim, at most."""
        self.jobs: Sequence[Job] = ()
        self.debounce = Debounce()
        self.may_have_suspects = False
        """there may be jobs that killed their worker; such a job runs alone"""
        self._pipeline = pipeline
        self.most = self._limit = most
        self._has_suspects_lock = False

    def claim(self, *, alone: bool) -> None:
        """Claim the next jobs. `alone`: the worker has no other work in hand, so a job that may
        kill this process shares it with no other job."""
        suspects = alone and self._take_suspects_lock()
        self.jobs = self._pipeline.claim(self._limit, suspects=suspects)
        if suspects:
            self.may_have_suspects = any(job.crashes for job in self.jobs)
            if not self.may_have_suspects:
                self.release_suspects_lock()
        if self.jobs or suspects:
            self.debounce.record_claim(len(self.jobs), self._limit)

    def next_batch(self) -> Batch:
        """Prepare a batch of claimed jobs. The next claim is sized to what is done soon; other
        workers and more urgent jobs get the rest."""
        batch, self.jobs = self._pipeline.prepare(self.jobs)
        wanted = _FEW_BATCHES * len(batch.items) if self.jobs else 2 * self._limit
        self._limit = max(1, min(wanted, self.most))
        return batch

    def _take_suspects_lock(self) -> bool:
        self._has_suspects_lock = self._has_suspects_lock or _suspects_lock.acquire(blocking=False)
        return self._has_suspects_lock

    def release_suspects_lock(self) -> None:
        if self._has_suspects_lock:
            self._has_suspects_lock = False
            _suspects_lock.release()
