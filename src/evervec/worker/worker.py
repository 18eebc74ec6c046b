"""A worker: runs the pipeline's stages, overlapped.

One thread claims, prepares and writes; a few threads make provider calls; one renews leases. While
a batch is being embedded, the next one is prepared and the previous one is written. A batch holds
as much text as the provider embeds in a few seconds. If a batch takes longer, its complete records
are written in the meantime. So a worker that is stopped or killed loses a few seconds of work,
however slow its machine is. A busy worker never polls. An idle worker sleeps until it is woken, a
job falls due, or the poll interval ends.

No error ends a worker. When the store, the index, file descriptors, memory or threads are
unavailable, the worker waits. Jobs that hit a bug keep their leases until these expire; they are
then retried with fewer other jobs, and finally alone.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress

from evervec.embedders.base import describe
from evervec.embedding.gate import OUTAGES
from evervec.errors import IndexBusy, StoreClosed, StoreError
from evervec.indexes.base import patience
from evervec.maintenance.housekeeping import Upkeep
from evervec.model.jobs import Job
from evervec.model.reports import ProcessResult
from evervec.runtime.threads import start, stopped_by_signals
from evervec.settings import Settings
from evervec.worker.account import Account
from evervec.worker.batch import Batch, Call, Reached
from evervec.worker.claims import Claims, most_jobs
from evervec.worker.failures import AROUND, PASSING, Failures
from evervec.worker.pipeline import Pipeline
from evervec.worker.presence import Presence
from evervec.worker.threads import Calls, Heartbeat

log = logging.getLogger("evervec")

_BACKFILL_SECONDS = 1.0
"""pause between two checks for backfill work, while there is none"""
_PATIENCE = 0.5
"""seconds that the main thread waits at a time for other writers of the index"""
_PROGRESS_SECONDS = 3.0
"""after this time the complete records of a batch are written, while others are still embedded"""
_BUSY_SECONDS = 0.1
"""delay before the worker retries an index that another process is writing to"""
_JOIN_SECONDS = 1.0


class Worker:
    """Processes a queue until stopped; `with` runs it in a thread and drains it on exit."""

    def __init__(
        self, pipeline: Pipeline, upkeep: Upkeep, settings: Settings, concurrency: int | None = None
    ) -> None:
        self._pipeline = pipeline
        self._store = pipeline.store
        self._upkeep = upkeep
        self._settings = settings
        self._concurrency = concurrency or settings.concurrency
        self._stopping = threading.Event()
        self._make_threads()
        self._claims = Claims(pipeline, most_jobs(pipeline, settings.batch_size))
        self._flying: list[Batch] = []
        """batches with provider calls in progress"""
        self._embedded: list[Batch] = []
        """batches to write, in order; a batch stays here until its write succeeds"""
        self._write_at = 0.0
        self._account = Account()
        self._forever = False
        self._stop_at = float("inf")
        self._next_recovery = 0.0
        self._presence = Presence(pipeline)
        self._thread: threading.Thread | None = None
        self._crash: BaseException | None = None
        self._endurance = Failures(settings.backoff_seconds)

    def _make_threads(self) -> None:
        self._calls = Calls(self._pipeline, self._concurrency, self._stopping.is_set)
        self._heartbeat = Heartbeat(
            self._pipeline.queue.renew_many, self._settings.lease_seconds / 3
        )

    @property
    def processed(self) -> int:
        """Jobs that ended since it started."""
        return self._account.total.processed

    # running
    def process_all(
        self,
        progress: Callable[[int], object] | None = None,
        watch: Callable[[Reached], object] = lambda _: None,
    ) -> ProcessResult:
        """Process jobs until none is due; during an outage, until the outage is detected. `watch`
        is called after each provider call."""
        self._account = Account(progress or (lambda _: None), watch)
        self._run(forever=False)
        return self._account.result()

    def run(self) -> None:
        """Process jobs until `stop`."""
        self._run(forever=True)

    def run_until_signalled(self) -> None:
        """Process jobs until SIGTERM or SIGINT, then drain; a second signal stops at once."""
        with self.stopped_by_signals():
            self.run()

    def stopped_by_signals(self) -> AbstractContextManager[None]:
        """Inside the block, SIGTERM and SIGINT stop the worker; only in the main thread."""
        return stopped_by_signals(lambda first: self.stop(None if first else 0.0))

    def stop(self, drain_seconds: float | None = None) -> None:
        """Stop claiming; finish claimed jobs within the deadline, and release the rest."""
        limit = self._settings.drain_seconds if drain_seconds is None else drain_seconds
        self._stop_at = min(self._stop_at, time.monotonic() + limit)
        self._stopping.set()
        self._store.wake()
        self._calls.done.put(None)

    @property
    def running(self) -> bool:
        """Whether the worker's thread is alive."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def trouble(self) -> str | None:
        """Why the worker makes no progress: `stopped`, `failing` or `stuck`; None when healthy."""
        return self._endurance.trouble if self.running else "stopped"

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def __enter__(self) -> Worker:
        self._thread = start("evervec-worker", self._run_in_thread)
        return self

    def join(self) -> bool:
        """After `stop`, wait for the thread to end, at most about as long as the drain may take.
        Returns whether it has ended."""
        if self._thread is not None:
            self._thread.join(max(0.0, self._stop_at - time.monotonic()) + _JOIN_SECONDS)
        return not self.running

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._thread is not None:
            self._thread.join()
        if self._crash is not None:
            raise self._crash

    def _run_in_thread(self) -> None:
        """Process jobs until `stop`; try again while no thread or store is there to start with."""
        while not self.stopping:
            try:
                self.run()
            except StoreClosed as error:  # closed by its owner; only the owner can reopen it
                self._crash = error
                log.exception("the worker stopped")
                return
            except BaseException as error:  # noqa: BLE001 - the worker must restart
                self._pause(error)

    def _run(self, *, forever: bool) -> None:
        self._forever = forever
        self._make_threads()  # those of an earlier run have ended, or are stuck in a call
        try:
            self._calls.start()
            with self._heartbeat, patience(_PATIENCE):
                self._work()
                self._write_complete()
        finally:
            self._calls.close()
            self._release_rest()
            self._claims.release_suspects_lock()
            self._pipeline.queue.recorder.flush()
            if forever:
                self._presence.leave()

    def _work(self) -> None:
        """Step until nothing is left to do."""
        while True:
            self._endurance.moves()
            try:
                seen = self._store.wait(-1, 0)
                moved = self._step()
                self._endurance.worked()
                if moved:
                    continue
                if not self._forever or self.stopping:
                    return
                self._sleep(seen)
            except Exception as error:
                if not self._forever or isinstance(error, StoreClosed):
                    raise
                self._pause(error)
                if self.stopping and not (self._in_hand and self._may_drain()):
                    return

    @property
    def _in_hand(self) -> list[Batch]:
        """The batches that are prepared and not written yet."""
        return self._flying + self._embedded

    def _may_drain(self) -> bool:
        """Whether time is left to finish the claimed jobs."""
        return time.monotonic() < self._stop_at

    def _pause(self, error: BaseException) -> None:
        """Back off after an error; the pause grows with each error in a row."""
        seconds = self._endurance.failed(error)
        if self.stopping:
            time.sleep(max(0.0, min(seconds, self._stop_at - time.monotonic())))
        else:
            self._stopping.wait(seconds)

    def _step(self) -> bool:
        """Make one step: housekeeping, start a batch, or finish one. False: nothing to do now."""
        self._do_upkeep()
        enqueued = not self.stopping and self._upkeep.backfill(_BACKFILL_SECONDS)
        self._collect_ended_calls()  # embedded batches are written before new ones start
        if self._embedded and time.monotonic() >= self._write_at:
            return self._write_batch()
        if self._has_room() and self._start_batch():
            return True
        if self._in_hand:
            return self._await_call()
        self._upkeep.log_backfilled()
        self._pipeline.check_followed()
        return enqueued

    # stages
    def _has_room(self) -> bool:
        held = self._in_hand
        if not self._claims.jobs and (self.stopping or (held and self._claims.may_have_suspects)):
            return False
        if any(batch.suspect for batch in held):
            return False
        calls = sum(1 if batch.oversize else batch.calls_left for batch in self._flying)
        return (
            (len(self._flying) < 2 or calls < 2 * self._concurrency)
            and sum(len(batch.items) for batch in held) < 4 * self._claims.most
            and sum(batch.characters for batch in held) < self._pipeline.memory
        )

    def _start_batch(self) -> bool:
        """Claim jobs unless some are left, prepare a batch of them, and submit its calls."""
        if not self._claims.jobs:
            if self._presence.paused or (self._forever and self._claims.debounce.left > 0):
                return False
            if not self._pipeline.probe_providers(self._stopping.is_set):
                return False
            self._claims.claim(alone=not self._in_hand)
            self._heartbeat.hold(self._claims.jobs)
        claimed = self._claims.jobs
        if not claimed:
            return False
        try:
            batch = self._claims.next_batch()
            self._account.reached.prepare(batch)
            self._heartbeat.drop(batch.gone)
            calls = self._pipeline.calls(batch)
        except Exception as error:
            if self._forever and not isinstance(error, AROUND):
                self._claims.jobs = ()
                self._abandon(claimed)
            raise
        if calls:
            batch.look_at = time.monotonic() + _PROGRESS_SECONDS
            self._flying.append(batch)
            self._calls.submit(batch, calls)
        else:
            self._embedded.append(batch)
        return True

    def _abandon(self, jobs: Sequence[Job]) -> None:
        """Let the leases of jobs that hit a bug expire, so that the jobs count as crashed."""
        self._heartbeat.drop(jobs)
        log.error("%d jobs wait until their leases expire", len(jobs), extra={"count": len(jobs)})

    def _await_call(self) -> bool:
        """Wait until a provider call ends, the debounce is over, or the index may be retried; False
        when the drain deadline comes first."""
        left = self._stop_at - time.monotonic()
        if (delay := self._claims.debounce.left) > 0:
            left = min(left, delay)
        if left <= 0:
            return False
        if self._embedded:
            left = min(left, max(0.001, self._write_at - time.monotonic()))
        with suppress(queue.Empty):
            self._collect_call(self._calls.done.get(timeout=min(left, 1.0)))
        return True

    def _collect_ended_calls(self) -> None:
        while not self._calls.done.empty():  # only this thread takes calls
            self._collect_call(self._calls.done.get_nowait())

    def _collect_call(self, ended: tuple[Batch, Call | None] | None) -> None:
        if ended is None:  # woken by `stop`
            return
        batch, call = ended
        batch.calls_left -= 1
        if call is not None:
            batch.take(call)
            self._account.take(call)
        if batch.calls_left == 0:
            self._flying.remove(batch)
            self._embedded.append(batch)
        elif (now := time.monotonic()) >= batch.look_at:
            batch.look_at = now + _PROGRESS_SECONDS
            self._embedded += batch.split()

    def _write_batch(self) -> bool:
        """Write the first embedded batch. If the write fails, the batch stays first; while the
        index is busy, other batches are embedded behind it."""
        batch = self._embedded[0]
        try:
            written = self._pipeline.write(batch)
        except IndexBusy:
            self._write_at = time.monotonic() + _BUSY_SECONDS
            return self._may_drain()
        except Exception as error:
            if self._forever and not isinstance(error, AROUND):
                del self._embedded[0]
                self._abandon(batch.jobs)
            raise
        del self._embedded[0]
        self._heartbeat.drop(batch.jobs)
        if self._forever:
            written.errors.clear()  # they are in the log and in the jobs' history
        self._account.add(written)
        self._upkeep.count_backfilled(batch, written.succeeded)
        if batch.outage is not None and not isinstance(batch.outage, OUTAGES):
            if not self._forever:
                raise batch.outage
            self._pause(batch.outage)
        return True

    # idling
    def _do_upkeep(self) -> None:
        now = time.monotonic()
        self._calls.restart_dead()
        self._heartbeat.ensure_running()
        if now >= self._next_recovery:
            self._next_recovery = now + min(1.0, self._settings.lease_seconds / 4)
            self._store.tenants.fold_usage()
            self._store.jobs.fold_counts()
            self._claims.may_have_suspects |= self._upkeep.recover(self._heartbeat.beat)
            if self._forever:
                self._presence.read_orders()
        if self._forever:
            held = len(self._claims.jobs) + sum(len(batch.items) for batch in self._in_hand)
            self._presence.report_if_due(held, self.processed)
        self._pipeline.queue.recorder.flush_if_due()
        self._upkeep.sweep()

    def _sleep(self, seen: int) -> None:
        """Sleep until woken, a job falls due, or the poll interval ends."""
        pause = max(0.0, self._claims.debounce.left) or min(self._pipeline.waits, 1.0)
        if pause > 0:
            self._stopping.wait(pause)
            return
        due, now = self._store.leases.next_due(), self._store.now()
        wait = self._settings.poll_seconds or self._store.poll_seconds
        if due is not None and due > now:  # a job that is already due is not for this worker
            wait = min(wait, due - now)
        self._store.wait(seen, wait)

    def _write_complete(self) -> None:
        """At the end of a drain, write the records that are embedded, even if their batch is
        incomplete."""
        self._collect_ended_calls()
        for batch in self._flying:
            self._embedded += batch.split()
        try:
            while self._embedded and self._write_batch():
                pass
        except PASSING as error:
            log.warning("embedded records cannot be written: %s", describe(error))

    def _release_rest(self) -> None:
        jobs = [job for batch in self._in_hand for job in batch.jobs] + list(self._claims.jobs)
        self._flying, self._embedded, self._claims.jobs = [], [], ()
        self._heartbeat.drop(jobs)
        if not jobs:
            return
        try:
            released = sum(self._pipeline.queue.release_many(jobs))
        except StoreError as error:
            log.warning("%d jobs wait until their leases expire: %s", len(jobs), error)
            return
        why = "drain timed out" if self.stopping else "work was interrupted"
        log.warning("%s: %d jobs were released", why, released, extra={"count": released})
