"""Schedules on real engines, in a bounded form, and proof of what is seen there."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from evervec.indexes.qdrant.edge import EdgeEngine
from evervec.stores.notes import UNAWARE
from evervec.stores.postgres import versions
from explorer.damage import TWICE
from explorer.engines import aligned
from explorer.exploring import Explorer
from explorer.replaying import Line, expanded, following, replay
from explorer.ruling import ruled, ruling
from explorer.scopes import Result, Scope, Stage
from explorer.steps import CLOCK, STARTS, STORE, Choice, Step
from explorer.world import Process, World

WORKER = {"worker1": ("worker", 1)}
BEFORE = (("add", "0", "C"), ("add", "1", "A"))
STANDS = Step(CLOCK, "stands", False)


@pytest.mark.parametrize(
    ("engine", "count"), [("lancedb", 2), ("qdrant", 2), ("postgres", 4), ("duckdb", 2)]
)
def test_some_schedules_on_an_engine_find_nothing(engine: str, count: int) -> None:
    tally = Explorer(seed=2).explore_engine(engine, count)
    assert tally.failures == []
    assert tally.on_engine[engine] == count


@pytest.mark.parametrize("index", ["lancedb", "qdrant"])
def test_a_schedule_of_the_model_comes_to_the_same_steps_on_an_engine(index: str) -> None:
    scope = Scope("model", {**WORKER, "application": ("application", (("add", "1", "B"),))}, BEFORE)
    real = Scope(index, scope.actors, BEFORE)
    schedule: list[Line] = [("application", 2), ("worker1", 40)]
    with ruled():
        model = Stage(scope).run(following(scope, expanded(schedule)))
        there = Stage(real).run(aligned(real, model.world.happened))
    assert there.problems == []
    assert "apply" in _steps(model, "worker1")
    steps = iter(_steps(there, "worker1"))
    assert all(step in steps for step in _steps(model, "worker1"))


def _steps(result: Result, actor: str) -> list[str]:
    return [h.step.what for h in result.world.happened if h.choice.actor == actor]


def _run(scope: Scope, schedule: list[Line]) -> Result:
    with ruled():
        return Stage(scope).run(following(scope, expanded(schedule)))


PASSED = Scope(
    "qdrant",
    {
        "worker1": ("worker", 1),
        "worker2": ("worker", 1),
        "application": ("application", (("boxed", "1", "D"),)),
    },
    (("add", "1", "A"),),
    ("pause", "crash"),
    2,
    waiting=(("add", "1", "B"),),
)
PASSED_SCHEDULE: list[Line] = [
    ("worker2", 20), ("world", "pause"), ("application", 2), ("worker1", 25), ("worker2", 1),
    ("worker2", "crash"), ("worker1", 1),
]  # fmt: skip
"""A worker has looked at the points, is passed by another one, writes and dies."""

REPAIRED = Scope(
    "qdrant",
    {
        "repairer": ("repairer", 1),
        "worker1": ("worker", 1),
        "application": ("application", (("add", "1", "B"),)),
    },
    (("add", "1", "A"),),
    (),
    0,
    damaged=(("1", TWICE),),
    verifies=False,
)
REPAIRED_SCHEDULE: list[Line] = [
    ("repairer", 20), ("application", 2), ("worker1", 20), ("repairer", 1), ("worker1", 9),
]  # fmt: skip
"""A repair is to take out one of two equal points, of which a worker is about to keep one."""


@pytest.mark.parametrize(
    ("scope", "schedule"), [(PASSED, PASSED_SCHEDULE), (REPAIRED, REPAIRED_SCHEDULE)]
)
def test_nobody_comes_between_a_look_and_a_write_in_an_engine_without_guards(
    monkeypatch: pytest.MonkeyPatch, scope: Scope, schedule: list[Line]
) -> None:
    assert replay(scope, schedule) == []
    monkeypatch.setattr(EdgeEngine, "writing", lambda self: nullcontext())
    assert replay(scope, schedule)  # the explorer sees that it happens without the lock


def test_who_waits_for_the_lock_does_not_keep_its_holder_from_going_on() -> None:
    workers = {"worker1": ("worker", 1, 1), "worker2": ("worker", 1, 1)}
    waiting = (("add", "0", "B"), ("add", "1", "B"))
    scope = Scope("qdrant", workers, BEFORE, (), 0, waiting=waiting)

    def decide(world: World, waiting: list[Process]) -> Choice:
        names = [p.name for p in waiting]
        first = "worker2" if len(world.happened) < 18 else "worker1"
        return Choice(first if first in names else names[0])

    with ruled():
        result = Stage(scope).run(decide)
    assert result.problems == []
    assert "sleep 0.2" in _steps(result, "worker1")
    assert len(result.world.happened) < 200


def test_a_statement_that_waits_for_a_lock_lets_others_go_on() -> None:
    scope = Scope(
        "own",
        {
            **WORKER,
            "application1": ("holder", (("add", "1", "B"),), "commit", 0, 60),
            "application": ("application", (("add", "1", "C"),)),
        },
        BEFORE,
        store="postgres",
    )
    result = _run(scope, [("application1", 20), ("application", 20), ("worker1", 60)])
    assert result.problems == []
    assert "waits for a lock" in _steps(result, "application")
    order = [h.choice.actor for h in result.world.happened]
    assert order.index("worker1") < max(n for n, a in enumerate(order) if a == "application1")


def test_a_process_starts_when_nobody_is_in_its_way() -> None:
    """It takes no turns until it has started, so it could not wait for another one's."""
    stage = Stage(Scope("own", {}, BEFORE, store="postgres"))
    world = World(stage.disk, "own", stage.settings)
    turns = ["other", "holder"]
    started = []

    def holder(p: Process) -> None:
        caller = stage.disk.caller(p)
        with caller.joined() as conn, world.quietly():
            conn.execute("lock table evervec.versions")
        p.ask(STANDS)
        caller.commit(lambda: None)

    def other(p: Process) -> None:
        started.append(p.life)

    with ruling(world):
        assert world.run(
            {"holder": holder, "other": other},
            lambda _, waiting: Choice(turns.pop(0) if turns else waiting[0].name),
        )
        world.end()
    assert started == ["other-0"]
    order = [(h.choice.actor, h.step.what) for h in world.happened]
    assert order[:2] == [("other", STARTS), ("holder", STANDS.what)]
    assert order[-1] == ("other", STARTS)


