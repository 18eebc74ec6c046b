"""Sketches in the store's file: whatever happened since they were written, a search is right."""

import logging
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import evervec.indexes.matrix as matrices
from evervec import Evervec
from evervec.indexes import blocks, sketch_parts
from evervec.indexes.base import Query
from evervec.indexes.sketch_parts import Part
from support.engines import APART_PAIRS, OWN_PAIRS
from support.seeds import some_of
from support.vectors import vector
from support.world import DAY, KIND, World, work

PAIRS = [pair for pair in OWN_PAIRS if pair not in APART_PAIRS and pair[0] != "postgres"]
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta")


@pytest.fixture(params=PAIRS, ids=["-".join(pair) for pair in PAIRS])
def world(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    """A store in which every collection is a large one, of parts of eight points."""
    monkeypatch.setattr(matrices, "_MANY", 1)
    monkeypatch.setattr(sketch_parts, "ROWS", 8)
    monkeypatch.setattr(blocks, "_VECTORS_SHARE", 1 << 40)
    world = World(request.param, tmp_path)
    yield world
    world.close()


def reopened(world: World) -> Evervec:
    """The store as another process sees it, or this one after a restart."""
    if world.store_name == "memory":
        world.ev.index.close()  # what it held is gone
        return world.ev
    if world.store_name == "duckdb":
        world.ev.close()
    world.ev = world.open()
    return world.ev


def version_of(ev: Evervec) -> int:
    (found,) = [c.version for c in ev.store.versions.collections() if c.kind == KIND]
    return found


def parts_of(world: World) -> int:
    with world.ev.index._db.reading() as conn:  # type: ignore[attr-defined]
        found: int = conn.execute("select count(*) from evervec_sketches").fetchone()[0]
    return found


def check(ev: Evervec, truth: dict[str, str]) -> None:
    """A search finds all records with the scores of their texts."""
    asked = vector("alpha zeta")
    matches = ev.index.search(Query(version_of(ev), ev.tenant, asked, 1000))
    ids = {number: r.id for number, r in ev.store.records.found(list(matches.records)).items()}
    found = {ids[m.record]: m.similarity for m in matches}
    assert found.keys() == truth.keys()
    for id, text in truth.items():
        assert found[id] == pytest.approx(float(vector(text) @ asked), abs=1e-5)
    # removed points are never found, because they cannot be read, but would displace others
    block = ev.index._blocks._blocks[version_of(ev), ev.tenant]  # type: ignore[attr-defined]
    assert len(block.matrix) == len(truth)


@pytest.mark.parametrize("seed", some_of(range(3), first=1))
def test_a_search_is_right_whatever_happened(world: World, seed: int) -> None:
    draw = random.Random(seed)
    truth: dict[str, str] = {}
    written = 0
    for _ in range(40):
        act = draw.choice(("add", "add", "delete", "maintain", "purge", "reopen", "search"))
        ev = world.ev
        if act == "add":
            new = {str(n): " ".join(draw.choices(WORDS, k=3)) for n in draw.sample(range(60), 12)}
            save(ev, new)
            truth |= new
        elif act == "delete" and truth:
            gone = draw.sample(sorted(truth), min(5, len(truth)))
            for key in gone:
                ev.delete(KIND, key)
                del truth[key]
            work(ev)
        elif act == "maintain":
            ev.index.maintain(0)
            written += parts_of(world)
        elif act == "purge":
            world.clock.move(DAY)
            ev.store.jobs.purge_history(world.clock.now)
        elif act == "reopen":
            reopened(world)
        elif act == "search" and truth:
            check(ev, truth)
    if truth:
        check(reopened(world), truth)
    assert written


def save(ev: Evervec, texts: dict[str, str]) -> None:
    list(ev.add_many(KIND, ({"id": id, "text": text} for id, text in texts.items())))
    work(ev)


def full(world: World) -> dict[str, str]:
    truth = {str(n): f"{WORDS[n % 8]} {WORDS[n // 8]}" for n in range(30)}
    save(world.ev, truth)
    world.ev.index.maintain(0)
    assert parts_of(world) == 3
    return truth


def test_only_what_has_no_sketch_is_read_when_a_process_begins(world: World) -> None:
    truth = full(world)
    ev = reopened(world)
    check(ev, truth)
    (block,) = ev.index._blocks._blocks.values()  # type: ignore[attr-defined]
    assert not block.matrix.keeps_vectors
    assert len(block.matrix) == 30


def test_vectors_too_few_for_a_part_are_not_read_by_maintenance(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs in every `process_all`. Deleted records have points without vectors."""
    truth = full(world)
    read: list[int] = []
    vectors_of_part = blocks.Blocks._vectors_of_part

    def counted(*given: object) -> object:
        read.append(1)
        return vectors_of_part(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(blocks.Blocks, "_vectors_of_part", counted)
    world.ev.index.maintain(0)
    assert not read
    for id in sorted(truth)[:4]:
        world.ev.delete(KIND, id)
        del truth[id]
    work(world.ev)
    for _ in range(3):
        world.ev.index.maintain(0)
    assert len(read) <= 1
    save(world.ev, new := {str(n): "iota kappa" for n in range(100, 108)})
    world.ev.index.maintain(0)
    assert parts_of(world) == 4
    check(reopened(world), truth | new)


def test_tenants_have_sketches_of_their_own(world: World) -> None:
    truth = full(world)
    other = world.tenant("other")
    theirs = {str(n): f"{WORDS[n % 8]} iota" for n in range(20)}
    save(other, theirs)
    other.index.maintain(0)
    assert parts_of(world) == 5
    check(reopened(world), truth)
    check(world.tenant("other"), theirs)


def test_damaged_sketches_are_not_used_and_are_made_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    truth = full(world)
    with world.ev.index._db.writing(durable=True) as conn:  # type: ignore[attr-defined]
        rows = conn.execute("select last, data from evervec_sketches order by last").fetchall()
        last, data = rows[1]
        broken = bytearray(data)
        broken[40] ^= 1
        mark = "?" if world.store_name != "duckdb" else "$1"
        other = "?" if world.store_name != "duckdb" else "$2"
        conn.execute(
            f"update evervec_sketches set data = {mark} where last = {other}",
            (bytes(broken), last),
        )
    ev = reopened(world)
    with caplog.at_level(logging.WARNING):
        check(ev, truth)
    assert "sketches" in caplog.text
    ev.index.maintain(0)
    caplog.clear()
    check(reopened(world), truth)
    assert parts_of(world) == 3
    assert not caplog.text


def test_the_sketches_of_a_dropped_version_are_dropped(world: World) -> None:
    full(world)
    world.ev.index.drop(version_of(world.ev))
    assert parts_of(world) == 0


def test_a_part_is_read_as_it_was_written() -> None:
    from evervec.indexes.sketch import Sketcher

    rows = np.random.default_rng(1).standard_normal((10, 13)).astype(np.float32)
    sketcher, numbers = Sketcher.of(rows), np.arange(10)
    part = Part(numbers, numbers + 5, sketcher.sketch(rows), sketcher.mean)
    packed = part.pack()
    read = Part.unpack(packed)
    assert read is not None
    assert read.pack() == packed
    for cut in (0, 10, 16, len(packed) - 1):
        assert Part.unpack(packed[:cut]) is None
    assert Part.unpack(b"evs2" + packed[4:]) is None
