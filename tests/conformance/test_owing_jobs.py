"""A job that owes the reading of a row, or the opening of a box, owes it until that is done.

Many ask for a record to be looked at again: a worker that lost its lease, a repair, a backfill,
a migration, a caller. None of them knows what the job that waits already has to do, so none may
make less of it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from evervec import Evervec, Job
from evervec.worker.batch import Batch
from support.engines import PAIRS, apart
from support.owing import OWING, Owing, keeps
from support.processes import until
from support.stepping import LEASE, another, before, build, settle, take, write
from support.world import World, paragraph, step, work

FIRST, SECOND, THIRD, NEW = map(paragraph, ("lemon", "orange", "pear", "quince"))

EACH = [(pair, name) for pair in PAIRS for name in OWING if keeps(name, pair[0])]
APART = [(pair, name) for pair, name in EACH if apart(pair[1])]
ROWS = [(pair, name) for pair, name in APART if name != "box"]


def parametrized(cases: list[tuple[tuple[str, str], str]]) -> pytest.MarkDecorator:
    ids = ["-".join((*pair, name)) for pair, name in cases]
    return pytest.mark.parametrize("owing", cases, indirect=True, ids=ids)


@pytest.fixture
def owing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Owing]:
    """A record that appeared with its first text."""
    pair, name = request.param
    world = World(pair, tmp_path)
    owing = OWING[name](world)
    owing.introduce(world.ev)
    owing.write(world.ev, "live", FIRST)
    owing.write(world.ev, "untouched", THIRD)
    work(world.ev)
    assert owing.oracle.of_index(world.ev) == []
    yield owing
    owing.close()
    world.close()


def change(owing: Owing, ev: Evervec) -> None:
    """The application changes a record that is there, and makes one that is not."""
    owing.write(ev, "live", SECOND)
    owing.write(ev, "new", NEW)


@parametrized(APART)
@pytest.mark.parametrize("changed_again", [False, True], ids=["once", "twice"])
def test_a_worker_that_lost_its_lease_leaves_what_waits_as_it_is(
    owing: Owing, changed_again: bool
) -> None:
    """It sleeps between index and store. The job is taken back and waits; the worker wakes, and
    asks for another look at what it wrote."""
    world, ev = owing.world, owing.world.ev
    change(owing, ev)
    sleeper = owing.introduce(another(world))

    def meanwhile() -> None:
        world.clock.move(LEASE + 1)
        ev.queue.recover_stuck()
        if changed_again:
            owing.write(ev, "live", THIRD)
            owing.write(ev, "new", FIRST)

    write(sleeper, take(sleeper), "applied", meanwhile)
    settle(world, ev)
    owing.oracle.check(ev)


@parametrized(EACH)
def test_a_repair_leaves_what_waits_as_it_is(owing: Owing) -> None:
    """The index has lost a record, which changes between the look of `verify` and its repair."""
    ev = owing.world.ev
    other = owing.introduce(another(owing.world))
    for c in ev.store.versions.collections():
        ev.index.remove(c.version, ev.index.held(c.version, None, 0, None))
    with before(ev.store.changes, "reopen", lambda: change(owing, other)):
        assert ev.verify(repair=True).missing
    settle(owing.world, ev)
    owing.oracle.check(ev)


@parametrized(EACH)
def test_a_backfill_leaves_what_waits_as_it_is(owing: Owing) -> None:
    """Texts are cut in another way, and records change between its look and its jobs."""
    world, ev = owing.world, owing.world.ev
    settings = replace(ev.settings, chunk_tokens=32)
    cuts = owing.introduce(Evervec(ev.store, ev.index, world.embedder, "default", settings))
    with before(ev.store.changes, "reopen", lambda: change(owing, ev)):
        cuts.backfill()
    settle(world, cuts)
    owing.oracle.check(cuts)


@parametrized(EACH)
@pytest.mark.parametrize(("part", "moment"), [("versions", "join"), ("changes", "reopen")])
def test_a_version_being_built_gets_what_waits(owing: Owing, part: str, moment: str) -> None:
    """Records change between the look of a migration and its jobs, and the workers of the new
    model come first."""
    world, ev = owing.world, owing.world.ev
    other = owing.introduce(another(world))
    migration = ev.migrate("hashing:32")
    (new,) = [c.version for c in ev.store.versions.collections() if c.state == "building"]
    until(lambda: ev.store.versions.track_unaware(new, "building"), "older transactions to end")
    with before(getattr(ev.store, part), moment, lambda: change(owing, other)):
        while ev._lifecycle.step():
            pass
    ev.pipeline.served.refresh()
    while jobs := ev.queue.claim(256, versions=[new]):
        step(ev, jobs)
    build(ev)
    settle(world, ev)
    owing.oracle.check(ev)
    migration.switch()
    owing.oracle.check(ev)


@pytest.mark.parametrize("ends", ["waits", "failed"])
def test_a_version_being_built_gets_a_live_record_while_its_box_is_closed(
    world: World, ends: str
) -> None:
    """It would be missing from searches once that version serves."""
    ev = world.ev
    ev.add("note", FIRST, id="live")
    work(ev)
    ev.add("note", SECOND, id="live", boxed=True, delay=3600)
    if ends == "failed":
        world.clock.move(3601)
        (job,) = ev.queue.claim(1)
        ev.queue.fail(job, "it is bad", permanent=True)
    migration = ev.migrate("hashing:32")
    build(ev)
    migration.switch()
    (serving,) = [c for c in ev.store.versions.collections() if c.state == "serving"]
    assert serving.spec is not None
    assert serving.spec.dimensions == 32
    (record,) = ev.records("note")
    assert (record.text, record.embedded) == (FIRST, True)


@parametrized(EACH)
def test_an_enqueue_leaves_what_waits_as_it_is(owing: Owing) -> None:
    """By a process that knows nothing of how these records are fetched."""
    ev = owing.world.ev
    plain = another(owing.world)
    change(owing, ev)
    plain.queue.enqueue_many(owing.kind, ["live", "new"])
    settle(owing.world, ev)
    owing.oracle.check(ev)


@parametrized(EACH)
def test_an_enqueue_beside_a_worker_leaves_its_job_as_it_is(owing: Owing) -> None:
    """The job is in a worker's hands, and has not been read yet."""
    ev = owing.world.ev
    plain = another(owing.world)
    change(owing, ev)
    jobs: Sequence[Job] = ev.pipeline.claim(256)
    plain.queue.enqueue_many(owing.kind, ["live", "new"])
    step(ev, jobs)
    settle(owing.world, ev)
    owing.oracle.check(ev)


