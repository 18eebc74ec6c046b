"""Housekeeping: retention by the clock, the operators' log lines, alerts once an episode."""

import logging
from pathlib import Path

import pytest

from evervec.maintenance import housekeeping
from support.vectors import change
from support.world import DAY, KIND, World, add_all, assert_in_step, claim_one, fail_for_good, work


def sweep(world: World) -> bool:
    return world.ev._housekeeping.sweep()


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return found


def test_done_jobs_stay_for_seven_days(memory: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "evervec")
    add_all(memory.ev, KIND, "alpha", "beta")
    work(memory.ev)
    memory.clock.move(7 * DAY - 1)
    sweep(memory)
    assert memory.ev.queue.stats().done == 2
    assert len(memory.ev.queue.history(KIND, "0")) == 1
    memory.clock.move(2)
    caplog.clear()
    sweep(memory)
    assert "Cleaned up 2 done jobs" in caplog.text
    assert caplog.records[0].__dict__["count"] == 2
    assert memory.ev.queue.stats().done == 0
    assert memory.ev.queue.history(KIND, "0") == []
    assert_in_step(memory.ev, {"0": "alpha", "1": "beta"})


def test_what_one_sweep_cannot_drop_follows_batch_by_batch(
    memory: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "evervec")
    monkeypatch.setattr(housekeeping, "_BATCH", 2)
    monkeypatch.setattr(housekeeping, "_ROUNDS", 3)
    add_all(memory.ev, KIND, *"abcdefghijk")
    work(memory.ev)
    memory.clock.move(8 * DAY)
    caplog.clear()
    assert sweep(memory)
    keeper = memory.ev._housekeeping
    assert memory.ev.queue.stats().done == 5
    assert messages(caplog) == ["Cleaned up 6 done jobs"]
    done = []
    while keeper.has_more_to_drop:
        keeper.drop_more()
        done.append(memory.ev.queue.stats().done)
    assert done == [3, 1, 0, 0]
    assert messages(caplog) == ["Cleaned up 5 done jobs"]
    assert memory.ev.queue.history(KIND, "9") == []


def test_a_worker_drops_the_rest_between_sweeps_and_rests_meanwhile(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "_BATCH", 2)
    monkeypatch.setattr(housekeeping, "_ROUNDS", 1)
    now = [100.0]
    monkeypatch.setattr("evervec.maintenance.housekeeping.time.monotonic", lambda: now[0])
    add_all(memory.ev, KIND, *"abcdef")
    work(memory.ev)
    memory.clock.move(8 * DAY)
    keeper = memory.ev._housekeeping
    drop = keeper.drop_more

    def drop_slowly() -> None:
        drop()
        now[0] += 1.0

    monkeypatch.setattr(keeper, "drop_more", drop_slowly)
    worker = memory.ev._upkeep()
    done = []
    for _ in range(7):
        worker.sweep()
        done.append(memory.ev.queue.stats().done)
        now[0] += 1.0
    assert done == [4, 2, 2, 2, 2, 0, 0]


def test_dead_letters_stay_for_seven_days_and_boxed_ones_for_good(
    memory: World, caplog: pytest.LogCaptureFixture
) -> None:
    memory.ev.add(KIND, "alpha", id="1")
    memory.ev.add(KIND, "beta", id="2", boxed=True)
    fail_for_good(memory.ev, "1")
    fail_for_good(memory.ev, "2")
    memory.clock.move(7 * DAY - 1)
    sweep(memory)
    assert memory.ev.queue.stats().failed == 2
    memory.clock.move(2)
    messages(caplog)
    sweep(memory)
    assert messages(caplog) == ["Cleaned up 1 dead letters"]
    assert [j.record_id for j in memory.ev.queue.failed()] == ["2"]


