"""The disk is full during an add, a finish and a schema upgrade."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from evervec import Evervec, StoreError, open
from evervec.embedders.hashing import HashingEmbedder
from support.fault_checks import assert_true_to, open_store, settle
from support.fault_disk import Disk, mounts, small_disk
from support.places import Place, contents, integrity, query
from support.process_worker import DIMENSIONS
from support.processes import until

FULL = "disk is full"


def long_text(n: int) -> str:
    """Some pages of it, so that it cannot be saved in what little is left."""
    return f"note {n}: " + " ".join(f"word{n}x{i}" for i in range(1500))


NOTES = {str(n): long_text(n) for n in range(4)}


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk", monkeypatch) as made:
        yield made


@pytest.fixture(params=["sqlite", *(["duckdb"] if mounts() else [])])
def engine(request: pytest.FixtureRequest) -> str:
    """Without a real disk only SQLite can be told that it is full."""
    return str(request.param)


@pytest.fixture
def path(disk: Disk, engine: str) -> Place:
    return place_for(engine, disk.folder / "notes.db")


def place_for(engine: str, file: Path) -> Place:
    return file if engine == "sqlite" else f"duckdb:///{file}"


@pytest.fixture
def ev(path: Place) -> Iterator[Evervec]:
    with open_store(path, backoff_seconds=0.05) as opened:
        yield opened


def add_all(ev: Evervec) -> None:
    for id, text in NOTES.items():
        ev.add("note", text, id=id)


def test_an_add_on_a_full_disk_is_a_clear_error_and_leaves_nothing_behind(
    ev: Evervec, path: Place, disk: Disk
) -> None:
    """What was saved before is still there and found; with space again, work resumes."""
    add_all(ev)
    settle(ev)
    before = contents(path)
    disk.fill()
    for n in range(3):
        with pytest.raises(StoreError, match=FULL):
            ev.add("note", long_text(10 + n), id="new")
    with pytest.raises(StoreError, match=FULL):
        ev.add("note", long_text(20), id="0")
    assert contents(path) == before
    assert integrity(path) == "ok"
    assert ev.get("note", "new") is None
    assert_true_to(ev, path, NOTES)

    disk.clear()
    ev.add("note", long_text(10), id="new")
    settle(ev)
    assert_true_to(ev, path, {**NOTES, "new": long_text(10)})


def test_of_many_adds_exactly_those_with_a_ticket_are_saved(path: Place, disk: Disk) -> None:
    """The disk fills up in the middle of `add_many`."""
    with open_store(path, add_batch=5) as ev:
        add_all(ev)
        settle(ev)
        disk.fill(leave=600_000)
        records = ({"id": n, "text": long_text(n)} for n in range(500))
        saved: list[str] = []
        with pytest.raises(StoreError, match=FULL):
            saved.extend(ticket.id for ticket in ev.add_many("more", records))
        assert 0 < len(saved) < 500
        there = query(path, "select id from evervec_records where kind = 'more'")
        assert sorted(id for (id,) in there) == sorted(saved)
        assert integrity(path) == "ok"
        disk.clear()
        settle(ev)
        assert ev.verify().clean
        assert ev.verify().checked == len(NOTES) + len(saved)


def test_a_finish_on_a_full_disk_is_a_clear_error_and_can_be_repeated(
    ev: Evervec, path: Place, disk: Disk
) -> None:
    """Points, ledger and job stay as they were, and the same finish works when there is space."""
    add_all(ev)
    batch, _ = ev.pipeline.prepare(ev.pipeline.claim(10))
    ev.pipeline.embed(batch)
    before = contents(path)
    disk.fill()
    for _ in range(3):
        with pytest.raises(StoreError, match=FULL):
            ev.pipeline.write(batch)
    assert contents(path) == before
    assert integrity(path) == "ok"
    disk.clear()
    assert ev.pipeline.write(batch).succeeded == len(NOTES)
    assert_true_to(ev, path, NOTES)


class FillsTheDisk(HashingEmbedder):
    """The disk is full when the first vectors come back."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(DIMENSIONS)
        self._disk: Disk | None = disk

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        disk, self._disk = self._disk, None
        if disk:
            disk.fill()
        return super().embed(texts)


