"""The explorer in a bounded form, and proof that it can see what it looks for."""

from collections.abc import Iterator
from itertools import islice

import pytest

from evervec.worker.index_writer import IndexWriter
from explorer.actors import WRITE_ROW
from explorer.exhaustive import Exhaustive
from explorer.exploring import Explorer
from explorer.replaying import Line, Shrunk, compressed, expanded, replay
from explorer.ruling import ruled
from explorer.scopes import ANY, Result, Scope, Stage
from explorer.script import told
from explorer.small import small_scopes
from explorer.steps import Choice

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
