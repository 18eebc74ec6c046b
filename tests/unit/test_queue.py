"""The queue's own part: what it checks, how it signs and what it passes on."""

import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from evervec import (
    InvalidArgument,
    InvalidRecord,
    Job,
    LeaseLost,
    Outcome,
    ProviderUnavailable,
    Status,
)
from evervec.queue.management import moment, worker_name
from evervec.queue.queue import Queue
from evervec.records.drafts import LONGEST_ID, LONGEST_NAME
from support.world import DAY, KIND, START, World, add_all, claim_one, fail_for_good, job_of, work


@pytest.fixture
def queue(memory: World) -> Queue:
    return memory.ev.queue


def refusal(call: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises((InvalidArgument, InvalidRecord)) as refused:
        call(*args, **kwargs)
    return str(refused.value)


def test_every_end_of_a_claim_is_signed(memory: World, queue: Queue) -> None:
    add_all(memory.ev, KIND, *"abc")
    jobs = queue.claim(3)
    assert {job.worker for job in jobs} == {queue.worker} == {worker_name()}
    queue.finish(jobs[0])
    assert queue.finish_many([jobs[1]]) == [True]
    queue.fail(jobs[2], "no")
    for job in jobs:
        (attempt,) = queue.history(KIND, job.record_id)
        assert attempt.worker == queue.worker


def test_options_reach_the_job(memory: World, queue: Queue) -> None:
    made = [
        queue.enqueue(KIND, 1, priority=5, delay=9.0, max_attempts=3),
        *queue.enqueue_many(KIND, [2], priority=5, delay=9.0, max_attempts=3),
    ]
    for result in made:
        assert result.is_new
        job = queue.get(result.job_id or 0)
        assert job is not None
        assert (job.priority, job.max_attempts) == (5, 3)
        assert job.scheduled_for.timestamp() == START + 9
    plain = queue.get(queue.enqueue(KIND, 3).job_id or 0)
    assert plain is not None
    assert (plain.priority, plain.scheduled_for.timestamp()) == (0, START)
    (many,) = queue.enqueue_many(KIND, [4])
    unasked = queue.get(many.job_id or 0)
    assert unasked is not None
    assert (unasked.priority, unasked.scheduled_for.timestamp()) == (0, START)


def test_bad_ids_are_told_at_their_places(queue: Queue) -> None:
    results = queue.enqueue_many(KIND, ["a", None, 7, "", "b"])  # type: ignore[list-item]
    assert [bool(result.job_id) for result in results] == [True, False, True, False, True]
    assert [result.is_new for result in results] == [True, False, True, False, True]
    assert results[1].error == "id: is missing"
    assert results[3].error == "id: is empty"
    assert [result.error for result in results[::2]] == [None] * 3
    assert queue.enqueue_many(KIND, []) == []
    only_bad = queue.enqueue_many(KIND, [None])  # type: ignore[list-item]
    assert [result.error for result in only_bad] == ["id: is missing"]


def test_names_and_numbers_are_checked_by_name(queue: Queue) -> None:
    long = "x" * (LONGEST_NAME + 1)
    for call in (queue.enqueue, queue.status, queue.history):
        assert refusal(call, long, "1").startswith("kind: has 257 bytes")
        assert refusal(call, KIND, None) == "id: is missing"
        assert refusal(call, KIND, "x" * (LONGEST_ID + 1)).startswith("id: has 2049 bytes")
    assert refusal(queue.enqueue_many, "", ["1"]) == "kind: is empty"
    assert refusal(queue.jobs, kind="").startswith("kind: ")
    assert refusal(queue.jobs, id="").startswith("id: ")
    assert queue.jobs(id="x" * LONGEST_ID) == []
    assert refusal(queue.jobs, id="x" * (LONGEST_ID + 1)).startswith("id: has 2049 bytes")
    assert refusal(queue.jobs, limit=0).startswith("limit must be")
    assert refusal(queue.jobs, after=-1).startswith("after must be a whole number from 0 to")
    assert queue.jobs(after=0) == queue.jobs(after=(1 << 63) - 1) == []
    assert refusal(queue.jobs, after=1 << 63).startswith("after must be")
    assert "choose one of pending, processing, done, failed" in refusal(queue.jobs, status="lost")
    for by_number in (queue.get, queue.retry, queue.cancel, lambda n: queue.set_priority(n, 1)):
        assert refusal(by_number, -1).startswith("a job's number must be a whole number from 0")
    assert queue.get(0) is None
    assert refusal(queue.set_priority, 0, None) == "priority must be a whole number, not None"
    assert refusal(queue.retry_failed, -1).startswith("max_retries must be")
    assert queue.retry_failed(0) == 0


def test_what_is_about_one_tenant_needs_one(memory: World) -> None:
    all_of_them = memory.ev.queue_of(None)
    wanted = "this needs a tenant: use the queue of one tenant"
    assert refusal(all_of_them.enqueue, KIND, 1) == wanted
    assert refusal(all_of_them.history, KIND, 1) == wanted


def test_jobs_are_found_by_all_that_is_asked(memory: World, queue: Queue) -> None:
    add_all(memory.ev, KIND, *"abc")
    memory.ev.add("other", "d", id="0")
    fail_for_good(memory.ev, "1")
    assert [(j.kind, j.record_id) for j in queue.jobs(status="failed")] == [(KIND, "1")]
    assert [j.record_id for j in queue.failed()] == ["1"]
    fail_for_good(memory.ev, "2")
    assert [j.record_id for j in queue.failed()] == ["2", "1"]
    assert [j.record_id for j in queue.failed(limit=1)] == ["2"]
    assert [(j.kind, j.record_id) for j in queue.jobs(id="0")] == [(KIND, "0"), ("other", "0")]
    assert [j.record_id for j in queue.jobs(kind="other")] == ["0"]
    everything = queue.jobs()
    assert len(everything) == 4
    assert queue.jobs(limit=2) == everything[:2]
    assert queue.jobs(after=everything[1].job_id) == everything[2:]
    found = queue.status(KIND, 0)
    assert found is not None
    assert (found.kind, found.record_id) == (KIND, "0")
    assert queue.status("other", 1) is None


def test_a_failure_waits_or_ends_and_says_so(
    memory: World, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    add_all(memory.ev, KIND, *"ab")
    first, second = queue.claim(2)
    lost = Job(**{**_fields(first), "token": "another"})
    with caplog.at_level(logging.INFO, "evervec"):
        ends = queue.fail_many([(first, "one", False), (second, "two", True), (lost, "x", False)])
    assert ends == [Status.PENDING, Status.FAILED, None]
    tried, dead = caplog.records
    assert tried.getMessage() == f"job {first.job_id} will be retried: one"
    assert dead.getMessage() == (
        f"Embedding failed permanently: {KIND} '{second.record_id}' after 1 attempts: two"
    )
    assert (job_of(memory.ev, first.record_id).error, queue.failed()[0].error) == ("one", "two")
    assert queue.history(KIND, second.record_id)[0].outcome is Outcome.FAILED


def _fields(job: Job) -> dict[str, Any]:
    return {name: getattr(job, name) for name in job.__dataclass_fields__}


def test_one_that_lost_its_lease_is_told_of_which_job(memory: World, queue: Queue) -> None:
    memory.ev.add(KIND, "alpha", id="1")
    job = claim_one(memory.ev)
    queue.release(job)
    for move in (queue.finish, queue.release, queue.renew, lambda j: queue.fail(j, "x")):
        with pytest.raises(LeaseLost, match=rf"token of job {job.job_id} \({KIND} '1'\)"):
            move(job)


def test_a_release_may_say_why_and_when(memory: World, queue: Queue) -> None:
    memory.ev.add(KIND, "alpha", id="1")
    assert queue.release_many([claim_one(memory.ev)]) == [True]
    assert job_of(memory.ev, "1").error is None
    assert queue.release_many([claim_one(memory.ev)], "away \ud800") == [True]
    assert job_of(memory.ev, "1").error == "away \\ud800"
    assert queue.postpone(claim_one(memory.ev), "no loader")
    job = job_of(memory.ev, "1")
    assert (job.error, job.scheduled_for.timestamp(), job.attempts) == ("no loader", START + 30, 0)
    assert queue.claim(1) == []


def test_purges_take_an_age_or_a_moment(memory: World, queue: Queue) -> None:
    assert moment(timedelta(seconds=5), lambda: 100.0) == 95.0
    assert moment(datetime.fromtimestamp(7, UTC), lambda: 100.0) == 7.0
    assert refusal(moment, 5, lambda: 0.0) == "older_than must be a timedelta or a datetime, not 5"
    add_all(memory.ev, KIND, *"ab")
    work(memory.ev)
    memory.ev.add(KIND, "c", id="2")
    fail_for_good(memory.ev, "2")
    memory.clock.move(DAY)
    assert queue.purge_done(timedelta(days=2)) == queue.purge_dead(timedelta(days=2)) == 0
    assert queue.purge_done(timedelta(hours=1)) == 2
    assert [job.record_id for job in queue.jobs()] == ["2"]
    assert queue.purge_dead(timedelta(hours=1)) == 1
    assert queue.jobs() == []


def test_stuck_jobs_are_counted_and_the_dead_among_them_told(
    memory: World, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    memory.ev.add(KIND, "alpha", id="1", max_attempts=1)
    add_all(memory.ev, "other", *"ab")
    other = memory.tenant("other")
    other.add(KIND, "beta", id="1")
    for _ in range(2):
        assert len(queue.claim(10)) >= 1
        memory.clock.move(61)
        assert queue.recover_stuck() >= 1
        while queue.claim(10):
            pass
        assert queue.recover_stuck(timedelta(seconds=30)) == 0
        memory.clock.move(31)
        queue.recover_stuck(timedelta(seconds=30))
    assert [record.levelname for record in caplog.records].count("ERROR") >= 1
    assert queue.failed()[0].error == "the worker did not finish attempt 2; the job was recovered"
    assert "attempts: the worker did not finish attempt 2; the job was recovered" in caplog.text


def test_a_pause_is_of_all_or_of_ones_own(memory: World, queue: Queue) -> None:
    other = memory.tenant("other")
    memory.ev.add(KIND, "alpha", id="1")
    other.add(KIND, "beta", id="2")
    queue.pause(own=True)
    assert [job.tenant for job in queue.claim(5)] == ["other"]
    queue.resume(own=True)
    queue.pause()
    assert queue.claim(5) == []
    queue.resume(own=True)
    assert queue.claim(5) == []
    queue.resume()
    assert [job.tenant for job in queue.claim(5)] == ["default"]


def test_content_is_all_that_a_boxed_record_holds(memory: World, queue: Queue) -> None:
    memory.ev.add(KIND, "alpha", id="1", title="T", metadata={"a": [1]}, weight=0.25, boxed=True)
    content = queue.content(claim_one(memory.ev))
    assert content is not None
    assert (content.title, content.text, content.weight) == ("T", "alpha", 0.25)
    assert content.metadata == {"a": [1]}
    assert content.draft is not None


def test_content_is_all_that_a_record_holds(memory: World, queue: Queue) -> None:
    memory.ev.add(KIND, "alpha", id="1", title="T", metadata={"a": [1]}, weight=0.25)
    content = queue.content(claim_one(memory.ev))
    assert content is not None
    assert (content.title, content.text, content.weight) == ("T", "alpha", 0.25)
    assert (content.metadata, content.draft) == ({"a": [1]}, None)


def test_many_ids_are_enqueued_in_batches_with_a_result_for_each(
    memory: World, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evervec.queue.queue._BATCH", 2)
    enqueue, sizes = memory.ev.store.changes.enqueue, []

    def counted(tenant: str, kind: str, ids: list[str], **how: Any) -> Any:
        sizes.append(len(ids))
        return enqueue(tenant, kind, ids, **how)

    monkeypatch.setattr(memory.ev.store.changes, "enqueue", counted)
    results = queue.enqueue_many(KIND, ["a", "", "b", "c", "d"])
    assert [bool(result.job_id) for result in results] == [True, False, True, True, True]
    jobs = [queue.get(result.job_id) for result in results if result.job_id]
    assert [job.record_id for job in jobs if job] == ["a", "b", "c", "d"]
    assert sizes == [1, 2, 1]


def test_a_tenant_sees_its_own_jobs_alone(memory: World, queue: Queue) -> None:
    memory.ev.add(KIND, "alpha", id="1")
    memory.tenant("other").add(KIND, "beta", id="2")
    assert [job.record_id for job in queue.jobs()] == ["1"]
    assert [job.record_id for job in memory.ev.queue_of(None).jobs()] == ["1", "2"]
    assert queue.status(KIND, "2") is None


def test_a_list_has_a_hundred_jobs_unless_more_are_asked_for(queue: Queue) -> None:
    queue.enqueue_many(KIND, range(101))
    assert len(queue.jobs()) == 100
    queue.fail_many([(job, "no", True) for job in queue.claim(101)])
    assert len(queue.failed()) == 100
    assert len(queue.failed(limit=200)) == 101


def test_stuck_jobs_are_taken_back_in_batches_and_counted_through_all_of_them(
    memory: World, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_all(memory.ev, KIND, *"abc")
    jobs = queue.claim(3)
    batches = [jobs[:2], jobs[2:], []]
    monkeypatch.setattr(memory.ev.store.leases, "recover", lambda **_: batches.pop(0))
    assert queue.recover_stuck() == 3


def test_stats_tell_why_a_provider_is_left_alone_and_what_was_spent(
    memory: World, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []

    def today(tenant: str | None) -> list[object]:
        asked.append(tenant)
        return []

    monkeypatch.setattr(memory.ev.models.spending, "today", today)

    def away(_: object) -> None:
        raise ProviderUnavailable("no route to host")

    assert queue.stats().gate is None
    memory.embedder.before = away
    memory.ev.add(KIND, "alpha", id="1")
    work(memory.ev)
    gate = queue.stats().gate
    assert gate is not None
    assert (gate.reason, queue.stats().in_flight) == ("no route to host", 0)
    memory.ev.provider.in_flight = 3
    assert memory.ev.queue_of(None).stats().in_flight == 3
    assert asked == ["default", "default", "default", None]


def test_the_content_of_a_job_that_is_done_is_that_of_its_record(memory: World) -> None:
    memory.ev.add(KIND, "alpha", id="1", title="A", metadata={"a": 1}, weight=0.5)
    job = job_of(memory.ev, "1")
    work(memory.ev)
    shown = memory.ev.queue.peek(job.job_id)
    assert shown is not None
    assert (shown.title, shown.text, shown.metadata, shown.weight) == ("A", "alpha", {"a": 1}, 0.5)


def test_content_that_cannot_be_read_is_told(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.ev.add(KIND, "alpha", id="1")
    job = job_of(memory.ev, "1")

    def unreadable(_: object) -> None:
        raise InvalidRecord("its box cannot be opened")

    monkeypatch.setattr(memory.ev.queue, "_content", unreadable)
    with pytest.raises(InvalidRecord, match="cannot be opened"):
        memory.ev.queue.peek(job.job_id)


def test_waits_are_spread_by_the_share_that_is_set(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = memory.ev.queue
    spread = replace(queue._settings, backoff_seconds=10, backoff_jitter=0.5, rng=Random(1))
    monkeypatch.setattr(queue, "_settings", spread)
    assert queue._backoff(1) == pytest.approx(10 * (1 + 0.5 * Random(1).uniform(-1, 1)))
