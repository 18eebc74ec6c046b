"""What becomes of jobs by what an index outside of the store says to their points."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evervec import Evervec, Status
from evervec.errors import IndexMismatch
from evervec.model.records import Change
from evervec.stores.notes import INDEX, Location
from evervec.stores.values import Applied, ChunksMissing
from evervec.worker.batch import Written
from support.world import KIND, World, add_all, assert_in_step, job_of, paragraph, work

HIGHEST = 1 << 53


class Answers:
    """An index outside of the store that keeps what it is given, and answers as the test says."""

    def __init__(self, ev: Evervec, patch: pytest.MonkeyPatch) -> None:
        self.given: list[Sequence[Change]] = []
        self.script: list[Any] = []
        self.apply = ev.index.apply
        patch.setattr(ev.index, "apply", self)

    def __call__(self, changes: Sequence[Change], conn: Any = None) -> Applied | None:
        self.given.append(changes)
        said = self.script.pop(0) if self.script else None
        if callable(said):
            said = said(changes)
        return said if isinstance(said, Applied) else self.apply(changes, conn)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(("memory", "qdrant-memory"), tmp_path)
    yield world
    world.close()


@pytest.fixture
def answers(world: World, monkeypatch: pytest.MonkeyPatch) -> Answers:
    return Answers(world.ev, monkeypatch)


def write(ev: Evervec, *texts: str) -> Written:
    """Bring these records through the stages, as far as the index allows."""
    add_all(ev, KIND, *texts)
    batch, _ = ev.pipeline.prepare(ev.pipeline.claim(10))
    ev.pipeline.embed(batch)
    return ev.pipeline.write(batch)


def newer(seq: int, *ids: str) -> Any:
    def said(changes: Sequence[Change]) -> Applied:
        return Applied(newer={(c.version, c.record): seq for c in changes if c.id in ids})

    return said


def missing(*ids: str) -> Any:
    def said(changes: Sequence[Change]) -> Applied:
        return Applied(missing={(c.version, c.record) for c in changes if c.id in ids})

    return said


def test_points_are_written_under_one_fence_and_all_are_done(
    world: World, answers: Answers
) -> None:
    assert write(world.ev, "alpha", "beta").succeeded == 2
    (changes,) = answers.given
    assert len({change.seq for change in changes}) == 1
    assert changes[0].seq > max(job_of(world.ev, id).seq for id in "01")
    assert_in_step(world.ev, {"0": "alpha", "1": "beta"})


def test_one_who_lost_the_lease_before_the_fence_writes_nothing(
    world: World, answers: Answers
) -> None:
    add_all(world.ev, KIND, "alpha", "beta")
    jobs = world.ev.pipeline.claim(10)
    batch, _ = world.ev.pipeline.prepare(jobs)
    world.ev.pipeline.embed(batch)
    world.ev.queue.release(jobs[0])
    written = world.ev.pipeline.write(batch)
    assert (written.succeeded, written.lost) == (1, 1)
    assert [[change.id for change in given] for given in answers.given] == [["1"]]


def test_a_fence_renews_the_lease_for_the_time_of_a_write(world: World, answers: Answers) -> None:
    expires: list[float] = []

    def look(_: object) -> None:
        ends = job_of(world.ev, "0").lease_expires_at
        expires.append(ends.timestamp() - world.clock.now if ends else 0.0)

    answers.script = [look]
    add_all(world.ev, KIND, "alpha")
    batch, _ = world.ev.pipeline.prepare(world.ev.pipeline.claim(10))
    world.ev.pipeline.embed(batch)
    world.clock.move(50)
    world.ev.pipeline.write(batch)
    assert expires == [world.ev.settings.lease_seconds]


@pytest.mark.parametrize("seq", [10_000, HIGHEST])
def test_a_store_behind_its_index_gets_past_it(world: World, answers: Answers, seq: int) -> None:
    answers.script = [newer(seq, "0")]
    assert write(world.ev, "alpha", "beta").succeeded == 2
    first, second = answers.given
    assert [change.id for change in second] == ["0"]
    assert first[0].seq < seq < second[0].seq
    assert job_of(world.ev, "0").status is Status.DONE


def test_what_is_still_newer_at_the_second_try_is_lost_to_whoever_was_faster(
    world: World, answers: Answers
) -> None:
    answers.script = [newer(10_000, "0"), newer(20_000, "0")]
    written = write(world.ev, "alpha", "beta")
    assert (written.succeeded, written.lost) == (1, 1)
    assert len(answers.given) == 2
    assert job_of(world.ev, "1").status is Status.DONE


def test_numbers_that_no_store_gave_out_make_dead_letters_that_say_what_to_do(
    world: World, answers: Answers
) -> None:
    answers.script = [
        lambda changes: Applied(
            newer={
                (c.version, c.record): {"0": HIGHEST + 1, "1": 10_000}[c.id]
                for c in changes
                if c.id != "2"
            }
        )
    ]
    written = write(world.ev, "alpha", "beta", "gamma")
    assert (written.succeeded, written.lost) == (2, 1)
    assert [[c.id for c in given] for given in answers.given] == [["0", "1", "2"], ["1"]]
    dead = job_of(world.ev, "0")
    assert dead.status is Status.FAILED
    assert (dead.error or "").startswith(f"{world.ev.index.url} holds points of this record")
    assert [job_of(world.ev, id).status for id in "12"] == [Status.DONE] * 2


def test_only_impossible_numbers_need_no_second_try(world: World, answers: Answers) -> None:
    answers.script = [newer(HIGHEST + 1, "0")]
    assert write(world.ev, "alpha", "beta").succeeded == 1
    assert len(answers.given) == 1


def test_records_whose_chunks_are_missing_are_embedded_again_whole(
    world: World, answers: Answers, caplog: pytest.LogCaptureFixture
) -> None:
    answers.script = [missing("0", "1")]
    with caplog.at_level(logging.WARNING, "evervec"):
        written = write(world.ev, "alpha", "beta", "gamma")
    assert (written.succeeded, written.lost) == (1, 2)
    for id in "01":
        job = job_of(world.ev, id)
        assert (job.status, job.attempts) == (Status.PENDING, 0)
    (record,) = caplog.records
    assert record.getMessage().endswith("lacks chunks of 2 records: embedding them again")
    world.embedder.calls.clear()
    assert work(world.ev).succeeded == 2
    assert world.embedder.texts == ["alpha", "beta"]


def test_chunks_that_are_missing_at_the_second_try_count_as_those_of_the_first(
    world: World, answers: Answers
) -> None:
    def mixed(changes: Sequence[Change]) -> Applied:
        places = {c.id: (c.version, c.record) for c in changes}
        return Applied(missing={places["1"]}, newer={places["0"]: 10_000})

    answers.script = [mixed, missing("0")]
    written = write(world.ev, "alpha", "beta", "gamma")
    assert (written.succeeded, written.lost) == (1, 2)
    assert [job_of(world.ev, id).status for id in "01"] == [Status.PENDING] * 2


def test_chunks_missing_of_one_record_are_told_apart_from_a_newer_state_of_another(
    world: World, answers: Answers
) -> None:
    def mixed(changes: Sequence[Change]) -> Applied:
        places = {c.id: (c.version, c.record) for c in changes}
        return Applied(missing={places["1"]}, newer={places["0"]: HIGHEST + 1})

    answers.script = [mixed]
    write(world.ev, "alpha", "beta", "gamma")
    ends = [job_of(world.ev, id).status for id in "012"]
    assert ends == [Status.FAILED, Status.PENDING, Status.DONE]


def test_a_lease_lost_after_the_write_gives_the_record_another_pass(
    world: World, answers: Answers
) -> None:
    def lose(_: object) -> None:
        world.clock.move(61)
        world.ev.queue.recover_stuck()
        (job,) = world.ev.queue.claim(1)
        world.ev.queue.finish(job)

    answers.script = [lose]
    written = write(world.ev, "alpha")
    assert (written.succeeded, written.lost) == (0, 1)
    assert job_of(world.ev, "0").status is Status.PENDING
    assert work(world.ev).succeeded == 1
    assert_in_step(world.ev, {"0": "alpha"})


def test_another_pass_embeds_nothing_that_the_faster_worker_embedded(
    world: World, answers: Answers
) -> None:
    def written_then_lost(changes: Sequence[Change]) -> Applied:
        done = answers.apply(changes) or Applied()
        world.clock.move(61)
        world.ev.queue.recover_stuck()
        assert work(world.ev).succeeded == 1
        return done

    answers.script = [written_then_lost]
    assert write(world.ev, "alpha").lost == 1
    assert job_of(world.ev, "0").status is Status.PENDING
    world.embedder.calls.clear()
    assert work(world.ev).succeeded == 1
    assert world.embedder.texts == []
    assert_in_step(world.ev, {"0": "alpha"})


def test_what_went_to_an_index_that_the_store_has_left_is_not_finished(world: World) -> None:
    add_all(world.ev, KIND, "alpha", "beta")
    batch, _ = world.ev.pipeline.prepare(world.ev.pipeline.claim(10))
    world.ev.pipeline.embed(batch)
    INDEX.put(world.ev.store.shared, Location("elsewhere", world.ev.index.generation + 1))
    with pytest.raises(IndexMismatch, match="open the store again"):
        world.ev.pipeline.write(batch)
    for id in "01":
        job = job_of(world.ev, id)
        assert (job.status, job.attempts) == (Status.PENDING, 0)


@pytest.mark.parametrize("state", ["serving", "retired"])
def test_what_the_store_has_forgotten_is_taken_out_of_versions_in_use(
    world: World, answers: Answers, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    def lose(_: object) -> None:
        world.clock.move(61)
        world.ev.queue.recover_stuck()

    add_all(world.ev, KIND, "alpha")
    batch, _ = world.ev.pipeline.prepare(world.ev.pipeline.claim(10))
    world.ev.pipeline.embed(batch)
    found = [replace(c, state=state) for c in world.ev.store.versions.collections()]
    monkeypatch.setattr(world.ev.store.versions, "collections", lambda: found)
    monkeypatch.setattr(world.ev.store.changes, "reopen", lambda *_, **__: 0)
    answers.script = [lose]
    assert world.ev.pipeline.write(batch).lost == 1
    written, *removed = answers.given
    if state == "retired":
        assert removed == []
        return
    ((gone,),) = removed
    old = written[0]
    assert (gone.record, gone.version, gone.tenant) == (old.record, old.version, old.tenant)
    assert (gone.kind, gone.id, list(gone.points)) == (KIND, "0", [])
    assert gone.seq > old.seq


def test_in_the_stores_own_index_missing_chunks_stop_only_their_records(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply, tries = memory.ev.index.apply, []

    def lacks(changes: Sequence[Change], conn: Any = None) -> Any:
        tries.append([change.id for change in changes])
        if len(tries) == 1:
            raise ChunksMissing({(changes[0].version, changes[0].record)})
        return apply(changes, conn)

    monkeypatch.setattr(memory.ev.index, "apply", lacks)
    written = write(memory.ev, "alpha", "beta")
    assert (written.succeeded, written.lost) == (1, 1)
    assert tries == [["0", "1"], ["1"]]
    assert job_of(memory.ev, "0").status is Status.PENDING
    assert work(memory.ev).succeeded == 1
    assert_in_step(memory.ev, {"0": "alpha", "1": "beta"})


def test_in_the_stores_own_index_missing_chunks_are_embedded_again_with_all_others(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, old, new = (paragraph(word) for word in ("kept", "old", "new"))
    write(memory.ev, f"{kept}\n\n{old}")
    memory.embedder.calls.clear()
    apply = memory.ev.index.apply

    def lacks(changes: Sequence[Change], conn: Any = None) -> Any:
        monkeypatch.setattr(memory.ev.index, "apply", apply)
        raise ChunksMissing({(change.version, change.record) for change in changes})

    monkeypatch.setattr(memory.ev.index, "apply", lacks)
    assert write(memory.ev, f"{kept}\n\n{new}").lost == 1
    assert memory.embedder.texts == [new]
    assert work(memory.ev).succeeded == 1
    assert memory.embedder.texts == [new, kept, new]
