"""Jobs that fit a filter: listed newest first, counted before anything is done, changed together."""

from datetime import timedelta
from typing import Any

import pytest

from evervec import Evervec, InvalidArgument, JobFilter, Status
from evervec.model.failures import fingerprint
from support.world import KIND, World, add_all, claim_one, fail_for_good, work


def ids(ev: Evervec, before: int | None = None, limit: int = 100, **wanted: Any) -> list[str]:
    found = ev.queue.jobs_where(JobFilter(**wanted), before=before, limit=limit)
    return [job.record_id for job in found]


def fail_all(ev: Evervec, *errors: str) -> None:
    jobs = ev.queue.claim(len(errors))
    assert len(jobs) == len(errors)
    ev.queue.fail_many([(job, error, True) for job, error in zip(jobs, errors, strict=True)])


@pytest.fixture
def mixed(world: World) -> World:
    """Two records done, one failed, one in progress, two waiting; and one of another tenant."""
    ev = world.ev
    add_all(ev, KIND, "done", "done")
    work(ev)
    ev.add(KIND, "text", id="bad")
    fail_all(ev, "OpenAI rejected 7")
    ev.add(KIND, "text", id="held")
    claim_one(ev)
    world.clock.move(100)
    ev.add(KIND, "text", id="wait-1")
    ev.add("page", "text", id="wait-2")
    ev.of("other").add(KIND, "text", id="theirs")
    return world


def test_without_conditions_all_jobs_are_listed_newest_first(mixed: World) -> None:
    assert ids(mixed.ev) == ["wait-2", "wait-1", "held", "bad", "1", "0"]
    everyone = mixed.ev.queue_of(None).jobs_where(JobFilter())
    assert [job.record_id for job in everyone][:2] == ["theirs", "wait-2"]
    assert ids(mixed.ev.of("other")) == ["theirs"]
    assert ids(mixed.ev.of("nobody")) == []


def test_pages_continue_before_the_last_job(mixed: World) -> None:
    first = mixed.ev.queue.jobs_where(JobFilter(), limit=4)
    assert [job.record_id for job in first] == ["wait-2", "wait-1", "held", "bad"]
    assert ids(mixed.ev, before=first[-1].job_id) == ["1", "0"]
    assert ids(mixed.ev, before=first[0].job_id, status="pending") == ["wait-1"]


CONDITIONS: list[tuple[dict[str, Any], list[str]]] = [
    ({"status": "pending"}, ["wait-2", "wait-1"]),
    ({"status": ["done", "failed"]}, ["bad", "1", "0"]),
    ({"status": ("processing",)}, ["held"]),
    ({"kind": "page"}, ["wait-2"]),
    ({"kind": "nothing"}, []),
    ({"prefix": "wait"}, ["wait-2", "wait-1"]),
    ({"prefix": "wait%"}, []),
    ({"prefix": "wait", "kind": KIND}, ["wait-1"]),
    ({"prefix": "0"}, ["0"]),
    ({"error": "openai REJECTED"}, ["bad"]),
    ({"error": "%"}, []),
    ({"error": "o_enai"}, []),
    ({"worker": "nobody"}, []),
    ({"older_than": 50}, ["held", "bad", "1", "0"]),
    ({"newer_than": timedelta(seconds=50)}, ["wait-2", "wait-1"]),
    ({"older_than": 50, "newer_than": 50}, []),
]


def test_each_condition_has_to_be_met(mixed: World) -> None:
    for wanted, found in CONDITIONS:
        assert ids(mixed.ev, **wanted) == found, wanted


def test_jobs_are_found_by_their_worker_and_by_their_group(mixed: World) -> None:
    assert "held" in ids(mixed.ev, worker=mixed.ev.queue.worker)
    (bad,) = mixed.ev.queue.failed()
    alike = fingerprint(bad.kind, bad.embedding_version, "OpenAI rejected 8")
    assert ids(mixed.ev, fingerprint=alike) == ["bad"]
    assert ids(mixed.ev, fingerprint=alike, status="pending") == []
    assert ids(mixed.ev.of("other"), fingerprint=alike) == []


def test_failed_jobs_of_a_filter_are_retried_after_a_dry_run(world: World) -> None:
    add_all(world.ev, KIND, *"abcd")
    fail_all(world.ev, "timeout 1", "timeout 2", "broken")
    timeouts = JobFilter(error="timeout")
    assert world.ev.queue.retry_where(timeouts, dry_run=True) == 2
    assert world.ev.queue.stats().failed == 3
    assert world.ev.queue.retry_where(timeouts) == 2
    assert world.ev.queue.retry_where(timeouts) == 0
    stats = world.ev.queue.stats()
    assert (stats.failed, stats.pending) == (1, 3)
    assert work(world.ev).succeeded == 3
    assert world.ev.queue.retry_where(JobFilter(status="pending")) == 0


def test_a_group_of_failures_is_retried(world: World) -> None:
    add_all(world.ev, KIND, *"abc")
    fail_all(world.ev, "timeout after 1 s", "timeout after 2 s", "broken")
    world.ev.queue.recorder.flush()
    group = next(g for g in world.ev.failures() if g.open == 2)
    wanted = JobFilter(fingerprint=group.fingerprint)
    assert world.ev.queue.retry_where(wanted, dry_run=True) == 2
    assert world.ev.of("other").queue.retry_where(wanted) == 0
    assert world.ev.queue.retry_where(wanted) == 2
    assert [g.open for g in world.ev.failures() if g.fingerprint == group.fingerprint] == [0]


