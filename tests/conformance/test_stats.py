"""Stats and embedding versions: the queue at a glance."""

from support.world import KIND, START, World, add_all, claim_one, step, work


def test_an_empty_store_has_nothing_to_count(world: World) -> None:
    stats = world.ev.queue.stats()
    assert (stats.pending, stats.processing, stats.done, stats.failed) == (0, 0, 0, 0)
    assert (stats.in_flight, stats.unique_records, stats.paused) == (0, 0, False)
    assert stats.oldest_pending_seconds is None
    assert stats.average_processing_ms is None
    assert stats.last_processed_at is None
    assert world.ev.versions() == []


def test_each_job_counts_in_its_status(world: World) -> None:
    add_all(world.ev, KIND, *"abcdefghij")
    jobs = world.ev.queue.claim(6)
    world.ev.queue.finish_many(jobs[:3])
    world.ev.queue.fail_many([(j, "no", True) for j in jobs[3:5]])
    stats = world.ev.queue.stats()
    assert (stats.pending, stats.processing, stats.done, stats.failed) == (4, 1, 3, 2)
    assert stats.unique_records == 5
    assert world.ev.store.jobs.failed_count() == 2


def test_stats_of_all_tenants_add_up(world: World) -> None:
    add_all(world.ev, KIND, "a", "b")
    add_all(world.tenant("other"), KIND, "c")
    assert world.ev.store.jobs.stats(None).pending == 3


def test_the_oldest_waiting_job_is_told_by_its_age(world: World) -> None:
    world.ev.add(KIND, "a", id="1")
    world.clock.move(30)
    world.ev.add(KIND, "b", id="2")
    assert world.ev.queue.stats().oldest_pending_seconds == 30
    claim_one(world.ev)
    assert world.ev.queue.stats().oldest_pending_seconds == 0


def test_a_job_scheduled_for_later_is_not_old(world: World) -> None:
    world.ev.add(KIND, "a", id="1", delay=60)
    assert world.ev.queue.stats().oldest_pending_seconds == 0


def test_pace_and_last_moment_come_from_what_was_done(world: World) -> None:
    for seconds in (1, 3):
        world.ev.add(KIND, f"text {seconds}", id=seconds)
        jobs = world.ev.pipeline.claim(1)
        world.clock.move(seconds)
        step(world.ev, jobs)
    stats = world.ev.queue.stats()
    assert stats.average_processing_ms == 2000
    assert stats.last_processed_at is not None
    assert stats.last_processed_at.timestamp() == START + 4


def test_versions_name_the_model_and_count_its_records(world: World) -> None:
    add_all(world.ev, "a", "one", "two")
    add_all(world.ev, "b", "three")
    work(world.ev)
    world.ev.delete("a", "0")
    world.clock.move(9)
    work(world.ev)
    found = {v.kind: v for v in world.ev.versions()}
    assert {kind: v.items for kind, v in found.items()} == {"a": 1, "b": 1}
    for version in found.values():
        assert (version.provider, version.model) == ("hashing", "hashing-64")
        assert (version.name, version.dimensions) == ("hashing-64", 64)
        assert version.state == "serving"
        assert version.created_at is not None
        assert version.created_at.timestamp() == START
        (number,) = [
            c.version for c in world.ev.store.versions.collections() if c.kind == version.kind
        ]
        own = f"evervec.points_{number}" if world.index_name == "pgvector" else "evervec_points"
        assert version.table == own
    synced = found["a"].last_sync_at
    assert synced is not None
    assert synced.timestamp() == START + 9


def test_a_version_is_adopted_by_the_first_embedder_that_comes(world: World) -> None:
    noop = world.without_embedder()
    noop.add(KIND, "alpha", id="1")
    assert [c.spec for c in world.ev.store.versions.collections()] == [None]
    work(world.ev)
    (collection,) = world.ev.store.versions.collections()
    assert collection.spec is not None
    assert collection.spec.model == "hashing-64"
