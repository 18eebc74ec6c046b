"""Enqueueing by hand: records as they stand, and rows that a kind's loader fetches."""

from typing import Any

import pytest

from evervec import EvervecError, Kind, Outcome, Status
from support.world import KIND, START, World, assert_in_step, held, job_of, work

ROW = "row"


class Rows(dict[str, Any]):
    """The application's own rows; its loader raises what a row holds as an exception."""

    def load(self, id: str) -> Any:
        row = self.get(id)
        if isinstance(row, Exception):
            raise row
        return row


@pytest.fixture
def rows(world: World) -> Rows:
    rows = Rows()
    world.ev.register(Kind(ROW, load=rows.load))
    return rows


def test_a_record_can_be_enqueued_as_it_stands(world: World) -> None:
    ticket = world.ev.add(KIND, "alpha", id="1")
    work(world.ev)
    result = world.ev.queue.enqueue(KIND, "1")
    assert (result.job_id, result.is_new, result.error) == (ticket.job_id, False, None)
    assert job_of(world.ev, "1").seq > ticket.seq
    work(world.ev)
    assert world.embedder.texts == ["alpha"]
    assert_in_step(world.ev, {"1": "alpha"})


def test_results_come_in_order_with_an_error_for_each_bad_id(world: World) -> None:
    results = world.ev.queue.enqueue_many(KIND, ["a", "", "b", None, 3, "a"])  # type: ignore[list-item]
    assert [r.error is None for r in results] == [True, False, True, False, True, True]
    assert [r.job_id is None for r in results] == [False, True, False, True, False, False]
    assert results[0].job_id == results[5].job_id
    assert [r.is_new for r in results] == [True, False, True, False, True, False]
    assert world.ev.queue.stats().pending == 3


def test_more_ids_than_one_batch_holds_are_all_enqueued(world: World) -> None:
    results = world.ev.queue.enqueue_many(KIND, range(2500))
    assert len({r.job_id for r in results}) == 2500
    assert world.ev.queue.stats().pending == 2500


def test_options_reach_the_job(world: World) -> None:
    world.ev.queue.enqueue(KIND, "1", priority=4, delay=30, max_attempts=2)
    job = job_of(world.ev, "1")
    assert (job.priority, job.max_attempts) == (4, 2)
    assert job.scheduled_for.timestamp() == START + 30


def test_options_that_no_job_can_have_are_refused(world: World) -> None:
    refused: list[dict[str, Any]] = [
        {"priority": 1 << 62},
        {"priority": "high"},
        {"delay": -1.0},
        {"delay": float("nan")},
        {"delay": float("inf")},
        {"max_attempts": 0},
        {"max_attempts": -3},
    ]
    for options in refused:
        with pytest.raises(EvervecError) as caught:
            world.ev.queue.enqueue(KIND, "1", **options)
        assert isinstance(caught.value, ValueError)
        assert next(iter(options)) in str(caught.value)
        assert world.ev.queue.jobs() == []


def test_a_loaded_row_appears_once_it_is_embedded(world: World, rows: Rows) -> None:
    rows["1"] = "alpha beta"
    result = world.ev.queue.enqueue(ROW, 1)
    assert result.is_new
    assert world.ev.get(ROW, "1") is None
    assert not world.ev.search("alpha")
    work(world.ev)
    record = world.ev.get(ROW, "1")
    assert record is not None
    assert record.text == "alpha beta"
    assert record.embedded
    assert [h.id for h in world.ev.search("alpha")] == ["1"]
    assert_in_step(world.ev, {"1": "alpha beta"}, ROW)


def test_a_loaded_row_may_be_a_dict_with_title_metadata_and_weight(
    world: World, rows: Rows
) -> None:
    rows["1"] = {"text": "alpha", "title": "T", "metadata": {"a": 1}, "weight": 0.5}
    world.ev.queue.enqueue(ROW, "1")
    work(world.ev)
    record = world.ev.get(ROW, "1")
    assert record is not None
    assert (record.title, record.metadata, record.weight) == ("T", {"a": 1}, 0.5)
    assert world.embedder.texts == ["T\n\nalpha"]


def test_a_changed_row_is_embedded_and_an_unchanged_one_is_not(world: World, rows: Rows) -> None:
    rows["1"], rows["2"] = "alpha", "beta"
    world.ev.queue.enqueue_many(ROW, ["1", "2"])
    work(world.ev)
    rows["2"] = "gamma"
    world.ev.queue.enqueue_many(ROW, ["1", "2"])
    work(world.ev)
    assert world.embedder.texts == ["alpha", "beta", "gamma"]
    assert_in_step(world.ev, {"1": "alpha", "2": "gamma"}, ROW)
    assert not world.ev.search("beta", mode="text")


def test_a_row_that_is_gone_is_deleted(world: World, rows: Rows) -> None:
    rows["1"] = "alpha"
    world.ev.queue.enqueue(ROW, "1")
    work(world.ev)
    del rows["1"]
    world.ev.queue.enqueue(ROW, "1")
    assert work(world.ev).succeeded == 1
    assert world.ev.get(ROW, "1") is None
    assert not world.ev.search("alpha")
    assert_in_step(world.ev, {}, ROW)


def test_a_row_that_never_was_is_done_and_leaves_nothing(world: World, rows: Rows) -> None:
    world.ev.queue.enqueue(ROW, "1")
    assert work(world.ev).succeeded == 1
    assert world.ev.get(ROW, "1") is None
    assert_in_step(world.ev, {}, ROW)


