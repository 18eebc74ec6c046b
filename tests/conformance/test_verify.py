"""Verify: what is wrong is counted, `repair` mends it, and what is on its way is left alone."""

import itertools

import pytest

from evervec.errors import InvalidArgument
from evervec.indexes.base import Held
from support.sabotage import run_sql
from support.vectors import change
from support.world import (
    KIND,
    World,
    add_all,
    assert_in_step,
    fail_for_good,
    held,
    paragraph,
    work,
)

pytestmark = pytest.mark.every_index

WITHOUT_COPIES = ("sqlite", "duckdb", "pgvector")
"""indexes that ask the store for texts, and keep none"""


def version_of(world: World) -> int:
    (collection,) = world.ev.store.versions.collections()
    return collection.version


def points_of(world: World, id: str) -> list[Held]:
    (number,) = [j.record for j in world.ev.queue.jobs() if j.record_id == id]
    points = world.ev.index.held(version_of(world), None, 0, None)
    return [p for p in points if p.record == number]


def test_a_store_in_step_is_clean(world: World) -> None:
    assert world.ev.verify().clean
    add_all(world.ev, KIND, "alpha", "beta")
    work(world.ev)
    report = world.ev.verify()
    assert report.clean
    assert (report.checked, report.repaired) == (2, 0)


def test_what_a_job_will_settle_is_not_wrong(world: World) -> None:
    add_all(world.ev, KIND, "alpha", "beta", "gamma")
    report = world.ev.verify()
    assert report.clean
    assert (report.checked, report.waiting, report.complete) == (0, 3, False)
    work(world.ev)
    assert world.ev.verify().complete
    world.ev.add(KIND, "changed", id="0")
    world.ev.delete(KIND, "1")
    world.ev.queue.claim(1)
    report = world.ev.verify(repair=True)
    assert report.clean
    assert (report.checked, report.waiting, report.complete) == (1, 2, False)


def test_vectors_of_another_text_are_stale_and_made_anew(world: World) -> None:
    """The ledger says that all is well: only the text itself tells."""
    texts = {"0": "alpha", "1": f"{paragraph('beta')}\n\n{paragraph('gamma')}", "2": "delta"}
    add_all(world.ev, KIND, *texts.values())
    work(world.ev)
    records = "evervec.records" if world.store_name == "postgres" else "evervec_records"
    for id, text in {"0": "alphabet", "1": f"{texts['1']}\n\n{paragraph('more')}"}.items():
        texts[id] = text
        run_sql(world, f"update {records} set text = '{text}' where id = '{id}'")
    quick = world.ev.verify(quick=True)
    assert (quick.stale if world.index_name in WITHOUT_COPIES else 0) == 0
    assert not quick.complete
    assert [what for what in quick.unchecked if what.startswith("quick")]
    report = world.ev.verify(repair=True)
    assert (report.found, report.unchecked) == ({"stale": 2}, ())
    work(world.ev)
    assert_in_step(world.ev, texts)
    assert world.ev.verify().complete


@pytest.mark.every_pair
def test_missing_points_are_counted_and_repaired(world: World) -> None:
    add_all(world.ev, KIND, "alpha", "beta", "gamma")
    work(world.ev)
    world.ev.index.remove(version_of(world), points_of(world, "0"))
    assert world.ev.verify().missing == 1
    report = world.ev.verify(repair=True)
    assert (report.missing, report.repaired) == (1, 1)
    work(world.ev)
    assert_in_step(world.ev, {"0": "alpha", "1": "beta", "2": "gamma"})
    assert [h.id for h in world.ev.search("alpha", 1, mode="semantic")] == ["0"]


def test_one_missing_chunk_of_many_is_counted_as_its_record(world: World) -> None:
    text = "\n\n".join(f"{word} " * 8 for word in ("alpha", "beta", "gamma"))
    world.ev.add(KIND, text, id="1")
    work(world.ev)
    world.ev.index.remove(version_of(world), points_of(world, "1")[:1])
    assert world.ev.verify(repair=True).missing == 1
    work(world.ev)
    assert_in_step(world.ev, {"1": text})


