"""A record changes while a worker writes its last version into an index apart from the store.

Index and store are two systems: the index can have a write that the store does not know of,
because its worker was slow, lost its lease, or died between the two. Whatever the application
does to the record then, also when its text comes back to what it was, the index ends up whole.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pytest

from evervec import Job, StoreError
from support.oracle import Application, Oracle
from support.stepping import LEASE, Killed, another, build, kill, settle, take, write
from support.world import World, paragraph, work


class Texts(NamedTuple):
    """Texts of one record, of several chunks each; no other record has their words."""

    first: str
    second: str
    one_edited: str
    """the first with another paragraph in the middle"""
    longer: str
    """the first with one more paragraph"""


def texts_of(number: int) -> Texts:
    lemon, lime, citron, granite, basalt, quartz, pomelo = (
        paragraph(f"{word}{number}")
        for word in ("lemon", "lime", "citron", "granite", "basalt", "quartz", "pomelo")
    )
    return Texts(
        "\n\n".join((lemon, lime, citron)),
        "\n\n".join((granite, basalt)),
        "\n\n".join((lemon, quartz, citron)),
        "\n\n".join((lemon, lime, citron, pomelo)),
    )


Edit = Callable[[Application, str, Texts], object]

EDITS: Mapping[str, tuple[Edit, Edit]] = {
    "edited back": (
        lambda app, id, texts: app.add(id, texts.second),
        lambda app, id, texts: app.add(id, texts.first),
    ),
    "one paragraph edited back": (
        lambda app, id, texts: app.add(id, texts.one_edited),
        lambda app, id, texts: app.add(id, texts.first),
    ),
    "one paragraph added and taken out": (
        lambda app, id, texts: app.add(id, texts.longer),
        lambda app, id, texts: app.add(id, texts.first),
    ),
    "edited back in part": (
        lambda app, id, texts: app.add(id, texts.second),
        lambda app, id, texts: app.add(id, texts.one_edited),
    ),
    "delete undone": (
        lambda app, id, texts: app.delete(id),
        lambda app, id, texts: app.add(id, texts.first),
    ),
    "delete undone with one more paragraph": (
        lambda app, id, texts: app.delete(id),
        lambda app, id, texts: app.add(id, texts.longer),
    ),
    "edit deleted and undone": (
        lambda app, id, texts: app.add(id, texts.second),
        lambda app, id, texts: (app.delete(id), app.add(id, texts.first)),
    ),
    "edited back in a box": (
        lambda app, id, texts: app.add(id, texts.second),
        lambda app, id, texts: app.add(id, texts.first, boxed=True),
    ),
    "metadata changed back": (
        lambda app, id, texts: app.add(id, texts.first, metadata={"shelf": 2}),
        lambda app, id, texts: app.add(id, texts.first, metadata={"shelf": 1}),
    ),
    "edited again": (
        lambda app, id, texts: app.add(id, texts.second),
        lambda app, id, texts: app.add(id, texts.longer),
    ),
    "deleted": (
        lambda app, id, texts: app.add(id, texts.second),
        lambda app, id, texts: app.delete(id),
    ),
    "left alone": (lambda app, id, texts: app.add(id, texts.second), lambda *_: None),
}
"""By id, what the worker holds, and what the application does to the record meanwhile. One
record of each, all in one batch: a failure names those that are not whole."""


class Records:
    """The records of `EDITS`, all in the index, beside one that nobody touches."""

    def __init__(self, world: World) -> None:
        self.oracle = Oracle()
        self.ev = world.ev
        self._app = Application(world.ev, self.oracle)
        for number, id in enumerate(EDITS):
            self._app.add(id, texts_of(number).first, metadata={"shelf": 1})
        self._app.add("neighbour", paragraph("walnut"))
        work(world.ev)
        self.oracle.require(world.ev, self.oracle.of_index(world.ev))

    def change(self) -> None:
        """Make the changes that the worker is to hold."""
        for number, (id, (first, _)) in enumerate(EDITS.items()):
            first(self._app, id, texts_of(number))

    def change_again(self) -> None:
        """What the application does while the worker has them in hand."""
        for number, (id, (_, then)) in enumerate(EDITS.items()):
            then(self._app, id, texts_of(number))

    def check(self) -> None:
        """Everything is whole, now that nothing is left to do."""
        self.oracle.check(self.ev)


@pytest.fixture
def records(apart_world: World) -> Records:
    return Records(apart_world)


@pytest.mark.parametrize("point", ["prepared", "applying", "applied"])
def test_records_changed_while_a_slow_worker_writes_them_are_whole(
    apart_world: World, records: Records, point: str
) -> None:
    """No fault at all: the lease holds, and the worker goes on."""
    records.change()
    write(records.ev, take(records.ev), point, records.change_again)
    settle(apart_world, records.ev)
    records.check()


@pytest.mark.parametrize("point", ["applied", "finished"])
def test_records_changed_after_their_worker_was_killed_in_a_write_are_whole(
    apart_world: World, records: Records, point: str
) -> None:
    records.change()
    worker = another(apart_world)
    with pytest.raises(Killed):
        write(worker, take(worker), point, kill)
    records.change_again()
    settle(apart_world, records.ev)
    records.check()


@pytest.mark.parametrize(
    ("point", "found"),
    [("applied", "waiting"), ("applying", "taken"), ("applied", "taken")],
)
def test_records_changed_while_their_worker_slept_past_its_lease_are_whole(
    apart_world: World, records: Records, point: str, found: str
) -> None:
    """When the worker wakes, their jobs wait for somebody, or are in another worker's hands."""
    records.change()
    sleeper, other = another(apart_world), records.ev
    taken = []

    def meanwhile() -> None:
        apart_world.clock.move(LEASE + 1)
        other.queue.recover_stuck()
        records.change_again()
        if found == "taken":
            taken.append(take(other))

    write(sleeper, take(sleeper), point, meanwhile)
    for batch in taken:
        other.pipeline.write(batch)
    settle(apart_world, other)
    records.check()


