"""The worker: stages overlapped, bounded, woken at once, drained at the end."""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence

import pytest

from evervec import (
    IndexUnavailable,
    InvalidArgument,
    InvalidInput,
    Job,
    ProviderUnavailable,
    RateLimited,
    Status,
    StoreError,
)
from evervec.worker.claims import Debounce
from evervec.worker.failures import Failures
from evervec.worker.threads import Calls
from support.world import (
    KIND,
    PATIENCE,
    Clock,
    World,
    add_all,
    assert_in_step,
    job_of,
    paragraph,
    until,
)  # fmt: skip


class Gate:
    """Holds provider calls until it is opened, and counts how many are inside."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.inside = 0
        self.most = 0
        self._changed = threading.Condition()

    def __call__(self, texts: Sequence[str]) -> None:
        with self._changed:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self._changed.notify_all()
        assert self.opened.wait(PATIENCE)
        with self._changed:
            self.inside -= 1
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.inside >= count, PATIENCE)


@pytest.fixture
def gate(memory: World) -> Gate:
    gate = Gate()
    memory.embedder.before = gate
    return gate


# process_all


def test_a_worker_can_process_all_again(memory: World) -> None:
    """Each run has threads of its own, and reports only what it did itself."""
    worker, texts = memory.ev.worker(), {"1": "one", "2": "two", "3": "three"}
    for ids in ("12", "", "3"):
        for id in ids:
            memory.ev.add(KIND, texts[id], id=id)
        done = worker.process_all()
        assert (done.processed, done.succeeded) == (len(ids), len(ids))
    assert_in_step(memory.ev, texts)


def test_process_all_works_until_nothing_is_due(memory: World) -> None:
    add_all(memory.ev, KIND, *(f"text {n}" for n in range(600)))
    result = memory.ev.process_all()
    assert (result.processed, result.succeeded, result.failed, result.errors) == (600, 600, 0, [])
    assert memory.ev.process_all().processed == 0
    assert_in_step(memory.ev, {str(n): f"text {n}" for n in range(600)})


def test_process_all_leaves_what_is_scheduled_or_leased_elsewhere(memory: World) -> None:
    memory.ev.add(KIND, "leased", id="leased")
    memory.ev.queue.claim(1)
    memory.ev.add(KIND, "later", id="later", delay=60)
    memory.ev.add(KIND, "now", id="now")
    assert memory.ev.process_all().succeeded == 1
    assert job_of(memory.ev, "later").status is Status.PENDING
    assert job_of(memory.ev, "leased").status is Status.PROCESSING


def test_process_all_counts_dead_letters_and_names_every_error(memory: World) -> None:
    def choke(texts: Sequence[str]) -> None:
        for place, text in enumerate(texts):
            if text == "refused":
                raise InvalidInput([place], "no")
        if "poison" in texts:
            raise ValueError("choked")

    memory.embedder.before = choke
    tickets = add_all(memory.ev, KIND, "fine", "refused", "poison")
    result = memory.ev.process_all()
    assert (result.processed, result.succeeded, result.failed) == (3, 1, 1)
    errors = dict(result.errors)
    assert errors.keys() == {tickets[1].job_id, tickets[2].job_id}
    assert "choked" in errors[tickets[2].job_id]


@pytest.mark.parametrize("outage", [ProviderUnavailable("away"), RateLimited(60), OSError("down")])
def test_process_all_returns_in_an_outage_with_all_pending(
    memory: World, outage: Exception
) -> None:
    def away(_: object) -> None:
        raise outage

    memory.embedder.before = away
    add_all(memory.ev, KIND, *(f"text {n}" for n in range(300)))
    result = memory.ev.process_all()
    assert (result.processed, result.failed, result.errors) == (0, 0, [])
    stats = memory.ev.queue.stats()
    assert (stats.pending, stats.processing, stats.failed) == (300, 0, 0)
    assert {j.attempts for j in memory.ev.queue.jobs(limit=1000)} == {0}


def test_process_all_does_nothing_while_paused(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha")
    memory.ev.queue.pause()
    assert memory.ev.process_all().processed == 0
    memory.ev.queue.resume()
    assert memory.ev.process_all().succeeded == 1


def test_process_all_recovers_what_a_dead_worker_left(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha")
    memory.ev.queue.claim(1)
    memory.clock.move(61)
    assert memory.ev.process_all().succeeded == 1


def test_an_update_during_the_call_is_embedded_in_the_same_run(memory: World) -> None:
    memory.ev.add(KIND, "alpha", id="1")
    memory.embedder.before = lambda texts: "alpha" in texts and memory.ev.add(KIND, "beta", id="1")
    memory.ev.process_all()
    assert memory.embedder.texts == ["alpha", "beta"]
    assert_in_step(memory.ev, {"1": "beta"})


# in the background


def test_an_add_in_the_same_process_wakes_an_idle_worker_at_once(memory: World) -> None:
    ev = memory.open(poll_seconds=3600.0)
    with ev.worker():
        for n in range(5):
            ticket = ev.add(KIND, f"text {n}", id=n)
            assert ev.wait(ticket, PATIENCE).status is Status.DONE


def test_what_another_opening_adds_is_found_by_polling(shared_world: World) -> None:
    other = shared_world.open()
    with shared_world.ev.worker():
        ticket = other.add(KIND, "alpha", id="1")
        assert other.wait(ticket, PATIENCE).status is Status.DONE


def test_leaving_the_block_finishes_what_is_claimed(memory: World, gate: Gate) -> None:
    add_all(memory.ev, KIND, "alpha", "beta")
    worker = memory.ev.worker()

    def open_late() -> None:
        until(memory.ev, lambda: worker.stopping)
        gate.opened.set()

    late = threading.Thread(target=open_late)
    late.start()
    with worker:
        gate.wait_for(1)
    late.join()
    assert memory.ev.queue.stats().done == 2
    assert_in_step(memory.ev, {"0": "alpha", "1": "beta"})


def test_after_the_drains_deadline_the_rest_is_released(
    memory: World, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    add_all(memory.ev, KIND, "alpha", "beta", "gamma")
    worker = memory.ev.worker()
    with caplog.at_level(logging.WARNING), worker:
        gate.wait_for(1)
        worker.stop(0.01)
    gate.opened.set()
    (line,) = [r for r in caplog.records if "drain timed out" in r.getMessage()]
    assert line.__dict__["count"] == 3
    stats = memory.ev.queue.stats()
    assert (stats.pending, stats.processing, stats.done) == (3, 0, 0)
    assert {j.attempts for j in memory.ev.queue.jobs()} == {0}
    memory.embedder.before = None
    assert memory.ev.process_all().succeeded == 3


def test_a_stopped_worker_runs_no_more_than_one_further_batch(memory: World, gate: Gate) -> None:
    ev = memory.open(batch_size=1)
    add_all(ev, KIND, *(f"text {n}" for n in range(50)))
    worker = ev.worker(concurrency=1)
    with worker:
        gate.wait_for(1)
        worker.stop()
        held = ev.queue.stats().processing
        gate.opened.set()
    stats = ev.queue.stats()
    assert stats.processing == 0
    assert stats.done <= held + 1
    assert stats.pending >= 50 - held - 1


def test_no_more_calls_are_in_flight_than_allowed_and_that_many_are(
    memory: World, gate: Gate
) -> None:
    memory.embedder.max_batch = 1
    add_all(memory.ev, KIND, *(f"text {n}" for n in range(20)))
    with memory.ev.worker(concurrency=4):
        gate.wait_for(4)
        assert memory.ev.queue.stats().in_flight == 4
        gate.opened.set()
        until(memory.ev, lambda: memory.ev.queue.stats().done == 20)
    assert gate.most == 4
    assert memory.ev.queue.stats().in_flight == 0


def test_the_chunks_of_one_record_are_embedded_by_several_calls(memory: World, gate: Gate) -> None:
    memory.embedder.max_batch = 1
    text = "\n\n".join(paragraph(f"word{n}") for n in range(6))
    memory.ev.add(KIND, text, id="1")
    with memory.ev.worker(concurrency=3):
        gate.wait_for(3)
        gate.opened.set()
        until(memory.ev, lambda: memory.ev.queue.stats().done == 1)
    assert len(memory.embedder.calls) == 6
    assert_in_step(memory.ev, {"1": text})


def test_the_next_batch_is_claimed_while_the_last_is_embedded(memory: World, gate: Gate) -> None:
    ev = memory.open(batch_size=2)
    add_all(ev, KIND, *(f"text {n}" for n in range(6)))
    with ev.worker(concurrency=1):
        gate.wait_for(1)
        until(ev, lambda: ev.queue.stats().processing >= 4)
        gate.opened.set()
        until(ev, lambda: ev.queue.stats().done == 6)


def test_what_is_embedded_is_written_before_more_is_claimed(memory: World) -> None:
    """Else a change waits for as many others as a worker has room for."""
    ev = memory.open(batch_size=1)
    add_all(ev, KIND, *(f"text {n}" for n in range(20)))
    worker = ev.worker()
    claim, held = ev.pipeline.claim, []

    def claim_later(limit: int, *, suspects: bool = True) -> list[Job]:
        """Once all calls have ended."""
        held.append(ev.queue.stats().processing)
        until(ev, lambda: worker._calls.done.qsize() == held[-1])
        return claim(limit, suspects=suspects)

    ev.pipeline.claim = claim_later  # type: ignore[method-assign]
    assert worker.process_all().succeeded == 20
    assert max(held) == 1


def test_a_worker_holds_a_bounded_number_of_jobs(memory: World, gate: Gate) -> None:
    ev = memory.open(batch_size=5)
    memory.embedder.max_batch = 5
    add_all(ev, KIND, *(f"text {n}" for n in range(500)))
    with ev.worker(concurrency=2):
        gate.wait_for(2)
        until(ev, lambda: ev.queue.stats().processing >= 20)
        assert ev.queue.stats().processing <= 4 * 5 + 5
        gate.opened.set()
        until(ev, lambda: ev.queue.stats().done == 500)


def test_what_comes_alone_is_claimed_at_once_and_a_trickle_is_gathered() -> None:
    gathering = Debounce()
    for found in (1, 0, 1, 0, 3, 0):  # each claim that finds something is followed by idleness
        gathering.record_claim(found, 256)
        assert gathering.left <= 0
    waits = []
    for found in (1, 2, 5, 1, 1, 2, 64, 1, 256, 1, 1, 0, 1):
        gathering.record_claim(found, 256)
        waits.append(gathering.left > 0)
    # after a wait one alone ends the trickle, and so does much, or nothing
    assert waits == [
        False, True, True, False, False, True, False, False, False, False, True, False, False
    ]  # fmt: skip


def test_full_claims_are_no_trickle_however_small() -> None:
    gathering = Debounce()
    for _ in range(5):
        gathering.record_claim(4, 4)
        assert gathering.left <= 0


def test_records_that_keep_coming_while_others_are_embedded_are_gathered(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Debounce, "seconds", 3600.0)
    ev = memory.ev
    texts = iter("bcdefg")
    memory.embedder.before = lambda _: ev.add(KIND, text := next(texts), id=text)
    with ev.worker():
        ev.add(KIND, "a", id="a")
        until(ev, lambda: ev.queue.stats().done == 2)
        ev.add(KIND, "h", id="h")
        assert {job.record_id for job in ev.queue.jobs(status="pending")} == {"c", "h"}
    with ev.worker():
        until(ev, lambda: ev.queue.stats().done >= 4)


def test_pause_holds_a_worker_and_resume_wakes_it(memory: World) -> None:
    ev = memory.open(poll_seconds=3600.0)
    ev.queue.pause()
    with ev.worker():
        ticket = ev.add(KIND, "alpha", id="1")
        assert ev.store.jobs.settled([("default", ticket)]) == [None]
        ev.queue.resume()
        assert ev.wait(ticket, PATIENCE).status is Status.DONE


def test_after_an_outage_everything_is_embedded_and_no_attempt_was_spent(memory: World) -> None:
    ev = memory.open(backoff_seconds=0.01, clock=time.time)
    tries = []

    def away(texts: Sequence[str]) -> None:
        tries.append(len(texts))
        if len(tries) < 5:
            raise ProviderUnavailable("away")

    memory.embedder.before = away
    add_all(ev, KIND, *(f"text {n}" for n in range(50)))
    with ev.worker():
        until(ev, lambda: ev.queue.stats().done == 50)
    assert {len(ev.queue.history(KIND, str(n))) for n in range(50)} == {1}
    assert {ev.queue.history(KIND, str(n))[0].attempt for n in range(50)} == {1}


def test_during_an_outage_only_a_known_good_text_is_tried(memory: World) -> None:
    ev = memory.open(backoff_seconds=0.01, clock=time.time)
    tried = threading.Semaphore(0)

    def away(_: object) -> None:
        tried.release()
        raise ProviderUnavailable("away")

    memory.embedder.before = away
    add_all(ev, KIND, *(f"text {n}" for n in range(50)))
    with ev.worker():
        for _ in range(4):
            assert tried.acquire(timeout=PATIENCE)
    assert [len(call) for call in memory.embedder.calls[1:4]] == [1, 1, 1]
    assert ev.queue.stats().pending == 50


def test_a_bad_record_does_not_stop_the_worker(memory: World) -> None:
    def choke(texts: Sequence[str]) -> None:
        if "poison" in texts:
            raise ValueError("half a pair \ud800")

    memory.embedder.before = choke
    with memory.ev.worker():
        memory.ev.add(KIND, "poison", id="bad")
        until(memory.ev, lambda: job_of(memory.ev, "bad").error)
        ticket = memory.ev.add(KIND, "fine", id="good")
        assert memory.ev.wait(ticket, PATIENCE).status is Status.DONE


def test_leases_are_renewed_while_a_call_takes_long(memory: World, gate: Gate) -> None:
    ev = memory.open(lease_seconds=0.09)
    add_all(ev, KIND, "alpha")
    with ev.worker():
        gate.wait_for(1)
        before = job_of(ev, "0").lease_expires_at
        assert before is not None
        memory.clock.move(0.05)
        until(ev, lambda: (job_of(ev, "0").lease_expires_at or before) > before)
        gate.opened.set()
        until(ev, lambda: job_of(ev, "0").status is Status.DONE)
    assert len(memory.embedder.calls) == 1


def test_two_workers_on_one_store_do_every_job_once(memory: World) -> None:
    ev = memory.open(batch_size=10)
    with ev.worker(), ev.worker():
        add_all(ev, KIND, *(f"text {n}" for n in range(300)))
        until(ev, lambda: ev.queue.stats().done == 300)
    assert sorted(memory.embedder.texts) == sorted(f"text {n}" for n in range(300))


def test_a_concurrency_below_one_is_refused(memory: World) -> None:
    for concurrency in (0, -1):
        with pytest.raises(InvalidArgument, match="concurrency"):
            memory.ev.worker(concurrency)


def test_an_add_that_waits_returns_when_it_is_embedded(memory: World) -> None:
    with memory.ev.worker():
        ticket = memory.ev.add(KIND, "alpha", id="1", boxed=True, wait=PATIENCE)
        assert memory.ev.get(KIND, "1") is not None
        assert memory.ev.store.jobs.settled([("default", ticket)]) == [Status.DONE]
        memory.ev.delete(KIND, "1", wait=PATIENCE)
    assert_in_step(memory.ev, {})


def test_opening_starts_no_thread(memory: World) -> None:
    before = set(threading.enumerate())
    memory.open().add(KIND, "alpha")
    assert not set(threading.enumerate()) - before


def test_threads_end_with_their_worker(memory: World) -> None:
    before = set(threading.enumerate())
    add_all(memory.ev, KIND, "alpha")
    with memory.ev.worker():
        until(memory.ev, lambda: memory.ev.queue.stats().done == 1)
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_a_job_cancelled_under_a_worker_is_no_longer_held(
    memory: World, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was taken from a worker and cancelled before it was loaded does not stay in its
    heartbeat."""
    ev = memory.open()
    worker = ev.worker()
    cancelled, kept = add_all(ev, KIND, "alpha", "beta")
    claim = ev.pipeline.claim

    def claim_and_cancel(limit: int, *, suspects: bool = True) -> list[Job]:
        jobs = claim(limit, suspects=suspects)
        if cancelled.job_id in (job.job_id for job in jobs):
            memory.clock.move(61)
            ev.queue.recover_stuck()
            ev.queue.cancel(cancelled.job_id)
        return jobs

    monkeypatch.setattr(ev.pipeline, "claim", claim_and_cancel)
    with worker:
        gate.wait_for(1)
        assert {job_id for job_id, _ in worker._heartbeat._held} == {kept.job_id}
        gate.opened.set()
        until(ev, lambda: ev.queue.stats().done == 1)
        until(ev, lambda: not worker._heartbeat._held)


