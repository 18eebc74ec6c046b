"""Progress is kept: a worker that is stopped or killed loses a few seconds of work."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest

import evervec.worker.worker
from evervec import Evervec, IndexUnavailable, Job, Status
from evervec.embedding.provider import SECONDS, Pace
from evervec.errors import IndexBusy
from evervec.model.records import Change
from support.world import (
    KIND,
    PATIENCE,
    World,
    add_all,
    assert_in_step,
    job_of,
    paragraph,
    step,
    until,
    work,
)


class Held:
    """Holds provider calls with one of the given texts until it is opened."""

    def __init__(self, *texts: str) -> None:
        self.texts = set(texts)
        self.opened = threading.Event()
        self.reached = threading.Event()

    def __call__(self, texts: Sequence[str]) -> None:
        if self.texts & set(texts):
            self.reached.set()
            assert self.opened.wait(PATIENCE)


def long_text(words: int) -> str:
    """A text of as many chunks."""
    return "\n\n".join(paragraph(f"long{n}") for n in range(words))


def fix_pace(ev: Evervec, patch: pytest.MonkeyPatch, characters: int) -> None:
    """Let batches and calls have that size, however long they take."""
    ev.provider.pace.characters = characters
    ev.provider.pace.learnt = True
    patch.setattr(Pace, "learn", lambda *_: None)


# pace


def test_a_slow_provider_gets_less_at_once_until_a_call_takes_a_few_seconds() -> None:
    pace = Pace(max_batch=64)
    per_second = 5_000
    for _ in range(20):
        pace.learn(8, pace.characters, pace.characters / per_second)
    assert pace.characters / per_second == pytest.approx(SECONDS, rel=0.2)


def test_a_fast_provider_gets_more_each_time() -> None:
    pace = Pace(max_batch=64)
    first = pace.characters
    for _ in range(10):
        pace.learn(8, pace.characters, 0.01)
    assert pace.characters > 100 * first


def test_the_time_until_a_provider_answers_at_all_does_not_make_calls_ever_smaller() -> None:
    pace = Pace(max_batch=64)
    for _ in range(100):
        pace.learn(1, 20, 4.0)
    assert pace.characters >= 8_000
    for _ in range(10):
        pace.learn(8, pace.characters, 0.2)
    assert pace.characters > 100_000


def test_full_calls_of_short_texts_count_too() -> None:
    pace = Pace(max_batch=64)
    first = pace.characters
    for _ in range(10):
        pace.learn(64, 64 * 40, 0.01)
    assert pace.characters > 9 * first


def test_short_calls_that_are_soon_done_change_nothing() -> None:
    pace = Pace(max_batch=64)
    first = pace.characters
    for _ in range(100):
        pace.learn(1, 20, 0.2)
    assert pace.characters == first


def test_a_provider_is_told_of_its_calls(memory: World) -> None:
    first = memory.ev.provider.pace.characters
    memory.ev.provider.embed(["x" * first])
    assert memory.ev.provider.pace.characters > first


# sizes


def test_a_batch_holds_what_is_embedded_in_a_few_seconds(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fix_pace(memory.ev, monkeypatch, 100)
    add_all(memory.ev, KIND, *(f"{n}" + "x" * 39 for n in range(10)))
    jobs = memory.ev.pipeline.claim(10)
    batch, rest = memory.ev.pipeline.prepare(jobs)
    assert [len(batch.items), len(rest)] == [2, 8]
    step(memory.ev, jobs)
    assert memory.ev.queue.stats().done == 10


def test_what_is_embedded_already_does_not_count(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"{n}" + "x" * 39 for n in range(50)]
    add_all(memory.ev, KIND, *texts)
    work(memory.ev)
    fix_pace(memory.ev, monkeypatch, 100)
    for collection in memory.ev.store.versions.collections():
        records = [
            e.record for e in memory.ev.store.records.expected(None, collection.version, 0, 100)
        ]
        memory.ev.store.changes.reopen(collection.version, records, forget=False)
    batch, rest = memory.ev.pipeline.prepare(memory.ev.pipeline.claim(50))
    assert (len(batch.items), batch.texts, len(rest)) == (50, [], 0)


def test_a_call_holds_what_is_embedded_in_a_few_seconds(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fix_pace(memory.ev, monkeypatch, 120)
    memory.ev.add(KIND, long_text(6), id="long")
    memory.ev.process_all()
    assert [len(call) for call in memory.embedder.calls] == [2, 2, 2]


def test_a_worker_claims_no_more_than_it_can_do_soon(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ev = memory.open(batch_size=32)
    fix_pace(ev, monkeypatch, 60)
    add_all(ev, KIND, *(f"{n:02}" + "x" * 38 for n in range(60)))
    claim, limits = ev.pipeline.claim, []

    def counted(limit: int, **how: Any) -> list[Job]:
        limits.append(limit)
        return claim(limit, **how)

    monkeypatch.setattr(ev.pipeline, "claim", counted)
    assert ev.process_all().succeeded == 60
    assert limits[0] == 32
    assert set(limits[1:-1]) <= {4, 8}


# what is complete is written


def test_a_drain_writes_what_is_embedded_and_releases_the_rest(memory: World) -> None:
    memory.embedder.max_batch = 1
    held = memory.embedder.before = Held("gamma")
    add_all(memory.ev, KIND, "alpha", "beta", "gamma", "delta")
    worker = memory.ev.worker(concurrency=1)
    with worker:
        assert held.reached.wait(PATIENCE)
        worker.stop(0.01)
    held.opened.set()
    assert [job_of(memory.ev, str(n)).status for n in range(4)] == [
        Status.DONE, Status.DONE, Status.PENDING, Status.PENDING,
    ]  # fmt: skip
    assert [job_of(memory.ev, str(n)).attempts for n in (2, 3)] == [0, 0]
    memory.embedder.before = None
    assert memory.ev.process_all().succeeded == 2
    assert_in_step(memory.ev, {"0": "alpha", "1": "beta", "2": "gamma", "3": "delta"})


def test_after_a_drain_no_more_calls_are_made(memory: World) -> None:
    memory.embedder.max_batch = 1
    held = memory.embedder.before = Held("text 0")
    add_all(memory.ev, KIND, *(f"text {n}" for n in range(20)))
    worker = memory.ev.worker(concurrency=1)
    with worker:
        assert held.reached.wait(PATIENCE)
        worker.stop(0.01)
    held.opened.set()
    for thread in threading.enumerate():
        if thread.name.startswith("evervec-call"):
            thread.join(PATIENCE)
    assert memory.embedder.texts == ["text 0"]


def test_complete_records_of_a_batch_are_written_while_others_are_embedded(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evervec.worker.worker, "_PROGRESS_SECONDS", 0.0)
    memory.embedder.max_batch = 1
    held = memory.embedder.before = Held("delta")
    add_all(memory.ev, KIND, "alpha", "beta", "alpha", "delta", "epsilon")
    with memory.ev.worker(concurrency=2):
        until(memory.ev, lambda: memory.ev.queue.stats().done == 4)
        assert job_of(memory.ev, "3").status is Status.PROCESSING
        held.opened.set()
        until(memory.ev, lambda: memory.ev.queue.stats().done == 5)
    texts = dict(enumerate(("alpha", "beta", "alpha", "delta", "epsilon")))
    assert_in_step(memory.ev, {str(n): text for n, text in texts.items()})
    assert len(memory.embedder.calls) == 4


def test_a_part_of_a_batch_is_paid_for_once(memory: World) -> None:
    """A text that records of two parts share costs the first of them."""
    memory.embedder.max_batch = 1
    add_all(memory.ev, KIND, paragraph("alpha"), "beta", long_text(2))
    memory.ev.add(KIND, paragraph("alpha") + "\n\n" + paragraph("gamma"), id="3")
    pipeline = memory.ev.pipeline
    batch, _ = pipeline.prepare(pipeline.claim(10))
    first, *others = pipeline.calls(batch)
    batch.take(pipeline.call(batch, first))
    batch.costs = [batch.costs[0]._replace(tokens=5)]
    (part,) = batch.split()
    assert [item.job.record_id for item in part.items] == ["0"]
    assert pipeline.write(part).succeeded == 1
    for rows in others:
        batch.take(pipeline.call(batch, rows))
        batch.costs[-1] = batch.costs[-1]._replace(tokens=7)
    assert pipeline.write(batch).succeeded == 3
    spent = [memory.ev.queue.history(KIND, str(n))[0].tokens for n in range(4)]
    assert spent == [5, 7, 14, 7]


def test_a_huge_record_does_not_keep_others_from_being_embedded(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fix_pace(memory.ev, monkeypatch, 60)
    huge = long_text(40)
    held = memory.embedder.before = Held(paragraph("long0"))
    memory.ev.add(KIND, huge, id="huge")
    add_all(memory.ev, KIND, *(f"text {n}" for n in range(20)))
    worker = memory.ev.worker(concurrency=1)
    with worker:
        assert held.reached.wait(PATIENCE)
        until(memory.ev, lambda: worker._calls._ordinary)
        held.opened.set()
        until(memory.ev, lambda: memory.ev.queue.stats().done == 21)
    first = next(n for n, call in enumerate(memory.embedder.calls) if call[0].startswith("text"))
    assert first <= 2, "they take turns"
    assert_in_step(memory.ev, {"huge": huge, **{str(n): f"text {n}" for n in range(20)}})


# an index that others write to


def test_while_the_index_is_busy_others_are_embedded_and_nothing_is_lost(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ev = memory.open(batch_size=5)
    memory.embedder.max_batch = 5
    apply, free = ev.index.apply, threading.Event()

    def busy(changes: Sequence[Change], conn: object = None) -> None:
        if not free.is_set():
            raise IndexBusy
        apply(changes, conn)

    monkeypatch.setattr(ev.index, "apply", busy)
    texts = {str(n): f"text {n}" for n in range(60)}
    add_all(ev, KIND, *texts.values())
    with ev.worker(concurrency=1):
        until(ev, lambda: len(memory.embedder.calls) == 4)
        assert ev.queue.stats().done == 0
        assert ev.queue.stats().processing <= 4 * 5 + 5
        free.set()
        until(ev, lambda: ev.queue.stats().done == 60)
    assert sorted(memory.embedder.texts) == sorted(texts.values())
    assert_in_step(ev, texts)


@pytest.mark.parametrize("away", [IndexBusy(), IndexUnavailable("away")])
def test_a_drain_does_not_wait_for_an_index_for_longer_than_its_deadline(
    memory: World, monkeypatch: pytest.MonkeyPatch, away: Exception
) -> None:
    reached = threading.Event()

    def busy(changes: Sequence[Change], conn: object = None) -> None:
        reached.set()
        raise away

    monkeypatch.setattr(memory.ev.index, "apply", busy)
    add_all(memory.ev, KIND, "alpha", "beta")
    worker = memory.ev.worker()
    with worker:
        assert reached.wait(PATIENCE)
        worker.stop(0.01)
    jobs = memory.ev.queue.jobs()
    assert {(job.status, job.attempts) for job in jobs} == {(Status.PENDING, 0)}