@pytest.mark.parametrize("point", ["applying", "applied"])
def test_a_worker_that_wakes_after_another_finished_takes_nothing_back(
    apart_world: World, records: Records, point: str
) -> None:
    """What is right stays right, also before anybody looks again."""
    records.change()
    sleeper, other = another(apart_world), records.ev

    def meanwhile() -> None:
        apart_world.clock.move(LEASE + 1)
        records.change_again()
        settle(apart_world, other)

    write(sleeper, take(sleeper), point, meanwhile)
    records.oracle.require(other, records.oracle.of_index(other))
    settle(apart_world, other)
    records.check()


@pytest.mark.parametrize("point", ["applied", "finished"])
def test_records_changed_before_their_batch_is_written_again_are_whole(
    apart_world: World, records: Records, point: str
) -> None:
    """The store is away after the index write, or commits and its answer is lost; then the worker
    brings the same batch once more."""
    records.change()
    worker = another(apart_world)
    batch = take(worker)

    def lose() -> None:
        raise StoreError("the connection was lost")

    with pytest.raises(StoreError):
        write(worker, batch, point, lose)
    records.change_again()
    worker.pipeline.write(batch)
    settle(apart_world, records.ev)
    records.check()


@pytest.mark.every_pair
def test_two_workers_killed_one_after_the_other_leave_nothing_half_finished(
    apart_world: World, records: Records
) -> None:
    """Each of them wrote another version into the index, and none told the store."""
    for change in (records.change, records.change_again):
        change()
        worker = another(apart_world)
        with pytest.raises(Killed):
            write(worker, take(worker), "applied", kill)
        apart_world.clock.move(LEASE + 1)
        records.ev.queue.recover_stuck()
    records.change()
    records.change_again()
    settle(apart_world, records.ev)
    records.check()


@pytest.mark.parametrize("end", ["released", "cancelled", "failed for good"])
def test_a_job_that_ends_otherwise_after_its_index_write_leaves_its_record_whole(
    apart_world: World, records: Records, end: str
) -> None:
    """The worker gives its jobs back after the index write, somebody cancels them, or their
    attempts are spent; then the application changes the records again."""
    ev = records.ev
    records.change()
    worker = another(apart_world)
    batch = take(worker)
    with pytest.raises(Killed):
        write(worker, batch, "applied", kill)
    if end == "released":
        worker.queue.release_many(batch.jobs)
    elif end == "failed for good":
        worker.queue.fail_many([(job, "it is bad", True) for job in batch.jobs])
    else:
        apart_world.clock.move(LEASE + 1)
        ev.queue.recover_stuck()
        for job in ev.queue.jobs(status="pending"):
            ev.queue.cancel(job.job_id)
    records.change_again()
    for job in ev.queue.failed():  # the one that was left alone
        ev.queue.retry(job.job_id)
    ev.backfill()
    settle(apart_world, ev)
    records.check()


def test_repair_beside_a_half_finished_write_leaves_records_whole(
    apart_world: World, records: Records
) -> None:
    """`verify` mends beside a worker that is between index and store."""
    records.change()
    worker, other = another(apart_world), records.ev

    def meanwhile() -> None:
        other.verify(repair=True)
        records.change_again()
        other.verify(repair=True)

    write(worker, take(worker), "applied", meanwhile)
    settle(apart_world, other)
    records.check()


def test_a_version_being_built_is_whole_after_a_half_finished_write(
    apart_world: World, records: Records
) -> None:
    """The index has the write for both versions, and the store for none."""
    ev = records.ev
    ev.migrate("hashing:32")
    build(ev)
    records.oracle.require(ev, records.oracle.of_index(ev))
    records.change()
    worker = another(apart_world)
    rest: Sequence[Job] = worker.pipeline.claim(256)
    while rest:
        batch, rest = worker.pipeline.prepare(rest)
        worker.pipeline.embed(batch)
        with pytest.raises(Killed):
            write(worker, batch, "applied", kill)
    records.change_again()
    settle(apart_world, ev)
    records.check()


@pytest.mark.parametrize("point", ["applying", "applied"])
def test_a_worker_that_wakes_after_its_version_was_dropped_leaves_no_points(
    apart_world: World, records: Records, point: str
) -> None:
    """The change of model was cancelled while the worker slept past its lease."""
    ev, sleeper = records.ev, another(apart_world)
    migration = ev.migrate("hashing:32")
    build(ev)
    building = {c.version for c in ev.store.versions.collections() if c.state == "building"}
    records.change()

    def drop() -> None:
        apart_world.clock.move(LEASE + 1)
        migration.cancel()
        apart_world.clock.move(LEASE)
        ev.drop_retired()
        assert building.isdisjoint(c.version for c in ev.store.versions.collections())

    rest: Sequence[Job] = sleeper.pipeline.claim(256)
    slept = False
    while rest:
        batch, rest = sleeper.pipeline.prepare(rest)
        sleeper.pipeline.embed(batch)
        if not slept and {job.version for job in batch.jobs} & building:
            slept = True
            write(sleeper, batch, point, drop)
        else:
            sleeper.pipeline.write(batch)
    assert slept
    settle(apart_world, ev)
    records.check()
