"""A claim does not walk over a paused tenant's jobs each time."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from evervec.stores.sql import fronts
from evervec.stores.sqlite import SqliteStore
from support.world import KIND, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(("sqlite", "sqlite"), tmp_path)
    yield made
    made.close()


def steps_of_a_claim(world: World) -> int:
    """What it asks of SQLite, in hundreds of its virtual machine's instructions."""
    assert isinstance(world.ev.store, SqliteStore)
    seen: list[int] = []

    def watch(conn: sqlite3.Connection, every: int) -> None:
        conn.set_progress_handler((lambda: seen.append(1)) if every else None, every)

    with world.ev.store.db.writing(durable=False) as writer:
        watch(writer, 100)
    assert len(world.ev.queue.claim(10)) == 10
    with world.ev.store.db.writing(durable=False) as writer:
        watch(writer, 0)
    return len(seen)


def test_claims_stay_flat_beside_many_jobs_of_a_paused_tenant(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fronts, "_SHARE", 1e9)
    ev, other = world.ev, world.tenant("other")
    other.queue.enqueue_many(KIND, range(30))
    usual = max(steps_of_a_claim(world) for _ in range(3))
    ev.queue.enqueue_many(KIND, range(5_000))
    ev.queue.pause(own=True)
    world.clock.move(60)
    other.queue.enqueue_many(KIND, range(100, 160))
    monkeypatch.setattr(fronts, "SLOW", float("inf"))  # nothing is remembered
    assert steps_of_a_claim(world) > 5 * usual
    monkeypatch.setattr(fronts, "SLOW", 0.0)
    assert max(steps_of_a_claim(world) for _ in range(5)) < 2 * usual
