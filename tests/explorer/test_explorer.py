"""The explorer in a bounded form, and proof that it can see what it looks for."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from evervec.worker.index_writer import IndexWriter
from evervec.worker.pipeline import Pipeline
from explorer.actors import WRITE_ROW
from explorer.exhaustive import Exhaustive
from explorer.exploring import Explorer
from explorer.replaying import Line, Shrunk, compressed, expanded, replay
from explorer.ruling import ruled
from explorer.scopes import ANY, Result, Scope, Stage
from explorer.script import told
from explorer.small import small_scopes
from explorer.states import State
from explorer.steps import GO, PAUSE, POWER, PROVIDER, WORLD, Choice
from explorer.world import Process, World

TWO_WORKERS = {"worker1": ("worker", 1), "worker2": ("worker", 1)}


def test_the_first_scopes_and_some_schedules_by_chance_find_nothing() -> None:
    tally = Explorer(seed=1).explore_some(scopes=2, walks=120)
    assert tally.failures == []
    assert tally.whole == 2
    assert tally.by_chance == 120


@pytest.mark.parametrize("index", ["model", "own"])
def test_every_schedule_of_a_small_scope_is_tried(index: str) -> None:
    scope = Scope(
        index,
        {**TWO_WORKERS, "application": ("application", (("add", "1", "B"),))},
        (("add", "0", "C"), ("add", "1", "A")),
        (),
        0,
    )
    with ruled():
        search = Exhaustive(Stage(scope))
        assert [r.problems for r in search.results() if r.problems] == []
    assert search.is_over
    assert search.runs > 2


@pytest.mark.parametrize("place", [4, 44, 194])
def test_what_is_foreseen_is_what_running_shows(place: int) -> None:
    """The same schedules come to their end, from a scope with a power cut, one without a fault and
    one of a table with a fault."""
    scope = replace(small_scopes(2)[place], verifies=False)
    ends, states = [], []
    with ruled():
        for foresees in (False, True):
            search = Exhaustive(Stage(scope), foresees=foresees)
            ended = (r.choices for r in search.results() if r.problems is not None)
            ends.append(list(islice(ended, 4)))
            states.append(search)
    assert ends[0] == ends[1]
    plain, foreseeing = states
    assert plain.foreseen == 0
    assert foreseeing.cut + foreseeing.foreseen == plain.cut
    assert foreseeing.foreseen > 0 or POWER in scope.faults


def test_a_step_that_does_something_else_the_next_time_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = iter(range(10**6))
    monkeypatch.setattr("evervec.worker.pipeline.Pipeline.claim", _claim_sometimes(count))
    scope = next(s for s in small_scopes(2) if s.most_faults == 0)
    with ruled(), pytest.raises(AssertionError, match="in another state than was foreseen"):
        list(Exhaustive(Stage(scope)).results())


def _claim_sometimes(count: Iterator[int]) -> Callable[..., Any]:
    claim = Pipeline.claim

    def sometimes(self: Pipeline, limit: int, **named: Any) -> Any:
        return claim(self, limit, **named) if next(count) % 3 else []

    return sometimes


def test_states_differ_by_the_moment_at_which_a_worker_embedded() -> None:
    """It is stored with the attempt, some steps later."""
    actors, before = {"worker1": ("worker", 1)}, (("add", "0", "C"),)
    scope = Scope("own", actors, before, (PAUSE,), 1, waiting=(("add", "1", "A"),))
    with ruled():
        stage = Stage(scope)
        first, again, later = (
            _state_after(stage, then) for then in ((GO, PAUSE), (GO, PAUSE), (PAUSE, GO))
        )
    assert first == again
    assert first._replace(actors={}) == later._replace(actors={})
    assert first.actors != later.actors


def _state_after(stage: Stage, actions: Sequence[str]) -> State:
    """The state after what happens to a worker that is about to embed."""
    left, states = list(actions), list[State]()

    def decide(world: World, waiting: list[Process]) -> Choice | None:
        (worker,) = waiting
        assert worker.pending is not None
        if len(left) == len(actions) and worker.pending.resource != PROVIDER:
            return Choice(worker.name)
        if left:
            action = left.pop(0)
            return Choice(worker.name if action == GO else WORLD, action)
        states.append(world.state({}, 0))
        return None

    stage.run(decide, lambda world: False)
    return states[0]


def test_an_exploration_goes_on_where_it_was_left() -> None:
    whole = Explorer(seed=3)
    whole.explore_some(scopes=2, walks=0)
    first = Explorer(seed=3)
    first.explore_some(scopes=1, walks=0)
    rest = Explorer(seed=3, position=first.position)
    rest.explore_some(scopes=1, walks=0)
    first.tally.add(rest.tally)
    assert rest.position == whole.position
    assert first.tally.whole == whole.tally.whole == 2
    assert first.tally.ended == whole.tally.ended


def test_a_schedule_is_the_same_each_time_it_is_run() -> None:
    scope = next(s for s in small_scopes(2) if s.most_faults)
    with ruled():
        stage = Stage(scope)
        runs = [_digest(result) for result in _first(stage, 20)]
        again = [_digest(result) for result in _first(stage, 20)]
    assert runs == again


def _first(stage: Stage, count: int) -> Iterator[Result]:
    return islice(Exhaustive(stage).results(), count)


def _digest(result: Result) -> list[Choice]:
    return result.choices


def test_the_explorer_finds_records_that_an_index_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a look at what the index lacks, and with a ledger that is never in doubt, a record
    that is deleted and added again is gone."""
    monkeypatch.setattr(IndexWriter, "_embed_again", lambda self, finishes: None)
    monkeypatch.setattr("evervec.stores.sql.leases.Leases.fence", _fence_without_doubt)
    scope = Scope(
        "model",
        {**TWO_WORKERS, "application": ("application", (("delete", "1"), ("add", "1", "A")))},
        (("add", "1", "A"),),
        ANY,
        1,
    )
    with ruled():
        failed = next(r for r in Exhaustive(Stage(scope)).results() if r.problems)
        shrunk = Shrunk(scope, failed.choices)
    assert len(shrunk.choices) < len(failed.choices)
    said = told(shrunk, "a test")
    assert "assert replay(scope, schedule) == []" in said
    assert replay(shrunk.scope, compressed(shrunk.choices))


def _fence_without_doubt(self, jobs, lease, above=0):  # type: ignore[no-untyped-def]
    with self.db.writing(durable=True) as conn:
        held = self._renew(conn, jobs, lease)
        number = self.engine.fresh_number(conn)
    return number, [job.job_id in held for job in jobs]


def test_a_write_to_a_table_does_not_commute_with_reading_its_changes() -> None:
    """The table was written before it was attached, when it had no triggers yet."""
    scope = Scope("model", {"table": ("table", (("row", "1", "B"),))}, table=(("1", "A"),))
    with ruled():
        disk = Stage(scope).disk
        disk.watch(follows=True)
        disk.reset()
        accesses = []
        for statement, values in ((WRITE_ROW, ("1", "x")), ("select * from evervec_changes", ())):
            disk.begin()
            disk.conn.execute(statement, values)
            accesses.append(disk.touched())
    assert not accesses[0].commutes_with(accesses[1])


def test_a_schedule_is_written_down_shortly_and_read_back() -> None:
    lines: list[Line] = [("worker1", 3), ("worker1", "crash"), ("worker2", 2), ("world", "pause")]
    assert compressed(expanded(lines)) == lines
