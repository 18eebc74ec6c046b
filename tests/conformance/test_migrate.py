"""Changing the model: two versions in step, one switch, a way back, and nothing left behind."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from evervec import (
    Evervec,
    InvalidArgument,
    InvalidTransition,
    Kind,
    Migration,
    VersionMismatch,
    WaitTimeout,
)
from evervec.embedders.hashing import HashingEmbedder
from evervec.model.jobs import Op
from evervec.stores.sql.job_writer import NextJob
from evervec.stores.values import Draft
from support.processes import until
from support.world import (
    DAY,
    KIND,
    ScriptedEmbedder,
    World,
    add_all,
    assert_in_step,
    fail_for_good,
    job_of,
    step,
    version_of,
    work,
)

TEXTS = {str(number): f"{word} text" for number, word in enumerate(("alpha", "beta", "gamma"))}


class Other(HashingEmbedder):
    """Another model, which only this program can make."""

    name = "other"

    def __init__(self, dimensions: int = 48) -> None:
        super().__init__(dimensions)
        self.model = "other-1"
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.texts += texts
        return np.asarray(-super().embed(texts), np.float32)


def drive(ev: Evervec) -> None:
    """Do all that workers would do, until nothing is left. They come back, too, to a version that
    waits for a transaction which was there before it, were it only a NOTIFY."""

    def done() -> bool:
        while ev._lifecycle.step() or work(ev).processed:
            pass
        building = [c for c in ev.store.versions.collections() if c.state == "building"]
        return all(map(ev._lifecycle.is_filled, building))

    until(done, "versions to be built")


@pytest.fixture
def filled(world: World) -> World:
    add_all(world.ev, KIND, *TEXTS.values())
    work(world.ev)
    return world


def states(ev: Evervec) -> dict[str, str]:
    return {version.name: version.state for version in ev.versions()}


def found(ev: Evervec, query: str) -> tuple[str | None, list[str]]:
    hits = ev.search(query, 1, mode="semantic")
    return hits.version, [hit.id for hit in hits]


@pytest.mark.every_index
def test_a_new_version_is_built_while_the_old_one_serves(filled: World) -> None:
    ev, other = filled.ev, Other()
    migration = ev.migrate(other)
    assert states(ev) == {"hashing-64": "serving", "other-1": "building"}
    assert found(ev, "beta") == ("hashing-64", ["1"])
    drive(ev)
    status = migration.status()
    assert (status.state, status.records, status.current, status.behind) == ("building", 3, 3, 0)
    assert status.complete
    assert sorted(other.texts) == sorted(TEXTS.values())
    assert found(ev, "beta") == ("hashing-64", ["1"])
    assert ev.verify().clean
    migration.switch()
    assert states(ev) == {"hashing-64": "standby", "other-1": "serving"}
    assert found(ev, "beta") == ("other-1", ["1"])
    assert migration.status().state == "switched"


@pytest.mark.every_index
def test_what_is_written_meanwhile_reaches_both(filled: World) -> None:
    ev = filled.ev
    migration = ev.migrate(Other())
    ev.add(KIND, "delta text", id="3")
    ev.add(KIND, "alpha changed", id="0")
    ev.delete(KIND, "1")
    work(ev)  # before anything that was there is enqueued
    drive(ev)
    ev.add(KIND, "epsilon text", id="4")
    drive(ev)
    now = {"0": "alpha changed", "2": TEXTS["2"], "3": "delta text", "4": "epsilon text"}
    for name in ("other-1", "hashing-64"):
        assert ev.verify().clean
        (migration.rollback if name == "hashing-64" else migration.switch)()
        for id, text in now.items():
            assert found(ev, text) == (name, [id])
        assert {hit.id for hit in ev.search("text", 10, mode="semantic")} == now.keys()


@pytest.mark.every_index
def test_a_rollback_finds_the_old_version_in_step(filled: World) -> None:
    ev = filled.ev
    migration = ev.migrate(Other())
    drive(ev)
    migration.switch()
    ev.add(KIND, "zeta text", id="9")
    drive(ev)
    migration.rollback()
    assert migration.status().state == "rolled back"
    assert found(ev, "zeta") == ("hashing-64", ["9"])
    migration.switch()  # and forth
    assert found(ev, "zeta") == ("other-1", ["9"])


@pytest.mark.every_index
def test_a_retired_version_leaves_nothing_behind(filled: World) -> None:
    ev = filled.ev
    migration = ev.migrate(Other())
    drive(ev)
    migration.switch()
    (old,) = [c.version for c in ev.store.versions.collections() if c.state == "standby"]
    migration.retire()
    assert states(ev)["hashing-64"] == "retired"
    ev._lifecycle.step()
    assert ev.index.held(old, None, 0, None)  # a search may still be at it
    filled.clock.move(10)
    ev._lifecycle.step()
    assert states(ev) == {"other-1": "serving"}
    assert not ev.index.held(old, None, 0, None)
    assert {job.embedding_version for job in ev.queue.jobs()} == {"other-1"}
    assert migration.status().state == "finished"
    assert ev.migration() is None
    assert_in_step(ev, TEXTS)
    with pytest.raises(InvalidTransition, match="nothing to roll back to"):
        migration.rollback()


def test_a_migration_can_be_cancelled_and_begun_again(filled: World) -> None:
    ev = filled.ev
    migration = ev.migrate(Other())
    ev._lifecycle.step()
    ev.store.leases.claim(1, worker="elsewhere", lease=60)
    migration.cancel()
    again = ev.migrate(Other())
    drive(ev)
    assert again.status().complete
    again.switch()
    assert found(ev, "gamma") == ("other-1", ["2"])
    assert ev.verify().clean
    with pytest.raises(InvalidTransition, match="cannot be cancelled"):
        again.cancel()


def test_it_can_be_taken_up_from_anywhere(filled: World) -> None:
    ev = filled.ev
    ev.migrate(Other())
    ev._lifecycle.step()
    second = filled.tenant("another")
    resumed = second.migrate(Other())
    assert resumed.version == "other-1"
    drive(second)
    assert resumed.status().complete
    current = ev.migration()
    assert current is not None
    current.switch()
    assert found(ev, "alpha") == ("other-1", ["0"])


@pytest.mark.every_index
def test_it_switches_by_itself_once_complete_and_checked(filled: World) -> None:
    ev = filled.ev
    migration = ev.migrate(Other(), switch=True)
    drive(ev)
    ev._lifecycle.step()
    assert migration.wait(1).state == "switched"
    assert found(ev, "alpha") == ("other-1", ["0"])


def test_no_switch_before_it_lacks_nothing(filled: World) -> None:
    ev = filled.ev
    migration = ev.migrate(Other())
    with pytest.raises(InvalidTransition, match="still being built"):
        migration.switch()
    while ev._lifecycle.step():
        pass
    with pytest.raises(InvalidTransition, match="lacks 3 records"):
        migration.switch(timeout=0)
    assert found(ev, "alpha") == ("hashing-64", ["0"])
    migration.switch(force=True)
    assert ev.search("alpha", mode="semantic") == []


@pytest.mark.every_index
def test_a_forced_switch_leaves_nothing_out_for_good(filled: World) -> None:
    """What the new version lacks is enqueued first, also a row that no version has loaded yet."""
    ev = filled.ev
    ev.register(Kind(KIND, load=lambda id: f"loaded {id}"))
    ev.queue.enqueue(KIND, "row")
    ev.migrate(Other()).switch(force=True)
    assert ev.search("alpha", mode="semantic") == []
    drive(ev)
    assert ev.verify().complete
    assert found(ev, "alpha") == ("other-1", ["0"])
    assert found(ev, "loaded row") == ("other-1", ["row"])
    migration = ev.migration()
    assert migration is not None
    migration.retire()
    filled.clock.move(10)
    drive(ev)
    assert ev.verify().complete


def test_a_forced_switch_waits_for_those_who_do_not_know_the_version(filled: World) -> None:
    ev = filled.ev
    migration = ev.migrate(Other())
    lock = ev.store.shared.lock("migration", "another process", 60)
    assert lock is not None
    with pytest.raises(InvalidTransition, match="cannot be enqueued"):
        migration.switch(force=True, timeout=0)
    assert found(ev, "alpha") == ("hashing-64", ["0"])
    ev.store.shared.unlock("migration", lock)
    migration.switch(force=True)
    drive(ev)
    assert ev.verify().complete


def test_a_record_that_the_new_model_refuses_is_told(filled: World) -> None:
    ev = filled.ev
    migration = ev.migrate(Other())
    while ev._lifecycle.step():
        pass
    jobs = ev.queue.claim(10)
    ev.queue.fail(jobs[0], "too odd", permanent=True)
    for job in jobs[1:]:
        ev.queue.release(job)
    drive(ev)
    status = migration.wait(1)
    assert (status.failed, status.behind, status.complete) == (1, 1, False)
    with pytest.raises(InvalidTransition, match="1 of its jobs failed"):
        migration.switch(timeout=0)
    ev.queue.retry_failed()
    drive(ev)
    migration.switch()


def test_one_at_a_time(filled: World) -> None:
    ev = filled.ev
    migration = ev.migrate(Other())
    with pytest.raises(InvalidTransition, match="already"):
        ev.migrate(HashingEmbedder(32))
    drive(ev)
    migration.switch()
    with pytest.raises(InvalidTransition, match="for a rollback"):
        ev.migrate(HashingEmbedder(32))


def test_opening_with_another_model_says_what_to_do(filled: World) -> None:
    ev = filled.ev
    for other in (Other(), Other(64)):  # as many dimensions are not the same vectors
        with pytest.raises(VersionMismatch, match="migrate"):
            Evervec(ev.store, ev.index, other, ev.tenant, ev.settings)


def test_who_was_there_before_the_switch_goes_on_with_what_stands_by(filled: World) -> None:
    """A process that cannot make the new model's vectors still finds every change; one that can
    be told by name takes the new one."""
    ev = filled.ev
    before = filled.tenant(ev.tenant)
    migration = ev.migrate(Other())
    drive(ev)
    migration.switch()
    ev.add(KIND, "omega text", id="7")
    drive(ev)
    assert found(before, "omega") == ("hashing-64", ["7"])
    assert found(ev, "omega") == ("other-1", ["7"])
    migration.retire()
    assert before.search("omega").via == "text"


def test_a_process_of_before_takes_up_a_model_that_has_a_name(filled: World) -> None:
    ev = filled.ev
    before = filled.tenant(ev.tenant)
    migration = ev.migrate("hashing:32")
    drive(before)  # which has never heard of it
    migration.switch()
    assert found(before, "alpha") == ("hashing-32", ["0"])
    before.add("letter", "a new kind", id="1")
    drive(before)
    assert {v.name for v in before.versions() if v.kind == "letter"} == {"hashing-32"}


def test_boxed_and_loaded_records_appear_in_both(filled: World) -> None:
    ev = filled.ev
    rows = {"7": "seventh row", "8": "eighth row"}
    ev.register(Kind("row", load=rows.get))
    ev.add(KIND, "boxed text", id="b", boxed=True)
    ev.queue.enqueue("row", "7")
    migration = ev.migrate(Other())
    ev.add(KIND, "late box", id="c", boxed=True)
    ev.queue.enqueue("row", "8")
    drive(ev)
    migration.switch()
    assert ev.verify().clean
    for query, id in (("boxed", "b"), ("late", "c"), ("seventh", "7"), ("eighth", "8")):
        assert found(ev, query) == ("other-1", [id])


def test_a_ticket_is_settled_when_what_serves_has_it(filled: World) -> None:
    ev = filled.ev
    migration = ev.migrate(Other())
    drive(ev)
    ticket = ev.add(KIND, "theta text", id="5")
    versions = {c.spec.name: c.version for c in ev.store.versions.collections() if c.spec}
    jobs = ev.queue.claim(10, versions=[versions["hashing-64"]])
    batch, _ = ev.pipeline.prepare(jobs)
    ev.pipeline.embed(batch)
    ev.pipeline.write(batch)
    assert ev.store.jobs.settled([(ev.tenant, ticket)]) == ["done"]
    with pytest.raises(InvalidTransition, match="lacks 1 records"):
        migration.switch(timeout=0)
    migration.switch(force=True)
    assert ev.store.jobs.settled([(ev.tenant, ticket)]) == [None]
    drive(ev)
    assert ev.store.jobs.settled([(ev.tenant, ticket)]) == ["done"]


def test_a_dead_letter_of_the_old_version_does_not_hold_the_new_one_up(filled: World) -> None:
    ev = filled.ev
    ev.add(KIND, "unlucky text", id="6")
    fail_for_good(ev, "6")
    migration = ev.migrate(Other())
    drive(ev)
    assert migration.status().complete
    assert job_of(ev, "6").status == "failed"
    migration.switch()
    assert found(ev, "unlucky") == ("other-1", ["6"])


@pytest.mark.every_index
def test_a_comparison_tells_how_the_answers_differ(filled: World) -> None:
    ev = filled.ev
    migration = ev.migrate(Other())
    drive(ev)
    compared = migration.compare(k=1)
    assert (compared.queries, compared.overlap) == (3, 1.0)
    assert compared.report.clean
    assert compared.report.checked == 3
    assert migration.compare(["alpha", "beta"], k=1).queries == 2


def test_an_estimate_is_of_all_records(filled: World) -> None:
    told = filled.ev.estimate(Other())
    assert (told.records, told.chunks) == (3, 3)
    assert told.tokens > 0
    assert told.seconds is not None
    assert told.seconds > 0
    assert states(filled.ev) == {"hashing-64": "serving"}


def test_bad_requests_say_what_is_wrong(world: World) -> None:
    with pytest.raises(InvalidArgument, match="nothing to migrate"):
        world.ev.migrate(Other())
    add_all(world.ev, KIND, "alpha")
    with pytest.raises(InvalidArgument, match="noop"):
        world.ev.migrate("noop")
    with pytest.raises(InvalidArgument, match="kind 'typo'"):
        world.ev.migrate(Other(), kind="typo")
    work(world.ev)
    with pytest.raises(InvalidArgument, match="another name"):
        world.ev.migrate(Other(), version="hashing-64")


def test_a_kind_without_vectors_takes_the_new_model_at_once(world: World) -> None:
    bare = world.without_embedder()
    bare.add(KIND, "alpha", id="1")
    world.ev.add("letter", "beta", id="1")
    work(world.ev)
    assert states(world.ev) == {"hashing-64": "serving"}


def test_only_some_kinds_can_change(filled: World) -> None:
    ev = filled.ev
    add_all(ev, "letter", "alpha letter")
    work(ev)
    migration = ev.migrate(Other(), kind="letter")
    drive(ev)
    migration.switch()
    named = {(v.kind, v.name): v.state for v in ev.versions()}
    assert named == {
        (KIND, "hashing-64"): "serving",
        ("letter", "hashing-64"): "standby",
        ("letter", "other-1"): "serving",
    }
    assert {hit.kind for hit in ev.search("alpha", 2, mode="semantic")} == {KIND, "letter"}
    assert filled.tenant(ev.tenant).search("alpha").via == "hybrid"


def test_an_embedder_that_is_away_holds_up_only_its_own_version(filled: World) -> None:
    ev, other = filled.ev, ScriptedEmbedder(16)

    def refuse(texts: Sequence[str]) -> None:
        raise ConnectionError("away")

    other.before = refuse
    migration = ev.migrate(other)
    while ev._lifecycle.step():
        pass
    work(ev)
    ev.add(KIND, "kappa text", id="8")
    ev.process_all()
    assert found(ev, "kappa") == ("hashing-64", ["8"])
    other.before = None
    filled.clock.move(600)
    ev.process_all()
    assert migration.status().complete


def claim_for(ev: Evervec, name: str) -> None:
    """Do the due jobs of one version alone."""
    (version,) = [
        c.version for c in ev.store.versions.collections() if c.spec and c.spec.name == name
    ]
    ev.pipeline.served.refresh()
    while jobs := ev.queue.claim(10, versions=[version]):
        step(ev, jobs)


def test_a_ticket_follows_its_record_to_the_version_that_serves(filled: World) -> None:
    ev = filled.ev
    migration = ev.migrate(Other())
    drive(ev)
    ticket = ev.add(KIND, "theta text", id="5")
    migration.switch(force=True)
    migration.retire()
    filled.clock.move(10)
    ev._lifecycle.step()
    assert states(ev) == {"other-1": "serving"}
    with pytest.raises(WaitTimeout, match="saved and waiting"):
        ev.wait(ticket, 0)
    drive(ev)
    job = ev.wait(ticket, 0)
    assert (job.embedding_version, job.status) == ("other-1", "done")
    filled.clock.move(100 * DAY)
    ev._housekeeping.sweep()  # its job is purged
    assert ev.store.jobs.settled([(ev.tenant, ticket)]) == ["done"]


def test_a_boxed_record_appears_when_what_serves_has_it(filled: World) -> None:
    ev = filled.ev
    migration = ev.migrate(Other())
    drive(ev)
    ev.add(KIND, "box text", id="b", boxed=True)
    ev.add(KIND, "boxed change", id="0", boxed=True)
    claim_for(ev, "other-1")
    assert ev.get(KIND, "b") is None
    assert ev.get(KIND, "0").text == TEXTS["0"]  # type: ignore[union-attr]
    assert ev.verify(repair=True).clean
    claim_for(ev, "hashing-64")
    assert ev.get(KIND, "b").embedded  # type: ignore[union-attr]
    with pytest.raises(InvalidTransition, match="lacks 2 records"):
        migration.switch(timeout=0)
    drive(ev)
    migration.switch()
    assert ev.verify().clean
    for query, id in (("box text", "b"), ("boxed change", "0")):
        assert found(ev, query) == ("other-1", [id])
    migration.rollback()
    for query, id in (("box text", "b"), ("boxed change", "0")):
        assert found(ev, query) == ("hashing-64", [id])


def migrated_beside_a_box(ev: Evervec) -> Migration:
    """A new version that has indexed all, while a record waits in its box."""
    migration = ev.migrate(Other())
    drive(ev)
    ev.add(KIND, "boxed change", id="0", boxed=True)
    return migration


@pytest.mark.parametrize("in_flight", [False, True])
def test_an_opened_box_is_newer_than_what_was_indexed_beside_it(
    filled: World, in_flight: bool
) -> None:
    """The old text had a larger number than the box, because it was enqueued after it: the new version
    seemed to have all. `in_flight`: it was being embedded when the box was opened."""
    ev = filled.ev
    migration = migrated_beside_a_box(ev)
    ev.queue.enqueue(KIND, "0")
    (new,) = [c.version for c in ev.store.versions.collections() if c.state == "building"]
    batch, _ = ev.pipeline.prepare(ev.queue.claim(10, versions=[new]))
    ev.pipeline.embed(batch)
    if not in_flight:
        ev.pipeline.write(batch)
    claim_for(ev, "hashing-64")
    ev.queue.enqueue(KIND, "0")  # both versions get the same number
    if in_flight:
        ev.pipeline.write(batch)
    assert ev.get(KIND, "0").text == "boxed change"  # type: ignore[union-attr]
    assert migration.status().behind == 1
    with pytest.raises(InvalidTransition, match="lacks 1 record"):
        migration.switch(timeout=0)
    claim_for(ev, "hashing-64")
    with pytest.raises(InvalidTransition, match="lacks 1 record"):
        migration.switch(timeout=0)
    assert ev.verify().clean
    drive(ev)
    migration.switch()
    assert found(ev, "boxed change") == ("other-1", ["0"])
    assert ev.verify().clean


def test_a_box_that_is_opened_too_late_makes_nothing_older(filled: World) -> None:
    """A plain add came first, and the new version has it already."""
    ev = filled.ev
    migration = migrated_beside_a_box(ev)
    batch, _ = ev.pipeline.prepare(ev.pipeline.claim(10))
    ev.pipeline.embed(batch)
    ev.add(KIND, "plain change", id="0")
    claim_for(ev, "other-1")
    ev.pipeline.write(batch)
    assert migration.status().current == len(TEXTS)
    drive(ev)
    migration.switch()
    assert found(ev, "plain change") == ("other-1", ["0"])
    assert ev.verify().clean


def test_verify_knows_the_points_that_were_indexed_beside_an_opened_box(filled: World) -> None:
    """The new version's job for the opened box was cancelled."""
    ev = filled.ev
    migration = migrated_beside_a_box(ev)
    ev.queue.enqueue(KIND, "0")
    claim_for(ev, "other-1")
    claim_for(ev, "hashing-64")
    (job,) = ev.queue.jobs(status="pending")
    ev.queue.cancel(job.job_id)
    assert ev.verify(repair=True).stale == 1
    points = ev.index.held(job.version, None, 0, None)
    assert len(points) == len(TEXTS)  # they stay until there are better ones
    drive(ev)
    migration.switch()
    assert found(ev, "boxed change") == ("other-1", ["0"])
    assert ev.verify().clean