def test_process_all_on_a_full_disk_raises_and_loses_nothing(path: Place, disk: Disk) -> None:
    """Its jobs wait for their leases, or go on at once where they could be given back."""
    with open(path, embedder=FillsTheDisk(disk), lease_seconds=0.5) as ev:
        add_all(ev)
        with pytest.raises(StoreError, match=FULL):
            ev.process_all()
        assert query(path, "select count(*) from evervec_points") == [(0,)]
        assert integrity(path) == "ok"
        disk.clear()
        settle(ev)
        assert_true_to(ev, path, NOTES)


def test_a_worker_outlives_a_full_disk(
    path: Place, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    """It says what is wrong, keeps what it has embedded, and goes on by itself."""
    with open(path, embedder=FillsTheDisk(disk), backoff_seconds=0.05, lease_seconds=0.5) as ev:
        add_all(ev)
        with caplog.at_level(logging.WARNING, "evervec"), ev.worker():
            until(
                lambda: caplog.text.count("the worker waits for the store") >= 3, "three complaints"
            )
            assert FULL in caplog.text
            assert ev.queue.stats().done == 0
            disk.clear()
            until(lambda: ev.queue.stats().done == len(NOTES), "the work to be done")
            ev.add("note", "and more", id="more")
            until(lambda: ev.queue.stats().done == len(NOTES) + 1, "more work to be done")
        assert_true_to(ev, path, {**NOTES, "more": "and more"})


def test_an_idle_worker_outlives_a_full_disk(
    ev: Evervec, path: Place, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    """Full when there is nothing to do but housekeeping, and again with space."""
    with open_store(path, housekeeping_seconds=0.02, backoff_seconds=0.02) as working:
        add_all(working)
        with caplog.at_level(logging.WARNING, "evervec"), working.worker():
            until(lambda: ev.queue.stats().done == len(NOTES), "the work to be done")
            disk.fill()

            def complained() -> bool:
                if "the worker waits for the store" not in caplog.text:
                    disk.fill()  # again: a log that was cut back meanwhile has made room
                return "the worker waits for the store" in caplog.text

            if disk.stops_every_write:
                until(complained, "a complaint")
                assert FULL in caplog.text
            with pytest.raises(StoreError, match=FULL):
                ev.add("note", long_text(10), id="more")
            disk.clear()
            working.add("note", "and more", id="more")
            until(lambda: ev.queue.stats().done == len(NOTES) + 1, "more work to be done")
    assert_true_to(ev, path, {**NOTES, "more": "and more"})


def test_housekeeping_works_again_after_a_full_disk(ev: Evervec, path: Place, disk: Disk) -> None:
    """To cut the log back takes space in the file; without it, nothing is lost."""
    add_all(ev)
    settle(ev)
    disk.fill()
    if disk.stops_every_write:
        with pytest.raises(StoreError, match=FULL):
            ev._housekeeping.sweep()
    assert_true_to(ev, path, NOTES)
    disk.clear()
    assert ev._housekeeping.sweep()
    assert_true_to(ev, path, NOTES)


@pytest.mark.parametrize(
    "left",
    [
        (*range(0, 100_000, 20_000), *range(100_000, 700_000, 120_000)),
        pytest.param(range(0, 700_000, 10_000), marks=pytest.mark.long),
    ],
    ids=["some", "many"],
)
def test_an_upgrade_on_a_full_disk_is_a_clear_error_and_can_be_repeated(
    disk: Disk, engine: str, left: Sequence[int]
) -> None:
    """However little space is left, a new file opens or says that the disk is full; the next
    try with space makes it whole."""
    refusals: dict[int, str] = {}
    for leave in left:
        path = place_for(engine, disk.folder / f"fresh-{leave}.db")
        disk.fill(leave)
        try:
            open_store(path).close()
        except StoreError as error:
            refusals[leave] = str(error)
        disk.clear()
        with open_store(path) as ev:
            assert integrity(path) == "ok"
            ev.add("note", "at last", id="a")
            settle(ev)
            assert_true_to(ev, path, {"a": "at last"})
        for file in disk.folder.glob("fresh-*"):
            file.unlink()
    assert 1 < len(refusals) < len(left)
    assert {leave: error for leave, error in refusals.items() if FULL not in error} == {}


def test_a_full_store_can_still_be_opened_and_read(path: Place, disk: Disk) -> None:
    """What is there is served, even by a process that starts when the disk is full."""
    with open_store(path) as ev:
        add_all(ev)
        settle(ev)
        disk.fill()
        with open_store(path) as other:
            assert other.search(NOTES["1"][:1000])[0].id == "1"
        disk.clear()
