"""A version is dropped while others still work for it: nothing of it comes back."""

from collections.abc import Callable

import pytest

from evervec import Evervec
from support.oracle import Application, Oracle
from support.processes import until
from support.stepping import another, before, build, settle, take
from support.world import World, paragraph, step, work

pytestmark = pytest.mark.every_index


@pytest.fixture
def app(world: World) -> Application:
    """Two versions, both with everything: one serves, the other was built by another worker."""
    app = Application(world.ev, Oracle())
    for word in ("lemon", "granite", "walnut"):
        app.add(word, paragraph(word))
    work(world.ev)
    world.ev.migrate("hashing:32")
    return app


def drop(world: World, ev: Evervec) -> Callable[[], None]:
    """Give the new version up, and take away at once what is left of it."""

    def dropped() -> None:
        migration = ev.migration()
        if migration is not None:
            migration.cancel()
        world.clock.move(60)  # no search goes on with it for longer
        until(lambda: _is_gone(ev), "the version to be gone")

    return dropped


def _is_gone(ev: Evervec) -> bool:
    ev._lifecycle.drop_retired()
    return len(ev.store.versions.collections()) == 1


def check(world: World, app: Application) -> None:
    """No job is left of it, and a repair leaves no point of it."""
    settle(world, app.ev)
    assert app.ev.queue.jobs(status="pending") == []
    app.ev.verify(repair=True)
    assert app.ev.verify().clean
    app.oracle.check(app.ev)


def test_a_worker_that_holds_jobs_of_a_dropped_version_leaves_none_behind(
    world: World, app: Application
) -> None:
    worker = another(world)
    build(worker)
    app.add("lemon", paragraph("lime"))
    work_for_serving = [
        c.version for c in app.ev.store.versions.collections() if c.state == "serving"
    ]
    step(app.ev, app.ev.queue.claim(10, versions=work_for_serving))
    batch = take(worker)
    assert batch.items
    drop(world, app.ev)()
    worker.pipeline.write(batch)
    check(world, app)


def test_a_worker_that_writes_while_the_version_is_dropped_leaves_none_behind(
    apart_world: World,
) -> None:
    """Between its last look at the lease and its write to an index apart from the store."""
    app = Application(apart_world.ev, Oracle())
    app.add("lemon", paragraph("lemon"))
    work(app.ev)
    app.ev.migrate("hashing:32")
    worker = another(apart_world)
    build(worker)
    app.add("lemon", paragraph("lime"))
    serving = [c.version for c in app.ev.store.versions.collections() if c.state == "serving"]
    step(app.ev, app.ev.queue.claim(10, versions=serving))
    batch = take(worker)
    with before(worker.index, "apply", drop(apart_world, app.ev)):
        worker.pipeline.write(batch)
    job = batch.items[0].job
    assert list(worker.index.held(job.version, job.tenant, 0, job.record)) == []
    check(apart_world, app)


def test_a_repair_that_looked_before_the_drop_leaves_none_behind(
    world: World, app: Application
) -> None:
    other = another(world)
    build(app.ev)
    (new,) = [c.version for c in app.ev.store.versions.collections() if c.state == "building"]
    other.index.remove(new, other.index.held(new, None, 0, None))
    with before(other.store.changes, "reopen", drop(world, app.ev)):
        other.verify(repair=True)
    check(world, app)


def test_a_repair_meets_the_drop_of_the_points_that_it_would_take_out(
    world: World, app: Application
) -> None:
    other = another(world)
    build(app.ev)
    migration = app.ev.migration()
    assert migration is not None
    migration.cancel()
    with before(other.index, "drop_strays", drop(world, app.ev)):
        other.verify(repair=True)
    check(world, app)


def test_a_backfill_that_looked_before_the_drop_leaves_none_behind(
    world: World, app: Application
) -> None:
    """What it enqueues for a version that is gone is nobody's work."""
    other = another(world)
    other.pipeline.served.refresh()
    until(
        lambda: other.store.versions.track_unaware(_building(other), "building"),
        "older transactions to end",
    )
    with before(other.store.changes, "reopen", drop(world, app.ev)):
        other.backfill()
    check(world, app)


def _building(ev: Evervec) -> int:
    (version,) = [c.version for c in ev.store.versions.collections() if c.state == "building"]
    return version
