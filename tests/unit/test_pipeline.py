"""The stages of the pipeline, stepped one by one without threads."""

from collections.abc import Sequence

import pytest

from evervec import IndexUnavailable, InvalidInput, Job, ProviderUnavailable, RateLimited, Status
from evervec.embedders.base import PROBE
from evervec.model.records import Change
from evervec.worker.batch import Cost
from support.world import KIND, World, add_all, assert_in_step, job_of, paragraph, step, work


def claim(world: World, limit: int = 10) -> list[Job]:
    return list(world.ev.pipeline.claim(limit))


def test_the_stages_do_one_thing_each(memory: World) -> None:
    pipeline = memory.ev.pipeline
    add_all(memory.ev, KIND, "alpha", "beta")
    jobs = pipeline.claim(10)
    assert [j.status for j in jobs] == [Status.PROCESSING] * 2
    batch, rest = pipeline.prepare(jobs)
    assert list(rest) == []
    assert batch.texts == ["alpha", "beta"]
    assert memory.embedder.calls == []
    pipeline.embed(batch)
    assert memory.embedder.calls == [["alpha", "beta"]]
    assert sorted(batch.vectors) == [0, 1]
    assert memory.ev.verify().clean
    assert memory.ev.get(KIND, "0") is not None
    written = pipeline.write(batch)
    assert (written.succeeded, written.failed, written.lost) == (2, 0, 0)
    assert_in_step(memory.ev, {"0": "alpha", "1": "beta"})


def test_a_batch_embeds_a_text_that_many_records_share_once(memory: World) -> None:
    add_all(memory.ev, KIND, *["same"] * 5)
    work(memory.ev)
    assert memory.embedder.texts == ["same"]
    assert_in_step(memory.ev, {str(n): "same" for n in range(5)})


def test_texts_are_split_into_calls_of_the_embedders_size(memory: World) -> None:
    memory.embedder.max_batch = 3
    add_all(memory.ev, KIND, *(f"text {n}" for n in range(8)))
    batch, _ = memory.ev.pipeline.prepare(claim(memory))
    assert [list(rows) for rows in memory.ev.pipeline.calls(batch)] == [
        [0, 1, 2], [3, 4, 5], [6, 7],
    ]  # fmt: skip
    memory.ev.pipeline.embed(batch)
    assert [len(call) for call in memory.embedder.calls] == [3, 3, 2]


def test_what_memory_is_not_set_for_waits_for_a_later_call(memory: World) -> None:
    ev = memory.ev
    ev.pipeline.memory = 100
    add_all(ev, KIND, *("x" * 60 for _ in range(4)))
    jobs = claim(memory)
    batch, rest = ev.pipeline.prepare(jobs)
    assert [len(batch.items), len(rest)] == [1, 3]
    assert rest == jobs[1:]
    ev.pipeline.embed(batch)
    ev.pipeline.write(batch)
    step(ev, rest)
    assert ev.queue.stats().done == 4


def test_a_huge_record_gets_a_batch_of_its_own(memory: World) -> None:
    """Those that were claimed with it, of other tenants, do not wait for it."""
    pipeline, small = memory.ev.pipeline, memory.tenant("a small one")
    memory.ev.add(KIND, " ".join(f"word{n}" for n in range(40_000)), id="huge")
    for id in "ab":
        small.add(KIND, "alpha", id=id)
    jobs: Sequence[Job] = pipeline.claim(10)
    assert [job.record_id for job in jobs] == ["a", "huge", "b"]
    batches = []
    while jobs:
        batch, jobs = pipeline.prepare(jobs)
        batches.append([item.job.record_id for item in batch.items])
    assert ["huge"] in batches
    assert sorted(id for batch in batches for id in batch) == ["a", "b", "huge"]


def test_an_outage_spends_no_attempt_and_fills_no_dead_letters(memory: World) -> None:
    def away(_: object) -> None:
        raise ProviderUnavailable("no route to host")

    add_all(memory.ev, KIND, *(f"text {n}" for n in range(5)))
    memory.embedder.before = away
    for _ in range(20):
        written = step(memory.ev, claim(memory))
        assert (written.released, written.failed, written.retried) == (5, 0, 0)
    stats = memory.ev.queue.stats()
    assert (stats.pending, stats.failed) == (5, 0)
    job = job_of(memory.ev, "0")
    assert (job.attempts, job.error) == (0, "no route to host")
    assert memory.ev.queue.history(KIND, "0") == []
    memory.embedder.before = None
    assert work(memory.ev).succeeded == 0, "all workers leave it alone for a while"
    memory.clock.move(120)
    assert work(memory.ev).succeeded == 5
    assert job_of(memory.ev, "0").error is None