def test_what_a_dead_worker_left_does_not_wait_for_an_idle_moment(memory: World) -> None:
    ev, ends = memory.ev, threading.Semaphore(0)
    memory.embedder.before = lambda texts: ends.acquire(timeout=PATIENCE)
    ev.add(KIND, "left behind", id="left")
    dead = ev.queue.claim(1)
    with ev.worker(2):
        for n in range(2):
            ev.add(KIND, f"live {n}", id=n)
            until(ev, lambda: len(memory.embedder.calls) > n)  # noqa: B023 - called at once
        memory.clock.move(ev.settings.lease_seconds + 1)
        until(ev, lambda: job_of(ev, "left").token != dead[0].token)
        ev.add(KIND, "live 2", id=2)
        ends.release()  # and one call is under way all the time
        until(ev, lambda: job_of(ev, "0").status is Status.DONE)
        ends.release(4)
        until(ev, lambda: job_of(ev, "2").status is Status.DONE)
    assert "left behind" in memory.embedder.calls[2]


def test_workers_of_one_process_do_what_killed_a_worker_one_at_a_time(
    memory: World, gate: Gate
) -> None:
    """If both died with their process, neither record could be told to be the cause."""
    ev = memory.open(batch_size=16)
    add_all(ev, KIND, *(f"text {n}" for n in range(16)))
    ev.queue.claim(16)
    memory.clock.move(ev.settings.lease_seconds + 1)
    with ev.worker(), ev.worker():
        gate.wait_for(1)
        ev.add(KIND, "fresh", id="fresh")
        until(ev, lambda: job_of(ev, "fresh").status is Status.PROCESSING)
        held = ev.queue.jobs(status="processing")
        assert len([job for job in held if job.crashes]) == 1
        gate.opened.set()
        until(ev, lambda: ev.queue.stats().done == 17)


