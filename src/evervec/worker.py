"""A worker: the stages of the pipeline, overlapped.

One thread claims, prepares and writes; a few make provider calls; one renews leases.
While a batch is embedded the next is prepared and the last is written. Nothing is
polled while there is work, and an idle worker sleeps until it is woken, a job falls
due, or the poll interval ends.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.metadata import version

from evervec.batch import Batch, Written
from evervec.calls import Calls
from evervec.errors import IndexUnavailable, StoreClosed, StoreError
from evervec.gathering import Gathering
from evervec.heartbeat import Heartbeat
from evervec.housekeeping import Housekeeping
from evervec.model import Job
from evervec.pipeline import Pipeline
from evervec.reports import ProcessResult
from evervec.settings import Settings

log = logging.getLogger("evervec")

_BEAT_SECONDS = 10.0


class Worker:
    """Works a queue until told to stop; `with` runs it in a thread and drains it at the end."""

    def __init__(
        self,
        pipeline: Pipeline,
        housekeeping: Housekeeping,
        starting: Iterator[int],
        migrate: Callable[[], int],
        settings: Settings,
        concurrency: int | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._store = pipeline.store
        self._housekeeping = housekeeping
        self._starting = starting  # a backfill, a slice at a time
        self._migrate = migrate
        self._settings = settings
        self._concurrency = concurrency or settings.concurrency
        self._stopping = threading.Event()
        self._calls = Calls(self._concurrency, self._stopping.is_set)
        self._heartbeat = Heartbeat(pipeline.queue.renew_many, settings.lease_seconds / 3)
        self._claimed: Sequence[Job] = ()
        self._flying: list[Batch] = []
        self._gathering = Gathering()
        self._wants_alone = False
        """there may be work that killed its worker, which is only done by itself"""
        self._total = Written()
        self._forever = False
        self._progress: Callable[[int], object] | None = None
        self._stop_at = float("inf")
        self._backfilled = 0
        self._backfill_batches = 0
        self._next_filling = 0.0
        self._next_recovery = 0.0
        self._next_sweep = 0.0
        self._next_beat = 0.0
        self._thread: threading.Thread | None = None
        self._crash: BaseException | None = None

    # running
    def process_all(self, progress: Callable[[int], object] | None = None) -> ProcessResult:
        """Work until no job is due; in an outage, until it is noticed."""
        self._progress = progress
        self._run(forever=False)
        done = self._total
        return ProcessResult(done.processed, done.succeeded, done.failed, done.errors)

    def run(self) -> None:
        """Work until `stop`."""
        self._run(forever=True)

    def stop(self, drain_seconds: float | None = None) -> None:
        """Claim nothing more; finish what is held within the deadline, release the rest."""
        limit = self._settings.drain_seconds if drain_seconds is None else drain_seconds
        self._stop_at = min(self._stop_at, time.monotonic() + limit)
        self._stopping.set()
        self._store.wake()
        self._calls.done.put(None)

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def __enter__(self) -> Worker:
        self._thread = threading.Thread(target=self._run_here, name="evervec-worker", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._thread is not None:
            self._thread.join()
        if self._crash is not None:
            raise self._crash

    def _run_here(self) -> None:
        try:
            self.run()
        except Exception as error:
            log.exception("the worker stopped")
            self._crash = error

    def _run(self, *, forever: bool) -> None:
        self._forever = forever
        self._calls.start()
        try:
            with self._heartbeat:
                while True:
                    seen = self._store.wait(-1, 0)
                    try:
                        if self._step():
                            continue
                        if not forever or self.stopping:
                            break
                        self._sleep(seen)
                    except (StoreError, IndexUnavailable) as error:
                        if not forever or isinstance(error, StoreClosed):
                            raise
                        log.error("work waits for the store or index: %s", error)
                        if self._stopping.wait(self._settings.backoff_seconds):
                            break
        finally:
            self._calls.close()
            self._release_rest()
            if forever:
                with suppress(StoreError):
                    self._store.leave(self._pipeline.queue.worker)

    def _step(self) -> bool:
        """One move: tend, take something in, or bring something to its end. False: nothing
        to do now."""
        self._tend()
        enqueued = not self.stopping and self._backfill()
        self._note_ended_calls()
        for batch in self._flying:
            if batch.calls_left == 0:
                self._bring_in(batch)
                return True
        if self._has_room() and self._take_in():
            return True
        if self._flying:
            return self._await_call()
        self._say_backfilled()
        return enqueued

    def _backfill(self) -> bool:
        """A slice of what is to be embedded behind live work; False when there is no more."""
        if next(self._starting, None) is not None:
            return True
        now = time.monotonic()
        if now < self._next_filling:
            return False
        filled = self._housekeeping.backfill_tables() or self._migrate()
        self._next_filling = now if filled else now + 1.0
        return filled > 0

    # stages
    def _has_room(self) -> bool:
        if self._wants_alone and self._flying and not self._claimed:
            return False
        if any(batch.suspect for batch in self._flying):
            return False
        if self._stopping.is_set() and not self._claimed:
            return False
        flying = self._flying
        return (
            sum(batch.calls_left for batch in flying) < 2 * self._concurrency
            and sum(len(batch.items) for batch in flying) < 4 * self._settings.batch_size
            and sum(batch.characters for batch in flying) < self._pipeline.memory
        )

    def _take_in(self) -> bool:
        if not self._claimed:
            if self._forever and self._gathering.left > 0:
                return False
            if not self._pipeline.ready(self._stopping.is_set):
                return False
            # what may kill this process must not take others along
            alone = not self._flying
            limit = self._settings.batch_size
            self._claimed = self._pipeline.claim(limit, suspects=alone)
            self._wants_alone &= not alone or any(job.crashes for job in self._claimed)
            if self._claimed or alone:
                self._gathering.claimed(len(self._claimed), limit)
            self._heartbeat.hold(self._claimed)
        if not self._claimed:
            return False
        batch, self._claimed = self._pipeline.prepare(self._claimed)
        self._flying.append(batch)
        for rows in self._pipeline.calls(batch):
            self._calls.submit(self._pipeline, batch, rows)
        return True

    def _await_call(self) -> bool:
        """Wait until a provider call ends, or enough has gathered; False when the drain's
        deadline comes first."""
        left = self._stop_at - time.monotonic()
        if (gathering := self._gathering.left) > 0:
            left = min(left, gathering)
        if left <= 0:
            return False
        with suppress(queue.Empty):
            self._note_end(self._calls.done.get(timeout=min(left, 1.0)))
        return True

    def _note_ended_calls(self) -> None:
        """What is embedded is written before more is taken in: it was there first."""
        with suppress(queue.Empty):
            while True:
                self._note_end(self._calls.done.get_nowait())

    def _note_end(self, batch: Batch | None) -> None:
        if batch is not None:
            batch.calls_left -= 1

    def _bring_in(self, batch: Batch) -> None:
        written = self._pipeline.write(batch)
        self._flying.remove(batch)
        self._heartbeat.drop(batch.jobs)
        if self._forever:
            written.errors.clear()  # they are in the log and in the jobs' history
        self._total.add(written)
        if self._progress is not None:
            self._progress(written.processed)
        low = self._settings.backfill_priority
        count = min(written.succeeded, sum(item.job.priority == low for item in batch.items))
        if count:
            self._backfilled += count
            self._backfill_batches += 1
            fields = {"count": count, "batch": self._backfill_batches}
            log.info("backfill: embedded records", extra=fields)

    def _say_backfilled(self) -> None:
        """Nothing is due, so what was enqueued behind everything else is done too."""
        if self._backfilled:
            log.info("embedding backfill complete", extra={"count": self._backfilled})
            self._backfilled = self._backfill_batches = 0

    # idling
    def _tend(self) -> None:
        now = time.monotonic()
        if now >= self._next_recovery:
            self._next_recovery = now + min(1.0, self._settings.lease_seconds / 4)
            if self._housekeeping.anything_lost():
                self._heartbeat.beat()  # what was starved here is not lost
                self._wants_alone |= self._housekeeping.recover() > 0
        if self._forever and now >= self._next_beat:
            self._next_beat = now + _BEAT_SECONDS
            held = len(self._claimed) + sum(len(batch.items) for batch in self._flying)
            self._store.beat(
                self._pipeline.queue.worker,
                version=version("evervec"),
                held=held,
                done=self._total.processed,
            )
        if now >= self._next_sweep:
            self._next_sweep = now + self._settings.housekeeping_seconds
            self._housekeeping.sweep()

    def _sleep(self, seen: int) -> None:
        """Until woken, a job falls due, or the poll interval ends."""
        if (left := self._gathering.left) > 0:
            self._stopping.wait(left)
            return
        paused = self._pipeline.waits
        if paused > 0:
            self._stopping.wait(min(paused, 1.0))
            return
        due, now = self._store.next_due(), self._store.now()
        wait = self._settings.poll_seconds or self._store.poll_seconds
        if due is not None and due > now:  # what is due already is not for this worker
            wait = min(wait, due - now)
        self._store.wait(seen, wait)

    def _release_rest(self) -> None:
        jobs = [job for batch in self._flying for job in batch.jobs] + list(self._claimed)
        self._flying, self._claimed = [], ()
        self._heartbeat.drop(jobs)
        if not jobs:
            return
        try:
            released = sum(self._pipeline.queue.release_many(jobs))
        except StoreError as error:
            log.warning("%d jobs wait for their leases to run out: %s", len(jobs), error)
            return
        why = "drain timed out" if self.stopping else "work was broken off"
        log.warning("%s: %d jobs were released", why, released, extra={"count": released})
