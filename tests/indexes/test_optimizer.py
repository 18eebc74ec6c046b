"""The embedded Qdrant engine is optimised in a copy, by another process, beside the work."""

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evervec.indexes.base import Query
from evervec.indexes.qdrant import edge_shard, optimizer
from evervec.indexes.qdrant.edge import EdgeEngine
from indexes.conftest import Make
from indexes.test_races import RECORD, SEQ, version_of
from support.vectors import change, vector
from support.world import World

NAME = "evervec_hashing-64"
MANY = 50


@pytest.fixture
def world(make: Make, monkeypatch: pytest.MonkeyPatch) -> World:
    """A collection with points that are due."""
    monkeypatch.setattr(edge_shard, "_LEAST", 10)
    made = make("qdrant-edge")
    apply(made, range(MANY))
    return made


def apply(world: World, records: range, seq: int = SEQ, text: str = "word {}") -> None:
    version = version_of(world)
    world.ev.index.apply([change(version, RECORD + n, seq, [text.format(n)]) for n in records])


def engine_of(world: World) -> EdgeEngine:
    engine: EdgeEngine = world.ev.index._engine  # type: ignore[attr-defined]
    return engine


def maintain(world: World) -> None:
    """Two looks: a collection that is being filled is not due."""
    world.ev.index.maintain(0)
    world.ev.index.maintain(0)


def held(world: World) -> dict[int, int]:
    return {h.record: h.seq for h in world.ev.index.held(version_of(world), None, 0, None)}


def folders(world: World) -> set[str]:
    return {path.name for path in (world.folder / "edge").iterdir()}


class Held:
    """An optimisation that waits until the test lets it go on."""

    def __init__(self, engine: EdgeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        run = engine.optimizer._run

        def waits(folder: Path, is_useless: Callable[[], bool]) -> None:
            self.begun.set()
            assert self.go.wait(60)
            run(folder, is_useless)

        monkeypatch.setattr(engine.optimizer, "_run", waits)


def test_the_copy_takes_the_place_of_the_folder(world: World) -> None:
    engine, before = engine_of(world), held(world)
    inode = (world.folder / "edge" / NAME).stat().st_ino
    maintain(world)
    engine.optimizer.wait()
    assert (world.folder / "edge" / NAME).stat().st_ino != inode
    assert folders(world) == {NAME}
    assert held(world) == before
    found = world.ev.index.search(Query(version_of(world), "default", vector("word 7"), 1))
    assert np.isclose(found.scores[0], 1.0, atol=1e-3)


def test_a_large_segment_gets_an_hnsw_index(tmp_path: Path) -> None:
    import qdrant_edge as edge

    size = edge.EdgeVectorParams(size=64, distance=edge.Distance.Cosine)
    small = edge.EdgeOptimizersConfig(indexing_threshold=10)
    shard = edge_shard.Shard(tmp_path / "s", edge.EdgeConfig(vectors=size, optimizers=small))
    rows = np.random.default_rng(1).standard_normal((500, 64)).astype(np.float32)
    points: list[Any] = [edge.Point(n + 1, row.tolist(), {}) for n, row in enumerate(rows)]
    shard.update(edge.UpdateOperation.upsert_points(points), len(points))
    assert optimizer.Optimizer(nullcontext).optimize(shard)
    info = shard.ask(lambda engine: engine.info())
    assert (info.points_count, info.indexed_vectors_count) == (500, 500)
    shard.close()


def test_what_is_written_meanwhile_is_in_the_copy_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, version = engine_of(world), version_of(world)
    optimization = Held(engine, monkeypatch)
    maintain(world)
    assert optimization.begun.wait(60)
    apply(world, range(5), SEQ + 1, "other {}")  # replaced
    apply(world, range(MANY, MANY + 5))  # new
    world.ev.index.apply([change(version, RECORD + 9, SEQ + 1)])  # removed
    points = world.ev.index.held(version, None, RECORD + 9, RECORD + 10)
    assert world.ev.index.remove(version, points) == 1
    expected = held(world)
    assert len(expected) == MANY + 5 - 2
    optimization.go.set()
    engine.optimizer.wait()
    assert folders(world) == {NAME}
    assert held(world) == expected
    apply(world, range(9, 10))  # late: its removal has a higher seq
    assert RECORD + 9 not in held(world)
    (hit,) = world.ev.index.search(Query(version, "default", vector("other 3"), 1))
    assert np.isclose(hit.similarity, 1.0, atol=1e-3)


def test_too_much_written_meanwhile_postpones_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(world)
    monkeypatch.setattr(edge_shard, "_LONGEST_JOURNAL", 3)
    optimization = Held(engine, monkeypatch)
    maintain(world)
    assert optimization.begun.wait(60)
    apply(world, range(MANY, MANY + 5))
    expected = held(world)
    optimization.go.set()
    engine.optimizer.wait()
    assert folders(world) == {NAME}
    assert held(world) == expected
    shard = engine._shards[NAME]
    shard.check_writes()
    apply(world, range(MANY + 5, MANY + 15))
    assert not shard.check_writes(), "10 writes were few before, and are too many after a vain copy"
    assert shard.check_writes()


def test_a_process_whose_copy_became_useless_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizer, "_LOOK", 0.01)
    command = [sys.executable, "-c", "import threading; threading.Event().wait()"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert optimizer._output(process, lambda: True) == b""
    assert process.returncode < 0


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells a process of its parent's end"
)
def test_the_process_ends_with_the_one_that_started_it() -> None:
    child = (
        "import os, sys, threading; from evervec.indexes.qdrant.optimizer import end_with; "
        "end_with(int(sys.argv[1])); print('ready', flush=True); threading.Event().wait()"
    )
    parent = (
        "import os, subprocess, sys, threading; "
        "subprocess.Popen([sys.executable, '-c', sys.argv[1], str(os.getpid())]); "
        "threading.Event().wait()"
    )
    command = [sys.executable, "-c", parent, child]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.kill()
        assert process.stdout.read() == b""  # ends when the last process that could write has ended