@pytest.mark.parametrize("retired", [False, True])
def test_a_switch_passes_waiting_boxes_on(filled: World, retired: bool) -> None:
    ev = filled.ev
    migration = ev.migrate(Other())
    drive(ev)
    tickets = [
        ev.add(KIND, "box text", id="b", boxed=True),
        ev.add(KIND, "boxed change", id="0", boxed=True, priority=3, max_attempts=4),
    ]
    migration.switch()
    moved = job_of(ev, "0")
    assert (moved.embedding_version, moved.op) == ("other-1", "open")
    assert (moved.priority, moved.max_attempts) == (3, 4)
    assert ev.store.jobs.settled([(ev.tenant, ticket) for ticket in tickets]) == [None, None]
    if retired:
        migration.retire()
        filled.clock.move(10)
        ev._lifecycle.step()
        assert states(ev) == {"other-1": "serving"}
    drive(ev)
    assert ev.store.jobs.settled([(ev.tenant, ticket) for ticket in tickets]) == ["done", "done"]
    assert ev.verify().clean
    for query, id in (("box text", "b"), ("boxed change", "0")):
        assert found(ev, query) == ("other-1", [id])
    if not retired:
        migration.rollback()
        assert found(ev, "box text") == ("hashing-64", ["b"])


def test_a_box_that_is_opened_during_a_switch_appears_by_the_new_version(filled: World) -> None:
    """Its worker finds its job gone, or done for a version that serves no longer."""
    ev = filled.ev
    migration = ev.migrate(Other())
    drive(ev)
    ev.add(KIND, "box text", id="b", boxed=True)
    batch, _ = ev.pipeline.prepare(ev.pipeline.claim(10))
    ev.pipeline.embed(batch)
    migration.switch()
    ev.pipeline.write(batch)
    assert ev.get(KIND, "b") is None
    drive(ev)
    assert found(ev, "box text") == ("other-1", ["b"])
    assert ev.verify().clean