def test_a_delete_leaves_what_it_cannot_see_yet() -> None:
    scope = Scope(
        "own",
        {
            "application1": ("holder", (("add", "2", "B"),), "prepare", 0, 80),
            "application2": ("holder", (("delete", "2"),), "commit", 0, 400),
        },
        BEFORE,
        (),
        0,
        store="postgres",
    )
    schedule: list[Line] = [("application1", 21), ("application2", 6), ("application1", 1)]
    assert replay(scope, schedule) == []


def test_transactions_that_wait_for_each_other_are_told_apart_from_a_hang() -> None:
    """The application's own mistake: the server ends one of the two, and the other commits."""
    scope = Scope(
        "own",
        {
            "application1": ("holder", (("add", "0", "B"), ("add", "1", "B")), "commit", 0, 0),
            "application2": ("holder", (("add", "1", "D"), ("add", "0", "D")), "commit", 0, 0),
        },
        BEFORE,
        store="postgres",
    )
    result = _run(scope, [("application1", 12), ("application2", 40), ("application1", 40)])
    assert result.problems == []
    ended = [h for h in result.world.happened if h.step.what.startswith("the transaction ends")]
    assert len(ended) == 1


def test_nobody_needs_the_store_while_a_transaction_is_open_in_sqlite() -> None:
    scope = Scope(
        "model",
        {**WORKER, "application1": ("holder", (("add", "1", "B"),), "commit", 0, 60)},
        (("add", "0", "C"),),
        table=None,
    )
    result = _run(scope, [("application1", 1), ("worker1", 60)])
    assert result.problems == []
    happened = result.world.happened
    inside = [h for h in happened[1:] if h.choice.actor == "worker1"]
    ended = next(
        n for n, h in enumerate(happened) if h.step.what.startswith("the transaction ends")
    )
    first = next(n for n, h in enumerate(happened) if h in inside and h.step.resource == STORE)
    assert ended < first


GIVEN_UP = Scope(
    "own",
    {
        "application1": ("holder", (("add", "2", "A"),), "roll back", 0, 60),
        "application2": ("holder", (("add", "1", "A"),), "commit", 40, 400),
        "changer": ("changer", ("migrate", "step", "cancel", "wait", "step", "step")),
    },
    (("add", "0", "C"),),
    (),
    0,
    restarts=True,
    store="postgres",
)
GIVEN_UP_SCHEDULE: list[Line] = [
    ("application1", 40), ("changer", 40), ("application2", 40), ("changer", 20),
    ("application1", 10), ("changer", 400),
]  # fmt: skip
"""A change of model begins under one open transaction, is given up under another, and goes away."""

PREPARED = Scope(
    "own",
    {
        "application1": ("holder", (("add", "1", "A"),), "prepare", 0, 400),
        "changer": ("changer", ("migrate", "step", "work", "step", "step", "step")),
    },
    (("add", "0", "C"),),
    (),
    0,
    restarts=True,
    store="postgres",
)
PREPARED_SCHEDULE: list[Line] = [("application1", 40), ("changer", 400)]


@pytest.mark.parametrize(
    ("scope", "schedule"), [(GIVEN_UP, GIVEN_UP_SCHEDULE), (PREPARED, PREPARED_SCHEDULE)]
)
def test_a_change_of_model_waits_for_transactions(scope: Scope, schedule: list[Line]) -> None:
    assert replay(scope, schedule) == []


def test_the_explorer_sees_a_version_dropped_under_a_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(versions, "UNAWARE", replace(UNAWARE, name="unaware of {}"))
    assert replay(GIVEN_UP, GIVEN_UP_SCHEDULE)


def test_the_explorer_sees_a_record_that_a_prepared_transaction_brings_too_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(versions.Versions, "track_unaware", lambda self, version, state="": True)
    assert replay(PREPARED, PREPARED_SCHEDULE)