def test_an_outage_in_the_middle_of_a_batch_keeps_what_was_embedded(memory: World) -> None:
    memory.embedder.max_batch = 2
    add_all(memory.ev, KIND, *(f"text {n}" for n in range(6)))

    def later(texts: Sequence[str]) -> None:
        if "text 2" in texts:
            raise RateLimited(9)

    memory.embedder.before = later
    written = step(memory.ev, claim(memory))
    assert (written.succeeded, written.released) == (2, 4)
    memory.embedder.before = None
    memory.clock.move(12)
    work(memory.ev)
    assert sorted(set(memory.embedder.texts) - {PROBE}) == [f"text {n}" for n in range(6)]
    assert memory.ev.verify().clean


def test_a_batch_that_must_be_written_again_is_paid_for_once(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index that is away stops the write, and not the account."""
    spent: list[object] = []
    monkeypatch.setattr(memory.ev.provider, "record", lambda s: spent.extend(s.values()))
    memory.ev.add(KIND, "alpha", id="1")
    batch, _ = memory.ev.pipeline.prepare(claim(memory))
    memory.ev.pipeline.embed(batch)
    batch.costs = [Cost(range(1), 1, 7)]
    apply, tries = memory.ev.index.apply, iter([True])

    def away_once(changes: Sequence[Change], conn: object = None) -> None:
        if next(tries, False):
            raise IndexUnavailable
        apply(changes, conn)

    monkeypatch.setattr(memory.ev.index, "apply", away_once)
    with pytest.raises(IndexUnavailable):
        memory.ev.pipeline.write(batch)
    assert memory.ev.pipeline.write(batch).succeeded == 1
    assert len(spent) == 1
    (attempt,) = memory.ev.queue.history(KIND, "1")
    assert attempt.tokens == 7


def test_a_record_is_written_only_with_all_of_its_chunks(memory: World) -> None:
    memory.embedder.max_batch = 1
    parts = [paragraph(word) for word in ("alpha", "beta", "gamma")]
    memory.ev.add(KIND, "\n\n".join(parts), id="1")

    def later(texts: Sequence[str]) -> None:
        if parts[2] in texts:
            raise ProviderUnavailable

    memory.embedder.before = later
    assert step(memory.ev, claim(memory)).released == 1
    record = memory.ev.get(KIND, "1")
    assert record is not None
    assert not record.embedded
    memory.clock.move(120)
    assert not memory.ev.search("alpha", mode="semantic")


def test_a_poison_record_fails_alone(memory: World) -> None:
    def poison(texts: Sequence[str]) -> None:
        if "poison" in texts:
            raise ValueError("choked")

    memory.embedder.before = poison
    texts = [f"text {n}" for n in range(9)]
    add_all(memory.ev, KIND, *texts, "poison")
    written = step(memory.ev, claim(memory))
    assert (written.succeeded, written.retried, written.failed) == (9, 1, 0)
    (error,) = written.errors
    assert "choked" in error[1]
    job = job_of(memory.ev, "9")
    assert (job.status, job.attempts) == (Status.PENDING, 1)


def test_a_refused_text_is_a_dead_letter_at_once(memory: World) -> None:
    def refuse(texts: Sequence[str]) -> None:
        if "too long" in texts:
            raise InvalidInput([texts.index("too long")], "more than 512 tokens")

    memory.embedder.before = refuse
    add_all(memory.ev, KIND, "fine", "too long")
    written = step(memory.ev, claim(memory))
    assert (written.succeeded, written.failed) == (1, 1)
    job = job_of(memory.ev, "1")
    assert (job.status, job.attempts) == (Status.FAILED, 1)
    assert (job.error or "").startswith("more than 512 tokens")


def test_the_error_of_a_long_record_names_its_chunk(memory: World) -> None:
    parts = [paragraph(word) for word in ("alpha", "beta", "gamma")]

    def refuse(texts: Sequence[str]) -> None:
        if parts[1] in texts:
            raise InvalidInput([texts.index(parts[1])], "refused")

    memory.embedder.before = refuse
    memory.ev.add(KIND, "\n\n".join(parts), id="1")
    work(memory.ev)
    assert (job_of(memory.ev, "1").error or "").startswith("chunk 2 of 3")
    memory.ev.add(KIND, "\n\n".join(parts[:2]), id="2")
    work(memory.ev)
    assert (job_of(memory.ev, "2").error or "").startswith("chunk 2 of 2")


def test_failures_wait_longer_each_time_and_end_as_dead_letters(memory: World) -> None:
    def choke(texts: Sequence[str]) -> None:
        if "poison" in texts:
            raise ValueError("choked")

    memory.embedder.before = choke
    memory.ev.add(KIND, "poison", id="1", max_attempts=5)
    waits = []
    for _ in range(5):
        step(memory.ev, claim(memory))
        job = job_of(memory.ev, "1")
        waits.append(job.scheduled_for.timestamp() - memory.clock.now)
        memory.clock.move(max(waits[-1], 0) + 0.001)
    assert job_of(memory.ev, "1").status is Status.FAILED
    for n, wait in enumerate(waits[:4]):
        assert 0.8 * 2**n <= wait <= 1.2 * 2**n


def test_a_cancelled_job_in_a_batch_does_not_disturb_the_others(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha", "beta")
    jobs = claim(memory)
    memory.clock.move(61)
    memory.ev.queue.recover_stuck()
    memory.ev.queue.cancel(jobs[0].job_id)
    assert memory.ev.pipeline.prepare(jobs)[0].gone == [jobs[0]]
    written = step(memory.ev, jobs)
    assert (written.succeeded, written.lost) == (0, 1)


def test_an_error_text_that_no_store_can_hold_does_not_stop_the_batch(memory: World) -> None:
    def choke(texts: Sequence[str]) -> None:
        if "poison" in texts:
            raise ValueError("half a pair: \ud800")

    memory.embedder.before = choke
    add_all(memory.ev, KIND, "alpha", "poison")
    written = step(memory.ev, claim(memory))
    assert (written.succeeded, written.retried) == (1, 1)


def test_without_an_embedder_nothing_is_claimed(memory: World) -> None:
    noop = memory.without_embedder()
    noop.add(KIND, "alpha", id="1")
    assert noop.pipeline.served.refresh() == []
    assert noop.pipeline.claim(10) == []


def test_no_transaction_is_open_across_a_provider_call(memory: World) -> None:
    def write(_: object) -> None:
        memory.ev.add(KIND, f"from inside {len(memory.embedder.calls)}", id="inside")

    memory.ev.add(KIND, "alpha", id="1")
    memory.embedder.before = write
    step(memory.ev, claim(memory))
    memory.embedder.before = None
    work(memory.ev)
    assert memory.ev.get(KIND, "inside") is not None


@pytest.mark.parametrize("op", ["box", "not json", "[]", "{}", '{"text": 7}', None])
def test_a_box_that_cannot_be_read_is_kept_and_reported(memory: World, op: str | None) -> None:
    memory.ev.add(KIND, "alpha", id="1", boxed=True)
    with memory.ev.store.db.writing(durable=True) as conn:  # type: ignore[attr-defined]
        conn.execute("update evervec_jobs set box = ?", (op,))
    memory.ev.add(KIND, "beta", id="2")
    work(memory.ev)
    assert job_of(memory.ev, "1").status is Status.FAILED
    assert "boxed record" in (job_of(memory.ev, "1").error or "")
    assert job_of(memory.ev, "2").status is Status.DONE


# the size of calls


def rows_of_calls(world: World) -> list[list[int]]:
    batch, _ = world.ev.pipeline.prepare(claim(world))
    return [list(rows) for rows in world.ev.pipeline.calls(batch)]


def test_a_call_has_no_more_tokens_than_the_embedder_takes(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory.embedder, "max_tokens", 4, raising=False)
    monkeypatch.setattr(memory.embedder, "count_tokens", lambda t: t.count("w"), raising=False)
    add_all(memory.ev, KIND, "wwwww0", "ww1", "ww2", "w3", "www4", "wwwww5", "w6")
    assert rows_of_calls(memory) == [[0], [1, 2], [3, 4], [5], [6]]


def test_the_first_call_is_counted_as_the_others(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory.embedder, "max_tokens", 4, raising=False)
    monkeypatch.setattr(memory.embedder, "count_tokens", lambda t: t.count("w"), raising=False)
    add_all(memory.ev, KIND, "ww1", "ww2", "w3")
    assert rows_of_calls(memory) == [[0, 1], [2]]


def test_a_call_may_be_just_as_long_as_the_provider_is_quick(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory.ev.provider.pace, "characters", 8)
    monkeypatch.setattr(memory.ev.pipeline, "memory", 1000)
    add_all(memory.ev, KIND, "aaaa", "bbbb", "cccc", "dddd", "eeeeeeeee", "f")
    monkeypatch.setattr(type(memory.ev.provider.pace), "of_batch", 1000)
    assert rows_of_calls(memory) == [[0, 1], [2, 3], [4], [5]]


def test_an_embedder_that_takes_no_text_at_once_gets_one(memory: World) -> None:
    memory.embedder.max_batch = 0
    add_all(memory.ev, KIND, "alpha", "beta")
    assert rows_of_calls(memory) == [[0], [1]]


# what is counted


def test_a_failure_of_one_who_lost_the_lease_counts_as_lost(memory: World) -> None:
    def choke(texts: Sequence[str]) -> None:
        if "poison" in texts:
            raise ValueError("choked")

    memory.embedder.before = choke
    add_all(memory.ev, KIND, "poison", "alpha")
    jobs = claim(memory)
    memory.clock.move(61)
    memory.ev.queue.recover_stuck()
    written = step(memory.ev, jobs)
    assert (written.lost, written.succeeded, written.retried, written.failed) == (2, 0, 0, 0)


def test_jobs_that_were_claimed_before_a_restart_can_be_prepared(file_world: World) -> None:
    """The process that prepares them has not claimed anything itself."""
    file_world.ev.add(KIND, paragraph("one"), id="1")
    jobs = file_world.ev.pipeline.claim(1)
    batch, rest = file_world.open().pipeline.prepare(jobs)
    assert (batch.jobs, rest) == (jobs, [])