def test_a_box_of_a_version_that_serves_no_longer_is_opened_by_the_one_that_does(
    filled: World,
) -> None:
    """As when its transaction commits after the switch."""
    ev = filled.ev
    migration = ev.migrate(Other())
    drive(ev)
    ev.add(KIND, "box text", id="b", boxed=True, created_at=5.0)
    ev.add(KIND, "boxed change", id="0", boxed=True)
    with pytest.MonkeyPatch.context() as patch:
        writer = ev.store.versions._writer  # type: ignore[attr-defined]
        patch.setattr(writer, "pass_boxes_on", lambda: 0)
        migration.switch()
    ev.add(KIND, "later change", id="0", boxed=True)
    claim_for(ev, "hashing-64")
    assert ev.get(KIND, "b") is None
    drive(ev)
    assert ev.get(KIND, "b").created_at.timestamp() == 5.0  # type: ignore[union-attr]
    assert found(ev, "box text") == ("other-1", ["b"])
    assert ev.get(KIND, "0").text == "later change"  # type: ignore[union-attr]
    assert found(ev, "later change") == ("other-1", ["0"])
    assert ev.verify().clean
    migration.rollback()
    assert found(ev, "later change") == ("hashing-64", ["0"])


def test_a_change_takes_back_a_box_that_was_not_passed_on_yet(filled: World) -> None:
    """Between a switch and the transactions that pass boxes on, or when a boxed add commits after
    the switch."""
    ev = filled.ev
    migration = ev.migrate(Other())
    drive(ev)
    now = ev.get(KIND, "0")
    assert now is not None
    ev.add(KIND, "box text", id="b", boxed=True)
    ev.add(KIND, "boxed change", id="0", boxed=True)
    with pytest.MonkeyPatch.context() as patch:
        writer = ev.store.versions._writer  # type: ignore[attr-defined]
        patch.setattr(writer, "pass_boxes_on", lambda: 0)
        migration.switch()
    assert ev.delete(KIND, "b").accepted
    assert ev.add(KIND, now.text, id="0", metadata=now.metadata, weight=now.weight).enqueued
    drive(ev)
    assert ev.get(KIND, "b") is None
    assert ev.get(KIND, "0").text == now.text  # type: ignore[union-attr]
    assert not ev.delete(KIND, "b").accepted
    assert ev.verify().clean


