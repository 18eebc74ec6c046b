"""Versions that wait: the index refuses their vectors, or their provider is away."""

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from evervec import IndexUnavailable
from evervec.errors import WrongCollection
from support.world import KIND, Clock, World, add_all, job_of, step, version_of, work


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
    monkeypatch.setattr(world.ev.index, "refuses", lambda kind, spec: spec and says[0])

    def say(reason: Any) -> None:
        says[0] = reason

    return say


def test_a_version_that_the_index_refuses_waits_and_others_go_on(
    memory: World, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ev = memory.ev
    add_all(ev, KIND, "alpha", "beta")
    ev.add("page", "gamma", id="1")
    ev.pipeline.served.refresh()
    say = refuse(memory, monkeypatch, version_of(memory.ev))
    with caplog.at_level(logging.ERROR, "evervec"):
        written = step(ev, ev.pipeline.claim(5))
    assert (written.succeeded, written.released, written.lost) == (1, 2, 0)
    assert [error for _, error in written.errors] == ["it has 7 dimensions"] * 2
    assert {job_id for job_id, _ in written.errors} == {job_of(ev, id).job_id for id in "01"}
    assert job_of(ev, "0").error == "it has 7 dimensions"
    assert len(caplog.records) == 1
    say(None)
    ev.add("page", "delta", id="2")
    assert [job.kind for job in ev.pipeline.claim(5)] == ["page"]
    clock.move(4.9)
    assert ev.pipeline.claim(5) == [], "it is not asked again yet"
    clock.move(0.1)
    assert [job.kind for job in ev.pipeline.claim(5)] == [KIND] * 2


def test_all_that_waits_or_fails_in_one_batch_is_counted(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def choke(texts: Sequence[str]) -> None:
        if "poison" in texts:
            raise ValueError("choked")

    def refused(changes: Sequence[Any], conn: Any = None) -> Any:
        raise WrongCollection("it has 7 dimensions", version=changes[0].version)

    ev = memory.ev
    memory.embedder.before = choke
    add_all(ev, KIND, "alpha", "beta")
    ev.add("page", "gamma", id="1")
    ev.add("task", "poison", id="1")
    monkeypatch.setattr(ev.index, "apply", refused)
    written = step(ev, ev.pipeline.claim(9))
    assert (written.released, written.retried, written.succeeded) == (3, 1, 0)
    assert len(written.errors) == 4


def test_a_version_stays_refused_while_the_index_says_so_or_is_away(
    memory: World, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ev = memory.ev
    add_all(ev, KIND, "alpha")
    say = refuse(memory, monkeypatch, version_of(memory.ev))
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


class FakeProvider:
    """Whether it may be called, as the test says; keeps when it was told to stop."""

    def __init__(self, name: str, log: list[str], **how: Any) -> None:
        self.name, self.log = name, log
        self.shut, self.is_ready = how.get("shut"), how.get("ready", True)
        self.waits = how.get("waits", 0.0)
        self.meanwhile: Callable[[Callable[[], bool]], object] = lambda _: None

    def __str__(self) -> str:
        return self.name

    def gate(self) -> Any:
        return self.shut

    def try_resume(self, stopping: Callable[[], bool]) -> bool:
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
    assert memory.ev.pipeline.probe_providers()
    assert log == ["open", "shut"]
    assert stops == [False, False, True], "the others wait for a tenth of a second"
    assert [str(m.provider) for m in memory.ev.pipeline._unavailable] == ["shut"]
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

    told: list[bool] = []
    first.meanwhile = lambda stopping: told.append(stopping())
    second.meanwhile = hang
    assert not memory.ev.pipeline.probe_providers()
    assert memory.ev.pipeline._unavailable == models
    assert not memory.ev.pipeline.probe_providers(lambda: True)
    assert (log, stops, told) == (["first", "second"] * 2, [False, True], [False, True])
    second.is_ready = True
    assert memory.ev.pipeline.probe_providers()
    assert memory.ev.pipeline._unavailable == models[:1]


def test_without_a_model_there_is_nothing_to_wait_for(memory: World) -> None:
    use_models(memory)
    assert memory.ev.pipeline.waits == 0.0
    assert not memory.ev.pipeline.probe_providers()


def test_jobs_of_a_model_that_is_away_are_left_for_later(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha")
    work(memory.ev)
    memory.ev.migrate("hashing:32")
    (main, other) = memory.ev.pipeline.models
    memory.ev.add(KIND, "beta", id="0")
    memory.ev.pipeline._unavailable = [main]
    claimed = memory.ev.pipeline.claim(5)
    assert claimed
    assert {memory.ev.pipeline.served.models[job.version] for job in claimed} == {other}
    memory.ev.pipeline._unavailable = [main, other]
    assert memory.ev.pipeline.claim(5) == []
    memory.ev.pipeline._unavailable = []
    rest = memory.ev.pipeline.claim(5)
    assert {memory.ev.pipeline.served.models[job.version] for job in rest} == {main}


def test_a_refused_version_is_asked_about_again_in_its_time_and_forgotten_when_it_is_gone(
    memory: World,
) -> None:
    served = memory.ev.pipeline.served
    served._refused |= {98: math.inf, 99: 0.0}
    assert served.refresh_claimable(()) == served.refresh()
    assert list(served._refused) == [98]