def test_a_row_may_come_back(world: World, rows: Rows) -> None:
    for text in ("alpha", None, "alpha"):
        rows["1"] = text
        world.ev.queue.enqueue(ROW, "1")
        work(world.ev)
    assert_in_step(world.ev, {"1": "alpha"}, ROW)
    assert [h.id for h in world.ev.search("alpha", mode="semantic")] == ["1"]


def test_a_loader_that_fails_is_tried_again_and_fails_alone(world: World, rows: Rows) -> None:
    rows["1"], rows["2"] = OSError("no route"), "beta"
    world.ev.queue.enqueue_many(ROW, ["1", "2"])
    work(world.ev)
    bad = job_of(world.ev, "1", ROW)
    assert bad.status is Status.PENDING
    assert "no route" in (bad.error or "")
    assert job_of(world.ev, "2", ROW).status is Status.DONE
    rows["1"] = "alpha"
    world.clock.move(2)
    work(world.ev)
    assert_in_step(world.ev, {"1": "alpha", "2": "beta"}, ROW)


@pytest.mark.parametrize("bad", ["", 7, {"title": "no text"}, {"text": "x", "weight": 9}])
def test_a_row_that_is_refused_fails_alone_and_for_good(
    world: World, rows: Rows, bad: object
) -> None:
    rows["1"], rows["2"] = bad, "beta"
    world.ev.queue.enqueue_many(ROW, ["1", "2"])
    work(world.ev)
    assert job_of(world.ev, "1", ROW).status is Status.FAILED
    assert job_of(world.ev, "2", ROW).status is Status.DONE


def test_code_of_the_kind_that_raises_fails_its_row_alone(world: World, rows: Rows) -> None:
    def shout(row: dict[str, Any]) -> str:
        return str(row["words"]).upper()

    world.ev.register(Kind(ROW, text=shout, load=rows.load))
    rows["1"], rows["2"] = {"wrong": "x"}, {"words": "beta"}
    world.ev.queue.enqueue_many(ROW, ["1", "2"])
    work(world.ev)
    assert job_of(world.ev, "1", ROW).error
    assert job_of(world.ev, "2", ROW).status is Status.DONE


def test_without_record_or_loader_the_job_becomes_a_dead_letter_that_says_so(world: World) -> None:
    world.ev.queue.enqueue(KIND, "nobody")
    work(world.ev)
    job = job_of(world.ev, "nobody")
    assert job.status is Status.FAILED
    assert "nobody" in (job.error or "")
    assert [a.outcome for a in world.ev.queue.history(KIND, "nobody")] == [Outcome.FAILED]


def test_rows_of_a_loader_wait_for_a_process_that_has_it(world: World, rows: Rows) -> None:
    rows["1"] = "alpha"
    world.ev.queue.enqueue(ROW, "1")
    assert world.ev.pipeline.served.refresh()  # leaves word that the kind needs code
    stranger = world.tenant("default")
    assert stranger.pipeline.claim(10) == []
    work(world.ev)
    assert_in_step(world.ev, {"1": "alpha"}, ROW)


def test_enqueueing_a_boxed_record_does_not_lose_its_box(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1", boxed=True)
    world.ev.queue.enqueue(KIND, "1")
    work(world.ev)
    record = world.ev.get(KIND, "1")
    assert record is not None
    assert record.text == "alpha"


def test_enqueueing_a_record_with_a_boxed_update_does_not_lose_the_update(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    work(world.ev)
    world.ev.add(KIND, "beta", id="1", boxed=True)
    world.ev.queue.enqueue(KIND, "1")
    work(world.ev)
    assert_in_step(world.ev, {"1": "beta"})


def test_a_row_enqueued_while_it_is_loaded_is_loaded_again(world: World, rows: Rows) -> None:
    rows["1"] = "alpha"
    world.ev.queue.enqueue(ROW, "1")
    batch, _ = world.ev.pipeline.prepare(world.ev.pipeline.claim(1))
    rows["1"] = "beta"
    world.ev.queue.enqueue(ROW, "1")
    world.ev.pipeline.embed(batch)
    world.ev.pipeline.write(batch)
    assert job_of(world.ev, "1", ROW).status is Status.PENDING
    work(world.ev)
    assert_in_step(world.ev, {"1": "beta"}, ROW)
    assert list(held(world.ev)) == [("default", ROW, "1")]


@pytest.mark.parametrize("before", ["new", "deleted before"])
def test_a_row_deleted_while_it_waits_to_be_loaded_never_appears(
    world: World, rows: Rows, before: str
) -> None:
    rows["1"] = "alpha"
    if before == "deleted before":
        world.ev.queue.enqueue(ROW, "1")
        work(world.ev)
        world.ev.delete(ROW, "1")
        work(world.ev)
    world.ev.queue.enqueue(ROW, "1")
    assert world.ev.delete(ROW, "1").accepted
    work(world.ev)
    assert world.ev.get(ROW, "1") is None
    assert_in_step(world.ev, {}, ROW)


def test_a_row_that_never_was_cannot_be_deleted(world: World, rows: Rows) -> None:
    world.ev.queue.enqueue(ROW, "1")
    work(world.ev)
    assert not world.ev.delete(ROW, "1").accepted