def test_jobs_of_a_version_that_is_gone_are_listed_and_swept(filled: World) -> None:
    ev = filled.ev
    record = job_of(ev, "0").record
    plan = Draft("", "", b"")
    with ev.store.db.writing(durable=True) as conn:  # type: ignore[attr-defined]
        job = NextJob(ev.tenant, 987654, record, Op.EMBED, None, plan)
        ev.store.versions._writer.put_next(conn, [job], ev.store.now())  # type: ignore[attr-defined]
    assert "987654" in {job.embedding_version for job in ev.queue.jobs()}
    (claimed,) = ev.queue.claim(1)
    assert claimed.embedding_version == "987654"
    ev.queue.release(claimed)
    ev._housekeeping.sweep()
    assert {job.embedding_version for job in ev.queue.jobs()} == {"hashing-64"}
    assert_in_step(ev, TEXTS)


def test_a_version_that_was_retired_does_not_serve_again(filled: World) -> None:
    ev, old = filled.ev, version_of(filled.ev)
    migration = ev.migrate(Other())
    drive(ev)
    migration.switch()
    migration.retire()
    with pytest.raises(InvalidTransition, match="was retired"):  # as one who looked before that
        ev.store.versions.switch([old], force=True)
    assert states(ev) == {"hashing-64": "retired", "other-1": "serving"}
    filled.clock.move(10)
    ev._lifecycle.step()
    assert found(ev, TEXTS["0"]) == ("other-1", ["0"])