# errors


def failing(times: int, error: BaseException) -> Callable[..., None]:
    """Raises so many times, and then does nothing."""
    left = iter(range(times))

    def fail(*_: object, **__: object) -> None:
        if next(left, None) is not None:
            raise error

    return fail


ERRORS = [
    OSError(24, "Too many open files"), MemoryError(), RuntimeError("can't start new thread"),
    ValueError("a bug"), RecursionError(), StoreError("disk I/O error"), sqlite3.OperationalError(),
]  # fmt: skip


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("part", ["sweep", "look_for_lost", "backfill_tables"])
def test_no_error_of_its_care_ends_a_worker(
    memory: World, monkeypatch: pytest.MonkeyPatch, error: Exception, part: str
) -> None:
    worker = memory.ev.worker()
    monkeypatch.setattr(worker._upkeep.housekeeping, part, failing(4, error))
    worker._endurance = Failures(0.001)
    process = threading.Thread(target=worker.run)  # as `evervec worker` does
    process.start()
    try:
        memory.ev.add(KIND, "text", id="1")
        until(memory.ev, lambda: memory.ev.queue.stats().done == 1)
        assert process.is_alive()
    finally:
        worker.stop()
        process.join(PATIENCE)


@pytest.mark.parametrize("error", [*ERRORS, SystemExit()], ids=lambda error: type(error).__name__)
def test_a_worker_that_cannot_begin_tries_again(
    memory: World, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    worker = memory.ev.worker()
    worker._endurance = Failures(0.001)
    real, fail = Calls.start, failing(3, error)

    def start(calls: Calls) -> None:
        fail()
        real(calls)

    monkeypatch.setattr(Calls, "start", start)
    with worker:
        memory.ev.add(KIND, "text", id="1")
        until(memory.ev, lambda: memory.ev.queue.stats().done == 1)
        assert worker.trouble is None


@pytest.mark.parametrize("stage", ["prepare", "calls", "write"])
def test_jobs_that_meet_a_mistake_are_left_for_their_leases_and_do_not_stop_others(
    memory: World, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    worker = memory.ev.worker()
    worker._endurance = Failures(0.001)
    real, fail = getattr(worker._pipeline, stage), failing(1, ValueError("a bug"))

    def once(*args: object) -> object:
        fail()
        return real(*args)

    monkeypatch.setattr(worker._pipeline, stage, once)
    memory.ev.add(KIND, "bad", id="bad")
    with worker:
        until(memory.ev, lambda: job_of(memory.ev, "bad").status is Status.PROCESSING and not any(
            (worker._claims.jobs, worker._flying, worker._embedded)))  # fmt: skip
        memory.ev.add(KIND, "good", id="good")
        until(memory.ev, lambda: job_of(memory.ev, "good").status is Status.DONE)
        assert job_of(memory.ev, "bad").status is Status.PROCESSING
        memory.clock.move(61)
        memory.ev.queue.recover_stuck()
        until(memory.ev, lambda: job_of(memory.ev, "bad").status is Status.DONE)
    assert_in_step(memory.ev, {"bad": "bad", "good": "good"})


def test_threads_of_a_worker_that_died_are_started_again(memory: World) -> None:
    worker = memory.ev.worker()
    with worker:
        memory.ev.add(KIND, "one", id="1")
        until(memory.ev, lambda: memory.ev.queue.stats().done == 1)
        heartbeat = worker._heartbeat._thread
        with worker._calls._changed:  # as if each had met an error that it could not catch
            worker._calls._closed = True
            worker._calls._changed.notify_all()
        until(memory.ev, lambda: not any(thread.is_alive() for thread in worker._calls._threads))
        worker._calls._closed = False
        worker._heartbeat._stop.set()
        assert heartbeat is not None
        heartbeat.join(PATIENCE)
        worker._heartbeat._stop.clear()
        memory.ev.add(KIND, "two", id="2")
        until(memory.ev, lambda: memory.ev.queue.stats().done == 2)
        until(memory.ev, lambda: worker._heartbeat._thread is not heartbeat)


def test_pauses_grow_and_troubles_of_others_are_not_its_own() -> None:
    clock = Clock(0.0)
    endurance = Failures(1.0, clock)
    assert [endurance.failed(IndexUnavailable()) for _ in range(5)] == [1.0] * 5
    assert endurance.trouble is None
    assert [endurance.failed(ValueError()) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert endurance.trouble == "failing"


def test_a_worker_that_worked_is_not_failing_but_may_be_stuck() -> None:
    clock = Clock(0.0)
    endurance = Failures(1.0, clock)
    for _ in range(3):
        endurance.failed(ValueError())
    endurance.worked()
    clock.move(121)
    assert endurance.trouble == "stuck"


def test_a_worker_that_moves_is_not_stuck() -> None:
    clock = Clock(0.0)
    endurance = Failures(1.0, clock)
    clock.move(121)
    endurance.moves()
    assert endurance.trouble is None


def test_a_worker_that_hangs_is_not_waited_for_longer_than_its_drain(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, release = threading.Event(), threading.Event()

    def hang(*_: object, **__: object) -> list[Job]:
        hangs.set()
        release.wait(PATIENCE)
        return []

    monkeypatch.setattr(memory.ev.store.leases, "claim", hang)
    memory.ev.add(KIND, "text", id="1")
    worker = memory.ev.worker().__enter__()
    try:
        assert hangs.wait(PATIENCE)
        worker.stop(0.0)
        assert not worker.join()
    finally:
        release.set()
        worker.__exit__()