def test_a_collection_that_is_being_filled_is_left_alone(world: World) -> None:
    engine = engine_of(world)
    for turn in range(1, 4):
        apply(world, range(turn * MANY, (turn + 1) * MANY))
        world.ev.index.maintain(0)
        assert engine.optimizer._thread is None


@pytest.mark.parametrize("step", ["copied", "old", "replaced"])
def test_a_process_that_died_in_between_leaves_every_point(world: World, step: str) -> None:
    expected, folder, version = held(world), world.folder / "edge" / NAME, version_of(world)
    world.ev.close()
    beside = folder.with_name(f"{NAME}%copy-1-1")
    shutil.copytree(folder, beside)
    if step != "copied":
        folder.rename(folder.with_name(f"{NAME}%old"))
    if step == "replaced":
        beside.rename(folder)
    other = world.open()
    points = other.index.held(version, None, 0, None)
    assert {h.record: h.seq for h in points} == expected
    assert folders(world) == {NAME}


def test_dropping_and_closing_do_not_wait_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(world)
    optimization = Held(engine, monkeypatch)
    maintain(world)
    assert optimization.begun.wait(60)
    world.ev.index.drop(version_of(world))
    assert NAME not in folders(world)
    optimization.go.set()
    engine.optimizer.wait()
    assert folders(world) == set()


def test_a_process_that_fails_leaves_the_folder_alone(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine, expected = engine_of(world), held(world)
    run = engine.optimizer._run

    def fails(folder: Path, is_useless: Callable[[], bool]) -> None:
        shutil.rmtree(folder)
        run(folder, is_useless)

    monkeypatch.setattr(engine.optimizer, "_run", fails)
    maintain(world)
    engine.optimizer.wait()
    assert "is postponed" in caplog.text
    assert held(world) == expected
    assert folders(world) == {NAME}