@pytest.mark.every_pair
def test_an_index_that_lost_everything_is_rebuilt(world: World) -> None:
    texts = {str(n): f"word{n}" for n in range(30)}
    add_all(world.ev, KIND, *texts.values())
    work(world.ev)
    version = version_of(world)
    world.ev.index.remove(version, world.ev.index.held(version, None, 0, None))
    assert held(world.ev) == {}
    assert world.ev.verify(repair=True).missing == 30
    work(world.ev)
    assert_in_step(world.ev, texts)


def test_a_dead_letter_whose_old_vectors_serve_is_stale(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    work(world.ev)
    world.ev.add(KIND, "beta", id="1")
    fail_for_good(world.ev)
    report = world.ev.verify()
    assert (report.stale, report.missing, report.failed) == (1, 0, 1)
    assert world.ev.verify(repair=True).repaired == 1
    work(world.ev)
    assert_in_step(world.ev, {"1": "beta"})


def test_a_record_that_was_never_embedded_and_has_no_job_is_missing(world: World) -> None:
    ticket = world.ev.add(KIND, "alpha", id="1")
    world.ev.queue.cancel(ticket.job_id)
    assert world.ev.verify(repair=True).missing == 1
    work(world.ev)
    assert_in_step(world.ev, {"1": "alpha"})


def test_points_of_a_deleted_record_are_orphans_and_taken_out(world: World) -> None:
    add_all(world.ev, KIND, "alpha", "beta")
    work(world.ev)
    world.ev.queue.cancel(world.ev.delete(KIND, "0").job_id)
    report = world.ev.verify()
    assert (report.orphaned, report.missing) == (1, 0)
    assert world.ev.verify(repair=True).orphaned == 1
    assert_in_step(world.ev, {"1": "beta"})


def test_points_of_no_record_are_orphans(world: World) -> None:
    add_all(world.ev, KIND, "alpha")
    work(world.ev)
    world.ev.index.apply([change(version_of(world), 10**9, seq=1, words=["ghost"])])
    assert world.ev.verify().orphaned == 1
    assert world.ev.verify(repair=True).repaired == 1
    assert_in_step(world.ev, {"0": "alpha"})


def test_stores_around_the_size_of_a_slice_are_walked_whole(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evervec.verify.verify._SLICE", 20)
    for before, count in itertools.pairwise((0, 19, 20, 21, 41)):
        list(world.ev.add_many(KIND, ({"id": n, "text": "x"} for n in range(before, count))))
        while jobs := world.ev.queue.claim(1000):
            world.ev.queue.finish_many(jobs)
        report = world.ev.verify()
        assert (report.checked, report.missing) == (count, count)


def test_only_one_kind_is_checked_and_repaired(world: World) -> None:
    add_all(world.ev, KIND, "alpha", "beta")
    world.ev.add("other", "gamma", id="9")
    work(world.ev)
    for collection in world.ev.store.versions.collections():
        points = world.ev.index.held(collection.version, None, 0, None)
        world.ev.index.remove(collection.version, points)
    report = world.ev.verify(repair=True, kind="other")
    assert (report.missing, report.repaired) == (1, 1)
    assert {tally.kind for tally in report.by} == {"other"}
    work(world.ev)
    left = world.ev.verify()
    assert {tally.kind: tally.missing for tally in left.by} == {KIND: 2, "other": 0}


def test_only_records_with_a_chosen_fault_are_repaired(world: World) -> None:
    add_all(world.ev, KIND, "alpha", "beta", "gamma")
    work(world.ev)
    version = version_of(world)
    world.ev.index.remove(version, points_of(world, "0"))
    records = "evervec.records" if world.store_name == "postgres" else "evervec_records"
    run_sql(world, f"update {records} set text = 'changed' where id = '1'")
    report = world.ev.verify(repair=True, kind=KIND, faults=["stale"])
    assert report.found == {"missing": 1, "stale": 1}
    assert report.repaired == 1
    work(world.ev)
    assert world.ev.verify().found == {"missing": 1}
    world.ev.verify(repair=True, faults="missing")
    work(world.ev)
    assert world.ev.verify().complete


def test_an_unknown_fault_is_refused(world: World) -> None:
    with pytest.raises(InvalidArgument, match="must be some of missing, stale"):
        world.ev.verify(repair=True, faults=["broken"])
