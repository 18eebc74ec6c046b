"""What the stages of the pipeline decide at their bounds, and what they count."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import evervec.pipeline
from evervec import IndexUnavailable, Kind, ProviderUnavailable, Status
from evervec.batch import Cost
from evervec.embedders.base import Embedded
from evervec.errors import StoreError, WrongCollection
from evervec.model import Change
from evervec.telemetry import ATTEMPTS, CHUNKS, FRESHNESS, STAGES
from support.traces import traced
from support.world import KIND, Clock, World, add_all, job_of, paragraph, step, work


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time by which the pipeline waits before it asks again."""
    clock = Clock(1000.0)
    monkeypatch.setattr(evervec.pipeline.time, "monotonic", clock)
    return clock


def away(_: object) -> None:
    raise ProviderUnavailable("no route to host")


def version_of(world: World, kind: str = KIND) -> int:
    (found,) = [c.version for c in world.ev.store.collections() if c.kind == kind]
    return found


# which versions are served


def test_what_is_served_is_found_once_until_something_changes(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha")
    pipeline = memory.ev.pipeline
    served = pipeline.serves()
    assert served == [version_of(memory)]
    assert pipeline.serves() is served
    memory.ev.register(Kind("page"))
    assert pipeline.serves() is not served


def test_a_retired_version_is_not_served(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    add_all(memory.ev, KIND, "alpha")
    memory.ev.pipeline.serves()
    retired = [replace(c, state="retired") for c in memory.ev.store.collections()]
    monkeypatch.setattr(memory.ev.store, "collections", lambda: retired)
    assert memory.ev.pipeline.serves() == []


def test_a_model_that_cannot_be_opened_is_asked_for_again_after_a_while(
    memory: World, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_all(memory.ev, KIND, "alpha")
    memory.ev.add("page", "beta", id="1")
    ev = memory.tenant("another")
    of, asked = ev.models.of, []

    def cannot(spec: Any) -> Any:
        asked.append(spec)
        return None

    ev.pipeline.serves()
    ev.register(Kind("task"))
    monkeypatch.setattr(ev.models, "of", cannot)
    assert ev.pipeline.serves() == []
    asked.clear()
    clock.move(4.9)
    assert (ev.pipeline.serves(), asked) == ([], [])
    clock.move(0.1)
    monkeypatch.setattr(ev.models, "of", of)
    assert len(ev.pipeline.serves()) == 2


def test_the_store_is_told_how_a_kind_is_cut_only_when_it_does_not_know(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[int, Any]] = []
    describe = memory.ev.store.describe

    def watched(ways: Any) -> None:
        told.append(ways)
        describe(ways)

    monkeypatch.setattr(memory.ev.store, "describe", watched)
    add_all(memory.ev, KIND, "alpha")
    memory.ev.pipeline.serves()
    (first,) = told
    assert [(way.chunker, way.app) for way in first.values()] == [("content:16-64", False)]
    memory.ev.register(Kind("other"))
    memory.ev.pipeline.serves()
    assert len(told) == 1
    memory.ev.register(Kind(KIND, load=lambda _: None))
    memory.ev.pipeline.serves()
    assert [way.app for way in told[1].values()] == [True]
    assert len(told) == 2


def test_a_kind_whose_loader_another_process_has_is_not_served(memory: World) -> None:
    memory.ev.register(Kind("page", load=lambda _: "text"))
    memory.ev.queue.enqueue("page", 1)
    (version,) = memory.ev.pipeline.serves()
    elsewhere = memory.tenant("another")
    assert elsewhere.pipeline.serves() == []
    (collection,) = memory.ev.store.collections()
    assert elsewhere.pipeline.cutter_of(collection) is None
    assert memory.ev.pipeline.cutter_of(collection) is not None
    assert [job.version for job in memory.ev.pipeline.claim(5)] == [version]


def test_a_process_with_other_settings_cuts_as_the_store_says(tmp_path: Path) -> None:
    world = World(("sqlite", "sqlite"), tmp_path)
    world.ev.add(KIND, "alpha", id="1")
    work(world.ev)
    elsewhere = world.open(chunk_tokens=64)
    (collection,) = elsewhere.store.collections()
    chunker = elsewhere.pipeline.chunker_of(collection)
    assert chunker is not None
    assert chunker.spec == collection.chunker == "content:16-64"
    world.close()


def test_the_kinds_own_chunker_cuts_its_texts(memory: World) -> None:
    class Lines:
        spec = "lines"

        def split(self, text: str) -> Iterable[tuple[int, int]]:
            at = 0
            for line in text.splitlines(keepends=True):
                yield at, at + len(line.rstrip())
                at += len(line)

    memory.ev.register(Kind("page", chunker=Lines()))
    memory.ev.add("page", "one\ntwo\none\nthree", id="1")
    work(memory.ev)
    assert memory.embedder.texts == ["one", "two", "three"]
    memory.ev.add("page", "two\none\nfour\nfour\ntwo", id="1")
    jobs = memory.ev.pipeline.claim(1)
    batch, _ = memory.ev.pipeline.prepare(jobs)
    (item,) = batch.items
    assert sorted(item.kept.values()) == [0, 1]
    assert list(item.fresh.values()) == [(2, "four")]
    step(memory.ev, jobs)
    assert memory.ev.verify().complete


def test_a_chunker_that_fails_is_the_records_error_and_tried_again(memory: World) -> None:
    class Broken:
        spec = "broken"

        def split(self, text: str) -> Iterable[tuple[int, int]]:
            raise OSError("no dictionary")

    memory.ev.register(Kind("page", chunker=Broken()))
    memory.ev.add("page", "one", id="1")
    memory.ev.add(KIND, "alpha", id="1")
    written = step(memory.ev, memory.ev.pipeline.claim(5))
    assert (written.succeeded, written.retried, written.failed) == (1, 1, 0)
    assert (job_of(memory.ev, "1", "page").error or "").startswith("its chunker failed: ")
    assert "no dictionary" in (job_of(memory.ev, "1", "page").error or "")


def test_a_title_is_cut_to_what_the_model_looks_at(tmp_path: Path) -> None:
    world = World(("memory", "sqlite"), tmp_path)
    world.embedder.characters = 40  # type: ignore[attr-defined]
    ev = world.open()
    ev.add(KIND, "alpha", id="1", title="a long title " * 20)
    work(ev)
    (text,) = world.embedder.texts
    assert len(text) <= 40
    assert text.endswith("alpha")
    assert ev.verify().complete
    world.close()


# claims


def test_a_version_that_came_after_the_list_was_made_is_given_back(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_all(memory.ev, KIND, "alpha")
    pipeline = memory.ev.pipeline
    pipeline.serves()
    memory.ev.add("page", "beta", id="1")
    monkeypatch.setattr(pipeline, "serves", lambda: [1, 2, 3, 4])
    claimed = pipeline.claim(5)
    assert [job.kind for job in claimed] == [KIND]
    assert job_of(memory.ev, "1", "page").status is Status.PENDING
    assert job_of(memory.ev, "1", "page").attempts == 0


def test_only_what_is_asked_for_is_claimed(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha", "beta", "gamma")
    assert len(memory.ev.queue.claim()) == 1
    assert len(memory.ev.pipeline.claim(1)) == 1
    memory.clock.move(61)
    memory.ev.queue.recover_stuck()
    jobs = memory.ev.pipeline.claim(3, suspects=False)
    assert [job.record_id for job in jobs] == ["2"]
    batch, _ = memory.ev.pipeline.prepare(jobs)
    assert not batch.suspect
    (suspect,) = memory.ev.pipeline.claim(3)
    batch, _ = memory.ev.pipeline.prepare([suspect])
    assert batch.suspect


def test_a_claim_takes_time_only_when_there_was_something(memory: World) -> None:
    def claims() -> int:
        return sum(STAGES.seen().get(("claim",), ([0], 0.0))[0])

    before = claims()
    add_all(memory.ev, KIND, "alpha")
    memory.ev.pipeline.claim(1)
    assert claims() == before + 1
    assert memory.ev.pipeline.claim(1) == []
    assert claims() == before + 1


# collections that the index refuses


def refuse(
    world: World, monkeypatch: pytest.MonkeyPatch, version: int
) -> Callable[[str | None], None]:
    """Let the index refuse a version, and say so as long as the test says."""
    apply, says = world.ev.index.apply, ["it has 7 dimensions"]

    def applied(changes: Sequence[Any], conn: Any = None) -> Any:
        if says[0] and any(change.version == version for change in changes):
            raise WrongCollection(says[0], version=version)
        return apply(changes, conn)

    monkeypatch.setattr(world.ev.index, "apply", applied)
    monkeypatch.setattr(world.ev.index, "refuses", lambda kind, spec: says[0])

    def say(reason: Any) -> None:
        says[0] = reason

    return say


def test_a_version_that_the_index_refuses_waits_and_others_go_on(
    memory: World, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ev = memory.ev
    add_all(ev, KIND, "alpha", "beta")
    ev.add("page", "gamma", id="1")
    ev.pipeline.serves()
    say = refuse(memory, monkeypatch, version_of(memory))
    with caplog.at_level(logging.ERROR, "evervec"):
        written = step(ev, ev.pipeline.claim(5))
    assert (written.succeeded, written.released, written.lost) == (1, 2, 0)
    assert [error for _, error in written.errors] == ["it has 7 dimensions"] * 2
    assert {job_id for job_id, _ in written.errors} == {job_of(ev, id).job_id for id in "01"}
    assert job_of(ev, "0").error == "it has 7 dimensions"
    assert len(caplog.records) == 1
    ev.add("page", "delta", id="2")
    assert [job.kind for job in ev.pipeline.claim(5)] == ["page"]
    clock.move(4.9)
    say(None)
    assert ev.pipeline.claim(5) == [], "it is not asked again yet"
    clock.move(0.1)
    assert [job.kind for job in ev.pipeline.claim(5)] == [KIND] * 2


def test_a_version_stays_refused_while_the_index_says_so_or_is_away(
    memory: World, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ev = memory.ev
    add_all(ev, KIND, "alpha")
    say = refuse(memory, monkeypatch, version_of(memory))
    step(ev, ev.pipeline.claim(5))
    asked: list[str] = []

    def is_away(kind: str, _: Any) -> str | None:
        asked.append(kind)
        raise IndexUnavailable("away")

    for _ in range(2):
        clock.move(5)
        assert ev.pipeline.claim(5) == []
    monkeypatch.setattr(ev.index, "refuses", is_away)
    clock.move(5)
    assert ev.pipeline.claim(5) == []
    assert ev.pipeline.claim(5) == []
    assert asked == [KIND]
    say(None)
    monkeypatch.setattr(ev.index, "refuses", lambda kind, spec: None)
    clock.move(4.9)
    assert ev.pipeline.claim(5) == []
    clock.move(0.1)
    assert work(ev).succeeded == 1


def test_a_refusal_of_no_version_of_the_batch_is_raised(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(changes: Sequence[Any], conn: Any = None) -> Any:
        raise WrongCollection("of another", version=99)

    add_all(memory.ev, KIND, "alpha")
    monkeypatch.setattr(memory.ev.index, "apply", refused)
    with pytest.raises(WrongCollection, match="of another"):
        step(memory.ev, memory.ev.pipeline.claim(5))


# how much is taken at once


def test_what_is_known_already_is_loaded_in_ever_larger_parts(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"{n:02}" + "x" * 38 for n in range(60)]
    add_all(memory.ev, KIND, *texts)
    work(memory.ev)
    version = version_of(memory)
    records = [e.record for e in memory.ev.store.expected(None, version, 0, 100)]
    memory.ev.store.reopen(version, records, forget=False)
    pace = memory.ev.provider.pace
    monkeypatch.setattr(pace, "characters", 100)
    monkeypatch.setattr(pace, "learnt", True)
    monkeypatch.setattr(memory.ev.pipeline, "memory", 1000)
    load, asked = memory.ev.store.load, []

    def watched(jobs: Sequence[Any], characters: int) -> Any:
        asked.append(characters)
        return load(jobs, characters)

    monkeypatch.setattr(memory.ev.store, "load", watched)
    jobs = memory.ev.pipeline.claim(60)
    batch, rest = memory.ev.pipeline.prepare(jobs)
    assert asked == [100, 100, 200, 400, 200]
    assert [item.job for item in batch.items] + list(rest) == list(jobs)
    assert rest
    assert not batch.oversize


@pytest.mark.parametrize(("length", "oversize"), [(200, False), (201, True)])
def test_a_batch_of_more_than_twice_the_pace_lets_others_in_between(
    memory: World, monkeypatch: pytest.MonkeyPatch, length: int, oversize: bool
) -> None:
    monkeypatch.setattr(memory.ev.provider.pace, "characters", 100)
    monkeypatch.setattr(memory.ev.provider.pace, "learnt", True)
    chunker = type("Whole", (), {"spec": "whole", "split": lambda _, text: [(0, len(text))]})
    memory.ev.register(Kind("page", chunker=chunker()))
    memory.ev.add("page", "x" * length, id="1")
    batch, _ = memory.ev.pipeline.prepare(memory.ev.pipeline.claim(1))
    assert batch.characters == length
    assert batch.oversize is oversize


@pytest.mark.parametrize(("length", "together"), [(500, 2), (501, 1)])
@pytest.mark.parametrize("boxed", [False, True])
def test_a_record_that_is_larger_than_a_part_gets_a_batch_of_its_own(
    memory: World, monkeypatch: pytest.MonkeyPatch, length: int, together: int, boxed: bool
) -> None:
    monkeypatch.setattr(memory.ev.provider.pace, "characters", 500)
    monkeypatch.setattr(memory.ev.provider.pace, "learnt", True)
    size = length
    if boxed:
        memory.ev.add(KIND, "x", id="probe", boxed=True)
        (probe,) = memory.ev.pipeline.claim(1)
        (loaded,) = memory.ev.store.load([probe], 0)
        size -= len(loaded.box or "") - 1  # type: ignore[union-attr]
        memory.ev.queue.finish(probe, memory.ev.queue.content(probe))
    memory.ev.add(KIND, "short", id="1")
    memory.ev.add(KIND, "x" * size, id="2", boxed=boxed)
    batch, rest = memory.ev.pipeline.prepare(memory.ev.pipeline.claim(2))
    assert (len(batch.items), len(rest)) == (together, 2 - together)


def test_half_of_the_memory_that_is_set_is_for_texts(tmp_path: Path) -> None:
    world = World(("memory", "sqlite"), tmp_path, memory_mb=3)
    assert world.ev.pipeline.memory == 3 * 1024 * 1024 // 2
    world.close()


# provider calls


def test_a_call_is_told_when_to_stop_and_gets_its_rows_alone(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_all(memory.ev, KIND, "alpha", "beta", "gamma")
    batch, _ = memory.ev.pipeline.prepare(memory.ev.pipeline.claim(5))
    given: list[tuple[Any, Any]] = []
    embed = memory.ev.provider.embed

    def watched(texts: Sequence[str], stopping: Callable[[], bool]) -> Embedded:
        given.append((list(texts), stopping()))
        return embed(texts, stopping)

    monkeypatch.setattr(memory.ev.provider, "embed", watched)
    call = memory.ev.pipeline.call(batch, range(1, 3), lambda: True)
    assert given == [(["beta", "gamma"], True)]
    assert (call.rows, call.outage) == (range(1, 3), None)
    assert call.began <= call.ended
    memory.ev.pipeline.call(batch, range(1))
    assert given[-1] == (["alpha"], False)


def test_after_an_outage_no_more_calls_of_the_batch_are_made(memory: World) -> None:
    memory.embedder.max_batch = 1
    memory.embedder.before = away
    add_all(memory.ev, KIND, "alpha", "beta", "gamma")
    batch, _ = memory.ev.pipeline.prepare(memory.ev.pipeline.claim(5))
    memory.ev.pipeline.embed(batch)
    assert memory.embedder.texts.count("beta") == 0
    assert isinstance(batch.outage, ProviderUnavailable)


def test_the_number_of_calls_left_is_known(memory: World) -> None:
    memory.embedder.max_batch = 1
    add_all(memory.ev, KIND, "alpha", "beta", "gamma")
    batch, _ = memory.ev.pipeline.prepare(memory.ev.pipeline.claim(5))
    assert len(memory.ev.pipeline.calls(batch)) == batch.calls_left == 3


# what it costs, and what is counted


def test_what_calls_cost_is_shared_by_length_among_those_who_had_texts_in_them(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent: dict[Any, Any] = {}
    monkeypatch.setattr(memory.ev.provider, "record", spent.update)
    memory.ev.add(KIND, "a" * 10, id="a")
    memory.ev.add(KIND, "b" * 20, id="b")
    memory.ev.add("page", "c" * 30, id="c")
    jobs = sorted(memory.ev.pipeline.claim(5), key=lambda job: job.record_id)
    batch, _ = memory.ev.pipeline.prepare(jobs)
    memory.ev.pipeline.embed(batch)
    batch.costs = [Cost(range(3), 9, 0), Cost(range(3), 3, 12), Cost(range(1), 1, 5)]
    assert memory.ev.pipeline.write(batch).succeeded == 3
    assert spent == {("default", KIND): (3.0, 11.0), ("default", "page"): (1.0, 6.0)}
    tokens = [memory.ev.queue.history(k, i)[0].tokens for k, i in ((KIND, "a"), (KIND, "b"))]
    assert tokens == [7, 4]
    assert memory.ev.queue.history("page", "c")[0].tokens == 6


def test_shares_that_do_not_divide_add_up_to_what_was_paid(memory: World) -> None:
    add_all(memory.ev, KIND, *(letter * 7 for letter in "abc"))
    batch, _ = memory.ev.pipeline.prepare(memory.ev.pipeline.claim(5))
    memory.ev.pipeline.embed(batch)
    batch.costs = [Cost(range(3), 1, 10)]
    memory.ev.pipeline.write(batch)
    assert [memory.ev.queue.history(KIND, id)[0].tokens for id in "012"] == [3, 4, 3]


def test_what_is_paid_before_and_after_a_write_that_failed_adds_up(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.ev.add(KIND, "alpha", id="1")
    batch, _ = memory.ev.pipeline.prepare(memory.ev.pipeline.claim(5))
    memory.ev.pipeline.embed(batch)
    batch.costs = [Cost(range(1), 1, 7)]
    with monkeypatch.context() as patch:

        def is_away(*_: Any) -> None:
            raise IndexUnavailable("away")

        patch.setattr(memory.ev.index, "apply", is_away)
        with pytest.raises(IndexUnavailable):
            memory.ev.pipeline.write(batch)
    batch.costs = [Cost(range(1), 1, 5)]
    assert memory.ev.pipeline.write(batch).succeeded == 1
    assert memory.ev.queue.history(KIND, "1")[0].tokens == 12


def test_searches_find_it_after_so_long(memory: World) -> None:
    def freshness() -> tuple[int, float]:
        counts, total = FRESHNESS.seen().get((), ([0], 0.0))
        return sum(counts), total

    def chunks() -> tuple[float, float]:
        sums = CHUNKS.sums()
        return sums.get(("embedded",), 0.0), sums.get(("reused",), 0.0)

    (count, total), (embedded, reused) = freshness(), chunks()
    add_all(memory.ev, KIND, "alpha", paragraph("beta") + "\n\n" + paragraph("gamma"))
    memory.clock.move(7)
    work(memory.ev)
    assert freshness() == (count + 2, total + 14)
    assert chunks() == (embedded + 3, reused)
    memory.ev.add(KIND, paragraph("gamma") + "\n\n" + paragraph("delta"), id="1")
    work(memory.ev)
    assert freshness() == (count + 3, total + 14)
    assert chunks() == (embedded + 4, reused + 1)
    assert memory.ev.queue.history(KIND, "1")[-1].chunks_embedded == 1
    assert memory.ev.queue.history(KIND, "1")[-1].chunks_reused == 1


def test_only_what_was_finished_is_counted_as_found(memory: World) -> None:
    before = sum(FRESHNESS.seen().get((), ([0], 0.0))[0])
    ends = ATTEMPTS.sums()
    add_all(memory.ev, KIND, "alpha", "beta")
    jobs = memory.ev.pipeline.claim(2)
    memory.ev.queue.release(jobs[0])
    written = step(memory.ev, jobs)
    assert (written.succeeded, written.lost) == (1, 1)
    assert sum(FRESHNESS.seen()[()][0]) == before + 1
    for end, count in {"done": 1, "lost": 1, "failed": 0, "retry": 0, "released": 0}.items():
        assert ATTEMPTS.sums().get((end,), 0.0) == ends.get((end,), 0.0) + count


def test_released_for_an_outage_and_for_a_missing_loader_both_count(memory: World) -> None:
    memory.ev.register(Kind("page", load=lambda _: "text"))
    memory.ev.queue.enqueue("page", 1)
    memory.ev.add(KIND, "alpha", id="1")
    memory.ev.pipeline.serves()
    jobs = memory.ev.pipeline.claim(5)
    elsewhere = memory.tenant("default")
    elsewhere.pipeline.serves()
    elsewhere.pipeline._makers |= memory.ev.pipeline._makers
    memory.embedder.before = away
    written = step(elsewhere, jobs)
    assert (written.released, written.failed, written.lost) == (2, 0, 0)
    assert "no loader for it" in (job_of(memory.ev, "1", "page").error or "")
    assert job_of(memory.ev, "1").error == "no route to host"


# the cache of vectors


def test_several_texts_out_of_the_cache_keep_their_own_vectors(tmp_path: Path) -> None:
    world = World(("memory", "sqlite"), tmp_path, vector_cache_mb=1)
    add_all(world.ev, KIND, "alpha", "beta", "gamma")
    work(world.ev)
    world.embedder.calls.clear()
    for id, text in enumerate(("alpha", "new", "beta", "gamma")):
        world.ev.add("page", text, id=id)
    work(world.ev)
    assert world.embedder.texts == ["new"]
    for id, text in enumerate(("alpha", "new", "beta", "gamma")):
        hit = world.ev.search(text, kind="page", mode="semantic")[0]
        assert hit.id == str(id)
        assert hit.similarity == pytest.approx(1.0)
    counts = [world.ev.queue.history("page", str(n))[0] for n in range(4)]
    assert [(a.chunks_embedded, a.chunks_reused) for a in counts] == [
        (0, 1),
        (1, 0),
        (0, 1),
        (0, 1),
    ]
    world.close()


def test_a_cache_that_cannot_be_written_does_not_stop_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(("memory", "sqlite"), tmp_path, vector_cache_mb=1)

    def full(*_: Any) -> None:
        raise StoreError("disk full")

    monkeypatch.setattr(world.ev.store, "cache", full)
    add_all(world.ev, KIND, "alpha")
    assert work(world.ev).succeeded == 1
    assert "vectors are not cached: disk full" in caplog.text
    world.close()


# traces


def test_the_trace_of_a_record_says_which_job_it_was_and_why_it_waits(memory: World) -> None:
    memory.embedder.max_batch = 1
    memory.embedder.before = lambda texts: away(texts) if "beta" in texts else None
    with traced() as traces:
        with traces.tracer.start_as_current_span("the caller"):
            add_all(memory.ev, KIND, "alpha")
        jobs = memory.ev.pipeline.claim(1)
        with traces.tracer.start_as_current_span("another caller"):
            memory.ev.add(KIND, "beta", id="1")
        step(memory.ev, [*jobs, *memory.ev.pipeline.claim(1)])
        spans = [s for s in traces.all if s.name == "evervec job"]
        stages = {s.name for s in traces.all}
    assert [dict(span.attributes or {}) for span in spans] == [
        {"evervec.job_id": job_of(memory.ev, id).job_id, "evervec.kind": KIND} for id in "01"
    ]
    done, waits = spans
    assert done.status.is_ok
    assert not waits.status.is_ok
    assert waits.status.description == "no route to host"
    assert {"evervec prepare", "evervec embed", "evervec write"} <= stages


def test_what_was_never_called_for_is_given_back_without_an_error(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha")
    batch, _ = memory.ev.pipeline.prepare(memory.ev.pipeline.claim(1))
    written = memory.ev.pipeline.write(batch)
    assert (written.released, written.succeeded) == (1, 0)
    job = job_of(memory.ev, "0")
    assert (job.status, job.error, job.attempts) == (Status.PENDING, None, 0)


def test_lost_ends_of_all_ways_are_counted_together(memory: World) -> None:
    def choke(texts: Sequence[str]) -> None:
        if "poison" in texts:
            raise ValueError("choked")

    memory.embedder.before = choke
    add_all(memory.ev, KIND, "poison", "alpha", "beta")
    jobs = memory.ev.pipeline.claim(3)
    for job in jobs[:2]:
        memory.ev.queue.release(job)
    written = step(memory.ev, jobs)
    assert (written.succeeded, written.lost) == (1, 2)


def test_the_index_is_told_all_that_it_keeps_of_a_record(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Change] = []
    apply = memory.ev.index.apply

    def watched(changes: Sequence[Change], conn: Any = None) -> Any:
        given.extend(changes)
        return apply(changes, conn)

    monkeypatch.setattr(memory.ev.index, "apply", watched)
    first, second = paragraph("alpha"), paragraph("beta")
    memory.ev.add(KIND, first, id="1")
    work(memory.ev)
    memory.ev.add(
        KIND, f"{second}\n\n{first}", id="1", metadata={"a": 1}, weight=0.5, updated_at=77.0
    )
    work(memory.ev)
    (number,) = [e.record for e in memory.ev.store.expected(None, version_of(memory), 0, 9)]
    change = given[-1]
    assert (change.record, change.version, change.tenant) == (number, version_of(memory), "default")
    assert (change.kind, change.id, change.seq) == (KIND, "1", job_of(memory.ev, "1").seq)
    assert (change.metadata, change.weight, change.updated_at) == ({"a": 1}, 0.5, 77.0)
    assert [(point.position, point.text) for point in change.points] == [(0, second)]
    assert list(change.kept.values()) == [1]


def test_jobs_of_a_tenant_that_used_up_its_quota_are_given_back(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha")
    memory.tenant("other").add(KIND, "beta", id="1")
    jobs = memory.ev.pipeline.claim(5)
    memory.ev.pipeline._used_up = {"default"}
    assert step(memory.ev, jobs).succeeded == 1
    job = job_of(memory.ev, "0")
    assert (job.status, job.attempts) == (Status.PENDING, 0)
    jobs = memory.ev.pipeline.claim(5)
    assert [job.tenant for job in jobs] == ["default"], "a claim asks the store again"
    memory.ev.pipeline._used_up = {"default"}
    assert step(memory.ev, jobs).processed == 0
    assert job_of(memory.ev, "0").status is Status.PENDING


@pytest.mark.parametrize(("length", "loads"), [(50, 2), (51, 1)])
def test_more_is_loaded_until_half_of_a_batch_is_new(
    memory: World, monkeypatch: pytest.MonkeyPatch, length: int, loads: int
) -> None:
    chunker = type("Whole", (), {"spec": "whole", "split": lambda _, text: [(0, len(text))]})
    memory.ev.register(Kind("page", chunker=chunker()))
    memory.ev.add("page", "known " * 16, id="2")
    work(memory.ev)
    version = version_of(memory, "page")
    memory.ev.add("page", "x" * length, id="1", priority=2)
    records = [e.record for e in memory.ev.store.expected(None, version, 0, 9) if e.id == "2"]
    memory.ev.store.reopen(version, records, forget=False)
    monkeypatch.setattr(memory.ev.provider.pace, "characters", 100)
    monkeypatch.setattr(memory.ev.provider.pace, "learnt", True)
    jobs = memory.ev.pipeline.claim(5)
    assert [job.record_id for job in jobs] == ["1", "2"]
    batch, rest = memory.ev.pipeline.prepare(jobs)
    assert (len(batch.items), len(rest), batch.characters) == (loads, 2 - loads, length)


# several models


class FakeProvider:
    """Whether it may be called, as the test says; keeps when it was told to stop."""

    def __init__(self, name: str, log: list[str], **how: Any) -> None:
        self.name, self.log = name, log
        self.shut, self.is_ready = how.get("shut"), how.get("ready", True)
        self.waits = how.get("waits", 0.0)
        self.meanwhile: Callable[[Callable[[], bool]], object] = lambda _: None

    def gate(self) -> Any:
        return self.shut

    def ready(self, stopping: Callable[[], bool]) -> bool:
        self.log.append(self.name)
        self.meanwhile(stopping)
        return bool(self.is_ready)


class FakeModel:
    def __init__(self, provider: FakeProvider) -> None:
        self.provider = provider


def use_models(world: World, *providers: FakeProvider) -> list[Any]:
    models: Any = [FakeModel(provider) for provider in providers]
    world.ev.pipeline.models = models
    return list(models)


def test_models_whose_gate_is_open_are_asked_first(memory: World, clock: Clock) -> None:
    log: list[str] = []
    shut = FakeProvider("shut", log, shut="an outage", ready=False, waits=9.0)
    use_models(memory, shut, FakeProvider("open", log, waits=2.0))
    stops: list[bool] = []

    def hang(stopping: Callable[[], bool]) -> None:
        stops.append(stopping())
        clock.move(0.1)
        stops.append(stopping())
        clock.move(0.01)
        stops.append(stopping())

    shut.meanwhile = hang
    assert memory.ev.pipeline.ready()
    assert log == ["open", "shut"]
    assert stops == [False, False, True], "the others wait for a tenth of a second"
    assert [m.provider for m in memory.ev.pipeline._away] == [shut]
    assert memory.ev.pipeline.waits == 2.0


def test_when_no_model_is_ready_the_last_is_waited_for(memory: World, clock: Clock) -> None:
    log: list[str] = []
    first = FakeProvider("first", log, ready=False)
    second = FakeProvider("second", log, ready=False)
    models = use_models(memory, first, second)
    stops: list[bool] = []

    def hang(stopping: Callable[[], bool]) -> None:
        clock.move(1000)
        stops.append(stopping())

    second.meanwhile = hang
    assert not memory.ev.pipeline.ready()
    assert memory.ev.pipeline._away == models
    assert not memory.ev.pipeline.ready(lambda: True)
    assert (log, stops) == (["first", "second"] * 2, [False, True])
    second.is_ready = True
    assert memory.ev.pipeline.ready()
    assert memory.ev.pipeline._away == models[:1]


def test_without_a_model_there_is_nothing_to_wait_for(memory: World) -> None:
    use_models(memory)
    assert memory.ev.pipeline.waits == 0.0
    assert not memory.ev.pipeline.ready()


def test_jobs_of_a_model_that_is_away_are_left_for_later(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha")
    work(memory.ev)
    memory.ev.migrate("hashing:32")
    (main, other) = memory.ev.pipeline.models
    memory.ev.add(KIND, "beta", id="0")
    memory.ev.pipeline._away = [main]
    claimed = memory.ev.pipeline.claim(5)
    assert claimed
    assert {memory.ev.pipeline._makers[job.version] for job in claimed} == {other}
    memory.ev.pipeline._away = [main, other]
    assert memory.ev.pipeline.claim(5) == []
    memory.ev.pipeline._away = []
    rest = memory.ev.pipeline.claim(5)
    assert {memory.ev.pipeline._makers[job.version] for job in rest} == {main}


def test_a_batch_is_of_one_model_and_the_rest_is_kept_for_later(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha", "beta")
    work(memory.ev)
    memory.ev.migrate("hashing:32")
    add_all(memory.ev, KIND, "gamma", "delta")
    jobs = list(memory.ev.pipeline.claim(9))
    assert len(jobs) == 4
    batch, rest = memory.ev.pipeline.prepare(jobs)
    assert batch.model is memory.ev.pipeline._makers[jobs[0].version]
    assert {job.version for job in batch.jobs} == {jobs[0].version}
    assert sorted(job.job_id for job in [*batch.jobs, *rest]) == sorted(j.job_id for j in jobs)
    assert all(job.version != jobs[0].version for job in rest)
    assert step(memory.ev, jobs).succeeded == 4
    assert memory.ev.verify().clean


def test_a_row_that_its_loader_no_longer_has_is_gone_with_its_points(memory: World) -> None:
    rows: dict[str, str] = {"1": "alpha"}
    memory.ev.register(Kind("page", load=rows.get))
    memory.ev.queue.enqueue("page", 1)
    work(memory.ev)
    assert memory.ev.get("page", "1") is not None
    rows.clear()
    memory.ev.queue.enqueue("page", 1)
    assert work(memory.ev).succeeded == 1
    assert memory.ev.get("page", "1") is None
    assert memory.ev.search("alpha") == []
    assert memory.ev.verify().complete


def test_all_tenants_that_used_up_their_quota_since_a_claim_are_left_alone(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory.ev.store, "hold_spent", lambda tenants: tenants)
    monkeypatch.setattr(memory.ev.provider, "record", lambda spent: None)
    for tenant in ("a", "b"):
        memory.tenant(tenant).add(KIND, tenant, id="1")
    for job in memory.ev.pipeline.claim(5):
        batch, _ = memory.ev.pipeline.prepare([job])
        memory.ev.pipeline.embed(batch)
        batch.costs = [Cost(range(1), 1, 5)]
        assert memory.ev.pipeline.write(batch).succeeded == 1
    assert memory.ev.pipeline._used_up == {"a", "b"}