def test_pending_and_failed_jobs_of_a_filter_are_cancelled(mixed: World) -> None:
    every = JobFilter()
    assert mixed.ev.queue.cancel_where(every, dry_run=True) == 3
    assert mixed.ev.queue.cancel_where(JobFilter(kind=KIND)) == 2
    assert ids(mixed.ev) == ["wait-2", "held", "1", "0"]
    assert mixed.ev.queue.cancel_where(every) == 1
    assert mixed.ev.queue.cancel_where(every) == 0
    assert ids(mixed.ev.of("other")) == ["theirs"]


def test_a_boxed_record_whose_job_is_cancelled_never_appears(world: World) -> None:
    world.ev.add(KIND, "text", id="1", boxed=True)
    assert world.ev.queue.cancel_where(JobFilter()) == 1
    assert world.ev.records() == []
    assert world.ev.store.tenants.records_in_all() == 0


def test_pending_jobs_of_a_filter_are_moved_to_the_front(mixed: World) -> None:
    last = JobFilter(prefix="wait-2")
    assert mixed.ev.queue.set_priority_where(last, 9, dry_run=True) == 1
    assert mixed.ev.queue.set_priority_where(last, 9) == 1
    assert mixed.ev.queue.set_priority_where(JobFilter(status="failed"), 9) == 0
    mixed.ev.of("other").queue.pause(own=True)
    assert claim_one(mixed.ev).record_id == "wait-2"


def test_many_jobs_are_changed_in_several_transactions(world: World) -> None:
    list(world.ev.add_many(KIND, ({"id": n, "text": "t"} for n in range(1200))))
    jobs = world.ev.queue.claim(1200)
    world.ev.queue.fail_many([(job, "bad", True) for job in jobs])
    assert world.ev.queue.retry_where(JobFilter(error="bad")) == 1200
    assert world.ev.queue.cancel_where(JobFilter(status="pending")) == 1200
    assert world.ev.queue.stats().pending == 0


def test_the_latest_done_jobs_are_found_behind_many_that_wait(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evervec.stores.sql.selection.SEARCHED", 5)
    add_all(world.ev, KIND, *"abc")
    work(world.ev)
    for n in range(10):
        world.ev.add(KIND, "waits", id=f"later {n}")
    found = world.ev.queue.jobs_where(JobFilter(status=("done",)))
    assert [job.status for job in found] == ["done"] * 3


def test_the_jobs_of_a_small_tenant_are_found_behind_those_of_a_large_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evervec.stores.sql.selection.SEARCHED", 5)
    small = world.ev.of("small")
    add_all(small, KIND, "a", "b")
    work(world.ev)
    small.add(KIND, "c", id="bad")
    fail_for_good(small, "bad")
    add_all(world.ev, KIND, *"abcdefghij")
    fail_all(world.ev, *(["bad"] * 8))
    work(world.ev)
    add_all(world.ev, "page", *"abcdefghij")
    small.add(KIND, "d", id="new")
    assert ids(small) == ["new", "bad", "1", "0"]
    assert ids(small, status="failed") == ["bad"]
    assert len(ids(world.ev, status="failed")) == 5


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        ({"status": "open"}, "unknown status"),
        ({"status": 7}, "unknown status"),
        ({"kind": ""}, "kind must be"),
        ({"prefix": "x" * 1001}, "prefix must be"),
        ({"error": "a\0b"}, "error must be"),
        ({"worker": "\ud800"}, "not valid Unicode"),
        ({"older_than": -1}, "older_than must be"),
        ({"newer_than": "1h"}, "newer_than must be"),
    ],
)
def test_a_wrong_filter_is_refused(wanted: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        JobFilter(**wanted)


def test_only_a_filter_selects_jobs(memory: World) -> None:
    with pytest.raises(InvalidArgument, match="JobFilter"):
        memory.ev.queue.retry_where({"kind": KIND})  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="limit"):
        memory.ev.queue.jobs_where(JobFilter(), limit=0)
    with pytest.raises(InvalidArgument, match="before"):
        memory.ev.queue.jobs_where(JobFilter(), before=-1)
    assert JobFilter(status="failed").statuses == (Status.FAILED,)


def test_several_groups_of_failures_are_found_together(world: World) -> None:
    add_all(world.ev, KIND, "a", "b", "c")
    errors = ["one thing", "another thing", "a third thing"]
    for job, error in zip(world.ev.queue.claim(3), errors, strict=True):
        world.ev.queue.fail(job, error, permanent=True)
    world.ev.queue.recorder.flush()
    known = {group.message: group.fingerprint for group in world.ev.failures()}
    both = f"{known['one thing']}, {known['another thing']},{known['one thing']}"
    found = world.ev.queue.jobs_where(JobFilter(fingerprint=both))
    assert sorted(job.error or "" for job in found) == ["another thing", "one thing"]
    assert world.ev.queue.retry_where(JobFilter(fingerprint=both)) == 2
    assert [job.error for job in world.ev.queue.failed()] == ["a third thing"]
    assert world.ev.queue.jobs_where(JobFilter(fingerprint=" ,")) == []
