"""Which versions a process serves, how it cuts their texts, and what it claims."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import evervec
from evervec import Kind, Status
from evervec.telemetry.counters import STAGES
from support.world import KIND, Clock, World, add_all, job_of, step, version_of, work


def test_what_is_served_is_found_once_until_something_changes(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha")
    pipeline = memory.ev.pipeline
    served = pipeline.served.refresh()
    assert served == [version_of(memory.ev)]
    assert pipeline.served.refresh() is served
    memory.ev.register(Kind("page"))
    assert pipeline.served.refresh() is not served


def test_a_retired_version_is_not_served(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    add_all(memory.ev, KIND, "alpha")
    memory.ev.pipeline.served.refresh()
    (known,) = memory.ev.store.versions.collections()
    retired = replace(known, state="retired", version=known.version + 1)
    monkeypatch.setattr(memory.ev.store.versions, "collections", lambda: [retired, known])
    assert memory.ev.pipeline.served.refresh() == [known.version]


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

    ev.pipeline.served.refresh()
    ev.register(Kind("task"))
    monkeypatch.setattr(ev.models, "of", cannot)
    assert ev.pipeline.served.refresh() == []
    asked.clear()
    clock.move(4.9)
    assert (ev.pipeline.served.refresh(), asked) == ([], [])
    clock.move(0.1)
    monkeypatch.setattr(ev.models, "of", of)
    assert len(ev.pipeline.served.refresh()) == 2


def test_the_store_is_told_how_a_kind_is_cut_only_when_it_does_not_know(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[int, Any]] = []
    describe = memory.ev.store.versions.describe

    def watched(ways: Any) -> None:
        told.append(ways)
        describe(ways)

    monkeypatch.setattr(memory.ev.store.versions, "describe", watched)
    add_all(memory.ev, KIND, "alpha")
    memory.ev.pipeline.served.refresh()
    (first,) = told
    assert [(way.chunker, way.app) for way in first.values()] == [("content:16-64", False)]
    memory.ev.register(Kind(KIND))
    memory.ev.pipeline.served.refresh()
    assert len(told) == 1
    memory.ev.register(Kind(KIND, load=lambda _: None))
    memory.ev.pipeline.served.refresh()
    assert [way.app for way in told[1].values()] == [True]
    assert len(told) == 2


def test_a_kind_whose_loader_another_process_has_is_not_served(memory: World) -> None:
    memory.ev.register(Kind("page", load=lambda _: "text"))
    memory.ev.queue.enqueue("page", 1)
    (version,) = memory.ev.pipeline.served.refresh()
    elsewhere = memory.tenant("another")
    assert elsewhere.pipeline.served.refresh() == []
    (collection,) = memory.ev.store.versions.collections()
    assert elsewhere.pipeline.served.cutter_of(collection) is None
    assert memory.ev.pipeline.served.cutter_of(collection) is not None
    assert [job.version for job in memory.ev.pipeline.claim(5)] == [version]


def test_a_process_with_other_settings_cuts_as_the_store_says(tmp_path: Path) -> None:
    world = World(("sqlite", "sqlite"), tmp_path)
    world.ev.add(KIND, "alpha", id="1")
    work(world.ev)
    elsewhere = world.open(chunk_tokens=64)
    (collection,) = elsewhere.store.versions.collections()
    chunker = elsewhere.pipeline.served.chunker_of(collection)
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
    assert (job_of(memory.ev, "1", "page").error or "").startswith("the chunker failed: ")
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
    pipeline.served.refresh()
    memory.ev.add("page", "beta", id="1")
    everything = [c.version for c in memory.ev.store.versions.collections()]
    monkeypatch.setattr(pipeline.served, "refresh", lambda: everything)
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
    assert memory.ev.pipeline.claim(3, suspects=False) == []
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


def test_a_store_that_is_only_read_is_not_told_of_the_model(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with evervec.open(url, embedder="noop") as ev:
        ev.add("n", "alpha", id="1")
    with evervec.open(f"{url}?mode=ro", embedder="hashing") as ev:
        assert ev.get("n", "1") is not None
        assert [c.spec for c in ev.store.versions.collections()] == [None]
    with evervec.open(url, embedder="hashing") as ev:
        assert [c.spec for c in ev.store.versions.collections()] != [None]
