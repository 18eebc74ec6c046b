"""What a store did over time: counted by workers, kept in buckets that grow coarser, read at any
size."""

from datetime import UTC, datetime, timedelta

import pytest

from evervec import Evervec, HistoryPoint, InvalidArgument
from evervec.model.history import BOUNDS, DAY, HOUR, MOST_KINDS, STEPS, Counts, sum_points
from evervec.stores.base.history import BucketKey
from support.world import KIND, START, World, add_all, fail_for_good, work


def total(ev: Evervec, **options: object) -> HistoryPoint:
    found = sum_points(ev.history(**options))  # type: ignore[arg-type]
    assert found is not None
    return found


def flush(world: World) -> None:
    for ev in world.opened:
        ev.queue.recorder.flush()


def test_an_empty_store_has_an_hour_of_empty_points(world: World) -> None:
    points = world.ev.history()
    assert len(points) == 61
    assert points[-1].at == datetime.fromtimestamp(START // 60 * 60, UTC)
    assert {(p.seconds, p.done, p.depth, p.freshness_p50) for p in points} == {(60, 0, None, None)}


def test_work_is_counted_in_its_minute(world: World) -> None:
    add_all(world.ev, KIND, "a", "b", "c")
    world.clock.move(3)
    work(world.ev)
    world.clock.move(60)
    world.ev.add(KIND, "a", id="0", metadata={"new": 1})
    world.ev.delete(KIND, "1")
    work(world.ev)
    flush(world)
    *_, first, second = world.ev.history()
    assert (first.done, first.deleted, first.chunks_embedded, first.chunks_reused) == (3, 0, 3, 0)
    assert (second.done, second.deleted, second.chunks_embedded) == (2, 1, 0)
    assert second.chunks_reused == 1
    assert first.freshness[BOUNDS.index(5.0)] == 3
    assert first.freshness_p50 is not None
    assert first.freshness_p99 is not None
    assert 2.5 < first.freshness_p50 < first.freshness_p99 <= 5
    assert second.freshness[0] == 2


def test_failures_and_retries_are_counted(world: World) -> None:
    add_all(world.ev, KIND, "a", "b")
    fail_for_good(world.ev, "1")
    (job,) = world.ev.queue.claim(1)
    world.ev.queue.fail(job, "later")
    flush(world)
    found = total(world.ev)
    assert (found.done, found.failed, found.retried) == (0, 1, 1)


def test_jobs_finished_by_hand_and_jobs_of_dead_workers_are_counted(world: World) -> None:
    add_all(world.ev, KIND, "a", "b")
    first, _ = world.ev.queue.claim(2)
    world.ev.queue.finish(first)
    world.clock.move(world.ev.settings.lease_seconds + 1)
    assert world.ev.queue.recover_stuck() == 1
    flush(world)
    found = total(world.ev)
    assert (found.done, found.retried, found.failed) == (1, 1, 0)


def test_a_tenant_sees_its_own_and_admins_see_all(world: World) -> None:
    add_all(world.ev, KIND, "a", "b")
    add_all(world.ev.of("other"), KIND, "c")
    add_all(world.ev, "page", "d")
    work(world.ev)
    flush(world)
    assert total(world.ev).done == 3
    assert total(world.ev, kind=KIND).done == 2
    assert total(world.ev.of("other")).done == 1
    assert total(world.ev.of("nobody")).done == 0
    assert total(world.ev, all_tenants=True).done == 4
    assert total(world.ev, all_tenants=True, kind=KIND).done == 3


def test_counts_of_several_processes_add_up_and_outlive_them(world: World) -> None:
    add_all(world.ev, KIND, *"abcdef")
    lanes = range(3)
    for lane in lanes:
        minute = int(START) // 60 * 60
        world.ev.store.history.add({BucketKey(minute, "default", KIND): Counts(done=2)}, lane)
    assert total(world.ev).done == 2 * len(lanes)
    assert total(world.ev, all_tenants=True).done == 2 * len(lanes)


def test_a_worker_leaves_its_counts_in_the_store_when_it_ends(world: World) -> None:
    add_all(world.ev, KIND, "a", "b")
    world.ev.process_all()
    assert total(world.ev).done == 2


def test_the_depth_of_the_queue_is_sampled_and_the_most_is_kept(world: World) -> None:
    add_all(world.ev, KIND, *"abc")
    add_all(world.ev.of("other"), KIND, "d")
    world.ev.store.jobs.fold_counts()
    world.ev.store.history.sample_depths(10)
    world.ev.queue.finish_many(world.ev.queue.claim(2))
    world.ev.store.jobs.fold_counts()
    world.ev.store.history.sample_depths(10)
    assert world.ev.history()[-1].depth == 3
    assert world.ev.history(all_tenants=True)[-1].depth == 4
    assert world.ev.history(kind=KIND)[-1].depth is None
    assert world.ev.of("other").history()[-1].depth == 1


def test_only_the_deepest_tenants_are_sampled_one_by_one(world: World) -> None:
    add_all(world.ev, KIND, *"abc")
    add_all(world.ev.of("other"), KIND, "d")
    world.ev.store.jobs.fold_counts()
    world.ev.store.history.sample_depths(1)
    assert world.ev.history()[-1].depth == 3
    assert world.ev.of("other").history()[-1].depth is None
    assert world.ev.history(all_tenants=True)[-1].depth == 4


def test_a_tenant_with_very_many_kinds_has_few_rows(world: World) -> None:
    minute = int(START) // 60 * 60
    for part in range(4):
        counted = {
            BucketKey(minute, "default", f"kind {n}"): Counts(done=1)
            for n in range(30 * part, 30 * part + 30)
        }
        world.ev.store.history.add(counted)
    rows = world.ev.store.history.buckets("default", None, 60, minute, minute + 60)
    assert sum(bucket.counts.done for bucket in rows) == 120
    named = [n for n in range(120) if total(world.ev, kind=f"kind {n}").done]
    assert len(named) == MOST_KINDS
    assert total(world.ev).done == 120


def test_minutes_grow_coarser_with_age(world: World) -> None:
    add_all(world.ev, KIND, "a")
    work(world.ev)
    flush(world)
    world.clock.move(5 * HOUR)
    purge(world)
    with pytest.raises(InvalidArgument, match="no longer has steps of 60 s"):
        world.ev.history(since=timedelta(hours=6), step=60)
    assert total(world.ev, since=timedelta(hours=6)).done == 1
    assert total(world.ev, since=6 * HOUR, step=timedelta(minutes=30)).done == 1
    world.clock.move(10 * DAY)
    purge(world)
    assert total(world.ev, since=timedelta(days=30)).done == 1
    assert total(world.ev, since=timedelta(days=30), step=DAY).done == 1
    world.clock.move(90 * DAY)
    purge(world)
    assert total(world.ev, since=timedelta(days=92)).done == 0
    assert world.ev.store.history.buckets("default", None, HOUR, 0, 1 << 40) == []


def purge(world: World) -> None:
    while world.ev.store.history.purge():
        pass


def test_purging_leaves_what_is_still_kept(world: World) -> None:
    minutes = [int(START) // HOUR * HOUR - n * HOUR for n in range(60)]
    for minute in minutes:
        world.ev.store.history.add({BucketKey(minute, "default", KIND): Counts(done=1)})
    purge(world)
    for step, kept in STEPS.items():
        found = world.ev.store.history.buckets("default", None, step, 0, 1 << 40)
        assert len(found) == sum(START - minute <= kept for minute in minutes)


def test_a_step_is_chosen_that_is_kept_for_so_long(world: World) -> None:
    for hours, step in ((1, 60), (3, 60), (6, 600), (47, 600), (49, HOUR), (90 * 24, HOUR)):
        assert world.ev.history(since=timedelta(hours=hours))[0].seconds == step


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"since": -5}, "within the last 92 days"),
        ({"since": timedelta(days=93)}, "within the last 92 days"),
        ({"since": "1h"}, "since must be a number"),
        ({"step": 90}, "whole minutes"),
        ({"step": 0}, "whole minutes"),
        ({"step": "1h"}, "step must be a number"),
        ({"kind": ""}, "kind"),
        ({"since": 2 * DAY + 5, "step": 600}, "no longer has steps of 600 s"),
    ],
)
def test_wrong_arguments_are_refused(
    memory: World, options: dict[str, object], problem: str
) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        memory.ev.history(**options)  # type: ignore[arg-type]