def test_rows_of_a_loader_wait_for_it_in_the_new_version_too(world: World) -> None:
    ev, plain = world.ev, world.tenant("default")  # without the kind
    ev.register(Kind("row", load={"1": "alpha text", "2": "beta text"}.get))
    ev.queue.enqueue("row", "1")
    work(ev)
    ev.queue.enqueue("row", "2")
    for one in (ev, plain):
        one.models.add(Other())
    migration = ev.migrate(Other())
    drive(plain)
    assert ev.queue.stats().failed == 0
    drive(ev)
    migration.switch()
    assert [hit.id for hit in ev.search("beta", 1, kind="row", mode="semantic")] == ["2"]
    assert ev.verify().clean


def test_a_row_that_a_cancelled_version_never_read_replaces_nothing(world: World) -> None:
    ev = world.ev
    ev.register(Kind("row", load={"1": "of the row"}.get))
    ev.queue.enqueue("row", "1")
    work(ev)
    migration = ev.migrate(Other())
    ev.queue.enqueue("row", "1")
    migration.cancel()
    ev.add("row", "by hand", id="1")
    work(ev)
    (version,) = [c.version for c in ev.store.versions.collections() if c.state == "serving"]
    ev.index.remove(version, ev.index.held(version, None, 0, None))
    ev.verify(repair=True)  # asks for the record again, with what it owes
    drive(ev)
    record = ev.get("row", "1")
    assert record is not None
    assert record.text == "by hand"
    assert ev.verify().clean


def test_a_box_that_came_after_a_row_was_asked_for_is_not_replaced_by_it(world: World) -> None:
    ev = world.ev
    ev.register(Kind("row", load={"1": "of the row"}.get))
    ev.queue.enqueue("row", "1")
    work(ev)
    ev.migrate(Other())
    ev.queue.enqueue("row", "1")
    ev.add("row", "boxed", id="1", boxed=True)  # the new version has still to load the row
    (serving,) = [c.version for c in ev.store.versions.collections() if c.state == "serving"]
    ev.store.changes.reopen(serving, [job_of(ev, "1", "row").record], forget=False)
    drive(ev)
    record = ev.get("row", "1")
    assert record is not None
    assert record.text == "boxed"
    assert ev.verify().clean
