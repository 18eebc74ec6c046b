"""Killed, suspended and late workers, and a lost index, where the index is outside the store: no transaction
covers both."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from evervec import Evervec, IndexUnavailable, Status
from support.fault_checks import assert_true_to, freeze, open_store, outcomes, settle
from support.places import Place
from support.postgres import DATABASES
from support.processes import Start, until
from support.qdrant_server import QdrantServer
from support.world import held

LEASE = {"lease_seconds": 0.6, "writer_lock_seconds": 1}
NOTES = {str(n): f"note {n} about harbour {n} and lighthouse {n}" for n in range(5)}
LONG = "\n\n".join(f"Paragraph {n} tells of the island {n}. " * 12 for n in range(8))
FIRST, SECOND = "the first version, of lemons", "the second version, of oranges"


class Apart(NamedTuple):
    """A store and an index of its own."""

    path: Place
    vectors: str
    server: QdrantServer | None

    def open(self, **settings: Any) -> Evervec:
        return open_store(self.path, index=self.vectors, writer_lock_seconds=1, **settings)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Apart]:
    store, index = request.param
    path: Place = tmp_path / "notes.db" if store == "sqlite" else DATABASES.borrow()
    server = QdrantServer() if index == "qdrant" else None
    yield Apart(path, server.url if server else f"lancedb://{tmp_path / 'vectors'}", server)
    if server:
        server.stop()
    if isinstance(path, str):
        DATABASES.give_back(path)


@pytest.fixture
def ev(place: Apart) -> Iterator[Evervec]:
    with place.open() as opened:
        yield opened


ACROSS = pytest.mark.parametrize(
    "place", [("sqlite", "lancedb"), ("postgres", "qdrant")], indirect=True, ids="-".join
)
EACH = pytest.mark.parametrize(
    "place", [("sqlite", "lancedb"), ("sqlite", "qdrant")], indirect=True, ids="-".join
)
SEVERAL = pytest.mark.parametrize(
    "place",
    [("sqlite", "lancedb"), ("postgres", "lancedb"), ("postgres", "qdrant")],
    indirect=True,
    ids="-".join,
)


def add(ev: Evervec, notes: dict[str, str]) -> None:
    list(ev.add_many("note", ({"id": id, "text": text} for id, text in notes.items())))


@ACROSS
@pytest.mark.parametrize("point", ["embedding", "applied", "finished"])
def test_a_worker_killed_at_any_point_leaves_one_set_of_chunks(
    ev: Evervec, place: Apart, start: Start, point: str
) -> None:
    """While it embeds; when the index is ahead of the store; after the end, before it knew."""
    notes = {"a": LONG, **NOTES}
    add(ev, notes)
    victim = start("work", place.path, index=place.vectors, pause={point: ""}, settings=LEASE)
    victim.at(point)
    victim.kill()

    assert bool(held(ev)) is (point != "embedding")
    settle(ev)
    assert_true_to(ev, place.path, notes)
    ends = ["done"] if point == "finished" else ["crashed", "done"]
    assert outcomes(ev, "a") == ends


@pytest.mark.parametrize("point", ["applied", "finished"])
def test_an_embedded_engine_outlives_its_process(tmp_path: Path, start: Start, point: str) -> None:
    """Only one process has it open, so the next comes after the kill."""
    path, index = tmp_path / "notes.db", f"qdrant-edge://{tmp_path / 'edge'}"
    with open_store(path, embedder="noop") as ev:
        add(ev, NOTES)
    victim = start("work", path, index=index, pause={point: ""}, settings=LEASE)
    victim.at(point)
    with (
        open_store(path, index=index) as ev,
        pytest.raises(IndexUnavailable, match="another process"),
    ):
        ev.verify()
    victim.kill()
    with open_store(path, index=index) as ev:
        assert {id for _, _, id in held(ev)} == set(NOTES)
        settle(ev)
        assert_true_to(ev, path, NOTES)


@ACROSS
@pytest.mark.parametrize("late", ["upsert", "upsert of a deleted record", "delete"])
def test_a_zombies_late_write_changes_nothing(
    ev: Evervec, place: Apart, start: Start, late: str
) -> None:
    """Frozen between its last look at the lease and its write, while others settle the record."""
    add(ev, {"a": FIRST})
    if late == "delete":
        settle(ev)
        ev.delete("note", "a")
    zombie = start("work", place.path, index=place.vectors, pause={"applying": ""}, settings=LEASE)
    zombie.at("applying")
    freeze(zombie, place.path)
    if late == "upsert of a deleted record":
        ev.delete("note", "a")
    else:
        add(ev, {"a": SECOND})
    settle(ev)
    wanted = {} if late == "upsert of a deleted record" else {"a": SECOND}
    assert_true_to(ev, place.path, wanted)

    zombie.thaw()
    zombie.go("applying")
    assert zombie.at("finished")["held"] == [False]
    assert {id for _, _, id in held(ev)} == set(wanted)
    zombie.end("applying")
    assert zombie.exit_code() == 0
    settle(ev)  # it marked the record for another pass
    assert_true_to(ev, place.path, wanted)


@SEVERAL
def test_two_worker_processes_share_one_index(ev: Evervec, place: Apart, start: Start) -> None:
    """Both embed at once, and write in turns. One is killed in the middle."""
    notes = {str(n): f"text {n} of the harbour" for n in range(60)}
    options: dict[str, Any] = {"batch_size": 4, **LEASE}
    workers = [
        start("work", place.path, index=place.vectors, settings=options, pause=pause)
        for pause in ({"applied": " 55"}, {})
    ]
    until(
        lambda: len(ev.store.workers.all()) == 2, "both to be there"
    )  # or one does all of it alone
    add(ev, notes)
    for worker in workers:
        worker.at("applied")
    workers[0].kill()
    for id in range(0, 60, 3):
        notes[str(id)] += ", changed"
    add(ev, notes)
    for id in range(0, 60, 5):
        ev.delete("note", id)
        notes.pop(str(id))
    until(lambda: ev.queue.stats().unique_records == 0, "all work")  # in one look
    workers[1].terminate()
    assert workers[1].exit_code() == 0
    assert_true_to(ev, place.path, notes)


@EACH
def test_an_index_that_loses_its_data_is_rebuilt(ev: Evervec, place: Apart) -> None:
    """Also where only some of it is left, as after a restore from an old backup."""
    add(ev, NOTES)
    ev.process_all()
    add(ev, {"0": FIRST})
    lose(place)
    ev.process_all()  # a write into nothing makes the index anew
    ev.add("note", NOTES["1"], id="1", metadata={"shelf": 3})
    ev.process_all()  # its points were to be kept, and are gone: they are made again
    assert {id for _, _, id in held(ev)} == {"0", "1"}
    assert "2" in {hit.id for hit in ev.search("lighthouse 2")}, "text answers"

    assert ev.verify(repair=True).missing == 3
    ev.process_all()
    assert_true_to(ev, place.path, {**NOTES, "0": FIRST})
    assert [h.id for h in ev.search("note", mode="semantic", filter={"shelf": 3})] == ["1"]


@pytest.mark.parametrize("place", [("sqlite", "lancedb")], indirect=True, ids="-".join)
def test_an_index_put_back_from_an_old_backup_is_brought_up_to_date(
    ev: Evervec, place: Apart, tmp_path: Path
) -> None:
    """Deleted, changed and new records, and one whose metadata alone is older."""
    add(ev, NOTES)
    ev.process_all()
    folder = Path(place.vectors.removeprefix("lancedb://"))
    shutil.copytree(folder, tmp_path / "backup")
    ev.delete("note", "0")
    add(ev, {"1": FIRST, "new": SECOND})
    ev.add("note", NOTES["2"], id="2", metadata={"shelf": 3})
    ev.process_all()
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "backup", folder)

    report = ev.verify(repair=True)
    assert (report.missing, report.stale, report.orphaned) == (2, 1, 2)
    ev.process_all()
    left = {id: text for id, text in NOTES.items() if id != "0"}
    assert_true_to(ev, place.path, {**left, "1": FIRST, "new": SECOND})
    assert [h.id for h in ev.search("note", mode="semantic", filter={"shelf": 3})] == ["2"]


def lose(place: Apart) -> None:
    if place.server:
        place.server.lose_everything()
    else:
        shutil.rmtree(place.vectors.removeprefix("lancedb://"))


@EACH
def test_while_the_index_is_down_writes_wait_and_text_answers(place: Apart) -> None:
    with place.open(backoff_seconds=0.05) as ev:
        add(ev, NOTES)
        ev.process_all()
        take_away(place)
        add(ev, {"0": FIRST})
        with pytest.raises(IndexUnavailable):
            ev.process_all()
        job = ev.queue.status("note", "0")
        assert job is not None
        assert (job.status, job.attempts) == (Status.PENDING, 0), "an outage spends no attempts"
        hits = ev.search("lemons")
        assert (hits.via, [h.id for h in hits]) == ("text", ["0"])
        with ev.worker():
            threading.Event().wait(0.3)
            assert ev.queue.stats().failed == 0
            give_back(place)
            until(lambda: ev.queue.stats().done == len(NOTES), "the index to be written")
        assert_true_to(ev, place.path, {**NOTES, "0": FIRST})


def take_away(place: Apart) -> None:
    if place.server:
        place.server.stop()
    else:
        folder = Path(place.vectors.removeprefix("lancedb://"))
        folder.rename(folder.with_suffix(".away"))
        folder.write_text("a file where the folder was")


def give_back(place: Apart) -> None:
    if place.server:
        place.server.start()
    else:
        folder = Path(place.vectors.removeprefix("lancedb://"))
        folder.unlink()
        folder.with_suffix(".away").rename(folder)