@parametrized(EACH)
def test_a_repair_beside_a_killed_worker_leaves_its_job_as_it_is(owing: Owing) -> None:
    """The worker died with the jobs in its hands; the index lost the record; both are mended."""
    world, ev = owing.world, owing.world.ev
    worker = owing.introduce(another(world))
    for c in ev.store.versions.collections():
        ev.index.remove(c.version, ev.index.held(c.version, None, 0, None))

    def meanwhile() -> None:
        change(owing, ev)
        worker.pipeline.claim(256)  # and dies

    with before(ev.store.changes, "reopen", meanwhile):
        assert ev.verify(repair=True).missing
    settle(world, ev)
    owing.oracle.check(ev)


# the same seq twice
@parametrized(ROWS)
@pytest.mark.parametrize("second", [SECOND, None], ids=["changed", "deleted"])
@pytest.mark.parametrize("point", ["applying", "applied"])
def test_a_worker_that_read_an_older_row_never_replaces_what_a_newer_reader_wrote(
    owing: Owing, second: str | None, point: str
) -> None:
    """Both hold the same job at the same seq, one after the other, and the row changes between
    their looks at it."""
    world, ev = owing.world, owing.world.ev
    owing.write(ev, "live", THIRD)
    owing.write(ev, "new", NEW)
    sleeper = owing.introduce(another(world))

    def meanwhile() -> None:
        world.clock.move(LEASE + 1)
        ev.queue.recover_stuck()
        jobs = ev.pipeline.claim(256)
        owing.commit("live", second)
        owing.commit("new", second and FIRST)
        batch, rest = ev.pipeline.prepare(jobs)
        assert not rest
        ev.pipeline.embed(batch)
        assert ev.pipeline.write(batch).succeeded == 2

    write(sleeper, take(sleeper), point, meanwhile)
    owing.oracle.require(ev, owing.oracle.of_index(ev))
    for id in ("live", "new"):
        owing.tell(ev, id)
    settle(world, ev)
    owing.oracle.check(ev)


@parametrized(ROWS)
def test_a_row_that_comes_back_to_what_a_sleeping_worker_read_is_whole(owing: Owing) -> None:
    """The newer reader wrote, the sleeper wrote late, and the application undid its change."""
    world, ev = owing.world, owing.world.ev
    owing.write(ev, "live", SECOND)
    sleeper = owing.introduce(another(world))
    taken: list[Batch] = []

    def meanwhile() -> None:
        world.clock.move(LEASE + 1)
        ev.queue.recover_stuck()
        jobs = ev.pipeline.claim(256)
        owing.commit("live", FIRST)
        batch, _ = ev.pipeline.prepare(jobs)
        ev.pipeline.embed(batch)
        taken.append(batch)

    write(sleeper, take(sleeper), "applying", meanwhile)
    ev.pipeline.write(taken[0])
    owing.tell(ev, "live")
    settle(world, ev)
    owing.oracle.check(ev)