def test_waiting_jobs_stay_however_old(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha")
    memory.clock.move(1000 * DAY)
    sweep(memory)
    work(memory.ev)
    assert_in_step(memory.ev, {"0": "alpha"})


def test_traces_of_deleted_records_go_with_their_jobs(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha")
    work(memory.ev)
    memory.ev.delete(KIND, "0")
    work(memory.ev)
    memory.clock.move(8 * DAY)
    sweep(memory)
    (collection,) = memory.ev.store.versions.collections()
    assert memory.ev.store.records.expected(None, collection.version, 0, 10) == []


def test_nothing_to_sweep_says_nothing(memory: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "evervec")
    add_all(memory.ev, KIND, "alpha")
    work(memory.ev)
    caplog.clear()
    assert sweep(memory)
    assert messages(caplog) == []


def test_the_alert_comes_once_an_episode(memory: World, caplog: pytest.LogCaptureFixture) -> None:
    def fail(count: int, start: int) -> None:
        for n in range(start, start + count):
            memory.ev.add(KIND, f"text {n}", id=n)
            memory.ev.queue.fail(claim_one(memory.ev), "bad", permanent=True)

    def alerts() -> list[str]:
        sweep(memory)
        return [text for text in messages(caplog) if "ALERT" in text]

    fail(9, 0)
    assert alerts() == []
    fail(2, 9)
    assert alerts() == ["[ALERT] 11 failed jobs"]
    assert alerts() == []
    memory.ev.queue.retry_failed()
    assert alerts() == []
    fail(10, 0)
    assert alerts() == ["[ALERT] 10 failed jobs"]


def test_one_process_at_a_time_sweeps(shared_world: World) -> None:
    other = shared_world.open()
    other.queue.worker = "another:1"
    assert sweep(shared_world)
    assert not other._housekeeping.sweep()
    shared_world.clock.move(61)
    assert other._housekeeping.sweep()


def test_recovery_is_a_part_of_it(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha")
    claim_one(memory.ev)
    memory.clock.move(61)
    assert memory.ev._housekeeping.recover() == 1


def test_more_than_a_sweep_may_do_at_once_is_left_for_the_next(memory: World) -> None:
    list(memory.ev.add_many(KIND, ({"id": n, "text": "x"} for n in range(20_500))))
    while jobs := memory.ev.queue.claim(5000):
        memory.ev.queue.finish_many(jobs)
    memory.clock.move(8 * DAY)
    sweep(memory)
    assert 0 < memory.ev.queue.stats().done < 20_500
    sweep(memory)
    assert memory.ev.queue.stats().done == 0


def test_every_step_can_be_taken_by_itself(memory: World) -> None:
    """As a simulator does, which leads and follows nobody."""
    memory.ev.store.shared.lock("housekeeping", "somebody else", 100 * DAY)
    add_all(memory.ev, KIND, "alpha")
    work(memory.ev)
    memory.clock.move(8 * DAY)
    for step in memory.ev._housekeeping.steps:
        step()
    assert memory.ev.queue.stats().done == 0
    assert not sweep(memory)


def test_who_loses_the_lead_on_the_way_leaves_the_rest_to_his_follower(memory: World) -> None:
    housekeeping, store = memory.ev._housekeeping, memory.ev.store
    taken: list[str] = []

    def slow() -> None:
        taken.append("slow")
        memory.clock.move(61)
        assert store.shared.lock("housekeeping", "somebody else", 1000)

    housekeeping.steps = (slow, lambda: taken.append("the next"))
    assert not sweep(memory)
    assert taken == ["slow"]


def test_the_tombstones_of_an_index_stay_as_long_as_the_history(tmp_path: Path) -> None:
    world = World(("memory", "qdrant-memory"), tmp_path)
    ticket = world.ev.add(KIND, "alpha", id="1")
    work(world.ev)
    (collection,) = world.ev.store.versions.collections()
    (held,) = world.ev.index.held(collection.version, None, 0, None)
    world.ev.delete(KIND, "1")
    work(world.ev)
    late = change(collection.version, held.record, ticket.seq, ["alpha"])
    world.clock.move(7 * DAY - 1)
    sweep(world)
    world.ev.index.apply([late])
    assert world.ev.index.held(collection.version, None, 0, None) == []
    world.close()
