"""How much is loaded, put into a batch and sent in one provider call."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from evervec import Kind, ProviderUnavailable
from evervec.embedders.base import Embedded
from evervec.stores.values import Unreadable
from evervec.worker.pipeline import _length
from support.world import KIND, World, add_all, step, version_of, work


def away(_: object) -> None:
    raise ProviderUnavailable("no route to host")


@pytest.mark.parametrize(
    ("most", "loads"), [(1000, [100, 100, 200, 400, 200]), (400, [100, 100, 200])]
)
def test_what_is_known_already_is_loaded_in_ever_larger_parts(
    memory: World, monkeypatch: pytest.MonkeyPatch, most: int, loads: list[int]
) -> None:
    texts = [f"{n:02}" + "x" * 38 for n in range(60)]
    add_all(memory.ev, KIND, *texts)
    work(memory.ev)
    version = version_of(memory.ev)
    records = [e.record for e in memory.ev.store.records.expected(None, version, 0, 100)]
    memory.ev.store.changes.reopen(version, records, forget=False)
    pace = memory.ev.provider.pace
    monkeypatch.setattr(pace, "characters", 100)
    monkeypatch.setattr(pace, "learnt", True)
    monkeypatch.setattr(memory.ev.pipeline, "memory", most)
    load, asked = memory.ev.store.leases.load, []

    def watched(jobs: Sequence[Any], characters: int) -> Any:
        asked.append(characters)
        return load(jobs, characters)

    monkeypatch.setattr(memory.ev.store.leases, "load", watched)
    jobs = memory.ev.pipeline.claim(60)
    batch, rest = memory.ev.pipeline.prepare(jobs)
    assert asked == loads
    assert [item.job for item in batch.items] + list(rest) == list(jobs)
    assert rest
    assert not batch.oversize
    assert memory.ev.pipeline.calls(batch) == []
    assert batch.calls_left == 0


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
        (loaded,) = memory.ev.store.leases.load([probe], 0)
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


@pytest.mark.parametrize(("length", "loads"), [(50, 2), (51, 1)])
def test_more_is_loaded_until_half_of_a_batch_is_new(
    memory: World, monkeypatch: pytest.MonkeyPatch, length: int, loads: int
) -> None:
    chunker = type("Whole", (), {"spec": "whole", "split": lambda _, text: [(0, len(text))]})
    memory.ev.register(Kind("page", chunker=chunker()))
    memory.ev.add("page", "known " * 16, id="2")
    work(memory.ev)
    version = version_of(memory.ev, "page")
    memory.ev.add("page", "x" * length, id="1", priority=2)
    records = [
        e.record for e in memory.ev.store.records.expected(None, version, 0, 9) if e.id == "2"
    ]
    memory.ev.store.changes.reopen(version, records, forget=False)
    monkeypatch.setattr(memory.ev.provider.pace, "characters", 100)
    monkeypatch.setattr(memory.ev.provider.pace, "learnt", True)
    jobs = memory.ev.pipeline.claim(5)
    assert [job.record_id for job in jobs] == ["1", "2"]
    batch, rest = memory.ev.pipeline.prepare(jobs)
    assert (len(batch.items), len(rest), batch.characters) == (loads, 2 - loads, length)


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


def test_what_is_gone_or_cannot_be_read_has_no_length() -> None:
    assert _length(None) == 0
    assert _length(Unreadable("broken")) == 0


def test_the_row_of_an_attached_table_is_read_for_its_own_job(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents: Any = memory.ev.pipeline._contents
    read, given = contents.read, []

    def watched(item: Any, loaded: Any, row: Any) -> Any:
        given.append((item.job.record_id, row))
        return read(item, loaded, None)

    monkeypatch.setattr(contents, "rows", lambda pairs: {j.job_id: j.record_id for j, _ in pairs})
    monkeypatch.setattr(contents, "read", watched)
    add_all(memory.ev, KIND, "alpha", "beta")
    memory.ev.pipeline.prepare(memory.ev.pipeline.claim(5))
    assert given == [("0", "0"), ("1", "1")]
