"""A second process at a DuckDB file, and the kill of the only process that used one: the next one finds
everything."""

import os
import random
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from evervec import Evervec, Status, StoreError
from support.fault_checks import assert_true_to, open_store, outcomes, settle
from support.places import query
from support.processes import Child, Start

LEASE = {"lease_seconds": 0.3}
NOTES = {str(n): f"note {n} about harbour {n} and lighthouse {n}" for n in range(5)}
LONG = "\n\n".join(f"Paragraph {n} tells of the island {n}. " * 12 for n in range(8))


@pytest.fixture
def place(tmp_path: Path) -> str:
    return f"duckdb:///{tmp_path}/notes.duckdb"


def add(ev: Evervec, notes: dict[str, str]) -> None:
    list(ev.add_many("note", ({"id": id, "text": text} for id, text in notes.items())))


def test_a_second_process_is_told_who_has_the_file(place: str, start: Start) -> None:
    """The error names the holder and what to do, and the holder goes on unharmed."""
    with open_store(place) as ev:
        add(ev, NOTES)
        second = start("open", place)
        error = second.at("opened")["error"]
        assert error is not None
        assert f"PID {os.getpid()}" in error
        assert "one" in error
        assert "PostgreSQL" in error
        ev.add("note", "and more", id="more")
        settle(ev)
        assert_true_to(ev, place, {**NOTES, "more": "and more"})


def test_the_file_is_free_once_its_holder_is_gone(place: str, start: Start) -> None:
    """Whether it was closed or killed, nothing is left behind that would keep others out."""
    add_and_close(place, NOTES)
    holder = start("hold", place, pause={"holding": ""}, settings=LEASE)
    holder.at("holding")
    with pytest.raises(StoreError, match=f"PID {holder.pid}"):
        open_store(place)
    assert holder.running
    holder.kill()
    with open_store(place) as ev:
        settle(ev)
        assert_true_to(ev, place, NOTES)


def test_stores_of_one_process_share_the_file(place: str) -> None:
    """A second opening in the same process is no second process, in whatever order they close."""
    first, second = open_store(place), open_store(place, tenant="other")
    add(first, NOTES)
    second.add("note", "of another tenant", id="0")
    first.close()
    with pytest.raises(StoreError, match="closed"):
        first.get("note", "0")
    assert second.get("note", "0") is not None
    second.close()
    with open_store(place) as ev:
        assert len(ev.records()) == len(NOTES)
        assert ev.process_all().succeeded == len(NOTES) + 1


def add_and_close(place: str, notes: dict[str, str]) -> None:
    with open_store(place) as ev:
        add(ev, notes)


@pytest.mark.parametrize("point", ["embedding", "applying", "applied", "finished"])
def test_a_worker_killed_anywhere_leaves_a_file_that_opens(
    place: str, start: Start, point: str
) -> None:
    """What was not committed never was, what was is there, and the rest is done again."""
    notes = {"a": LONG, **NOTES}
    add_and_close(place, notes)
    victim = start("work", place, pause={point: ""}, settings=LEASE)
    victim.at(point)
    victim.kill()

    with open_store(place) as ev:
        stats = ev.queue.stats()
        points = query(place, "select count(*) from evervec_points")[0][0]
        if point == "finished":
            assert (stats.processing, stats.done) == (0, len(notes))
        else:
            assert (stats.processing, stats.done, points) == (len(notes), 0, 0)
        settle(ev)
        assert_true_to(ev, place, notes)
        assert outcomes(ev, "a") == (["done"] if point == "finished" else ["crashed", "done"])


def test_a_worker_killed_in_an_update_keeps_the_old_version_whole(place: str, start: Start) -> None:
    """Old chunks go and new ones come in one step, so a kill inside it undoes both."""
    with open_store(place) as ev:
        add(ev, {"a": LONG})
        settle(ev)
        before = sorted(query(place, "select * from evervec_points"))
        add(ev, {"a": LONG[: len(LONG) // 2]})
    victim = start("work", place, pause={"applied": ""}, settings=LEASE)
    victim.at("applied")
    victim.kill()
    with open_store(place) as ev:
        assert sorted(query(place, "select * from evervec_points")) == before
        assert ev.search("Paragraph 3 tells of the island 3.", mode="semantic")[0].id == "a"
        settle(ev)
        assert_true_to(ev, place, {"a": LONG[: len(LONG) // 2]})


def test_a_record_that_kills_its_worker_is_buried_alone(place: str, start: Start) -> None:
    """Each worker that embeds it dies, and the next opens the file; by the number of its
    deliveries it becomes a dead letter, and all others are embedded."""
    with open_store(place, max_attempts=3) as ev:
        add(ev, {**NOTES, "bad": "the deadly note"})
    deaths = 0
    while _dies(start("work off", place, settings={**LEASE, "backoff_seconds": 0.01},
                      deadly="deadly")):  # fmt: skip
        deaths += 1
        assert deaths < 6, "workers go on dying"
    with open_store(place) as ev:
        job = ev.queue.status("note", "bad")
        assert job is not None
        assert (job.status, job.attempts, deaths) == (Status.FAILED, 3, 3)
        ev.queue.retry(job.job_id)  # here nothing dies of it
        settle(ev)
        assert_true_to(ev, place, {**NOTES, "bad": "the deadly note"})


def _dies(worker: Child) -> bool:
    code = worker.exit_code()
    assert code in (0, -signal.SIGKILL), worker.log
    return code != 0


def test_a_writer_killed_in_its_stream_loses_nothing_it_has_a_ticket_for(
    place: str, start: Start
) -> None:
    """Records come with their jobs or not at all, up to the last ticket and beyond."""
    writer = start("add", place, settings={"add_batch": 20})
    writer.at("added", "333")
    writer.kill()
    acknowledged = {said["about"] for said in writer.rest() if said["at"] == "added"}
    with open_store(place) as ev:
        there = dict(query(place, "select id, text from evervec_records"))
        assert acknowledged <= there.keys()
        assert len(there) % 20 == 0  # whole batches
        assert ev.queue.stats().pending == len(there)
        settle(ev)
        assert_true_to(ev, place, there)


def test_workers_killed_again_and_again_keep_the_index_true(place: str, start: Start) -> None:
    """Records come and go between the deaths of six workers, at points that nobody chose."""
    chance = random.Random(1)
    notes: dict[str, str] = {}
    settings = {"lease_seconds": 0.2, "batch_size": 8}
    for turn in range(6):
        with open_store(place) as ev:
            changed = {}
            for n in map(str, chance.sample(range(60), 30)):
                if n in notes and chance.random() < 0.3:
                    ev.delete("note", n)
                    del notes[n]
                else:
                    words = "word " * chance.choice((5, 40, 300))
                    changed[n] = f"record{n} turn{turn} {words}"
            list(ev.add_many("note", ({"id": n, "text": text} for n, text in changed.items())))
            notes |= changed
        worker = start("work", place, settings=settings, max_batch=4, burn_seconds=0.002)
        points = [
            chance.choice(["embedding", "applying", "applied", "finished"])
            for _ in range(chance.randrange(1, 8))
        ]
        with suppress(AssertionError):  # it may have done everything before the last point
            for point in points:
                worker.at(point, seconds=5)
        worker.kill()
    with open_store(place) as ev:
        settle(ev)
        assert ev.queue.stats().failed == 0
        assert_true_to(ev, place, notes)
