"""Two workers on one store, stepped by hand: what one does while the other is at a named point.

No threads and no waiting: whatever is to happen meanwhile is called at that point, inside the
worker that is there. A worker that is killed raises `Killed` and is never used again.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from evervec import Evervec
from evervec.worker.batch import Batch
from support.engines import STORES
from support.processes import until
from support.world import World, work

LEASE = 60.0
"""seconds, as the settings have it"""


class Killed(BaseException):
    """Nothing of the process goes on after this."""


def kill() -> None:
    raise Killed


def another(world: World) -> Evervec:
    """A second worker of the same store and index, with a view of its own where the store can be
    opened twice."""
    return world.open() if STORES[world.store_name].shared else world.tenant("default")


def take(ev: Evervec) -> Batch:
    """Claim all that is due, read it, cut it and embed it: everything but the write."""
    batch, rest = ev.pipeline.prepare(ev.pipeline.claim(256))
    assert not rest
    ev.pipeline.embed(batch)
    return batch


@contextmanager
def before(owner: object, name: str, do: Callable[[], object]) -> Iterator[None]:
    """Do something once, right before the next call of a method of this object."""
    original: Any = getattr(owner, name)

    def called(*given: Any, **named: Any) -> Any:
        setattr(owner, name, original)
        do()
        return original(*given, **named)

    yield from _instead(owner, name, original, called)


@contextmanager
def after(owner: object, name: str, do: Callable[[], object]) -> Iterator[None]:
    """Do something once, right after the next call of a method, before its caller goes on."""
    original: Any = getattr(owner, name)

    def called(*given: Any, **named: Any) -> Any:
        setattr(owner, name, original)
        answer = original(*given, **named)
        do()
        return answer

    yield from _instead(owner, name, original, called)


def _instead(owner: object, name: str, original: Any, called: Any) -> Iterator[None]:
    setattr(owner, name, called)
    try:
        yield
        assert getattr(owner, name) is not called, f"{name} was not called"
    finally:
        setattr(owner, name, original)


def write(ev: Evervec, batch: Batch, point: str, meanwhile: Callable[[], object]) -> None:
    """Write a batch. `point` says when something happens meanwhile: `prepared` (before the write),
    `applying` and `applied` (before and after the write to an index apart from the store), or
    `finished` (the store has committed, and its answer is on the way)."""
    if point == "prepared":
        meanwhile()
        ev.pipeline.write(batch)
        return
    hooks = {
        "applying": lambda: before(ev.index, "apply", meanwhile),
        "applied": lambda: before(ev.store.leases, "finish", meanwhile),
        "finished": lambda: after(ev.store.leases, "finish", meanwhile),
    }
    with hooks[point]():
        ev.pipeline.write(batch)


def settle(world: World, ev: Evervec) -> None:
    """Do all that is left, also what others died with."""
    for _ in range(3):
        world.clock.move(LEASE + 1)
        ev.queue.recover_stuck()
        work(ev)


def build(ev: Evervec) -> None:
    """Build the versions that were begun. On PostgreSQL a version first waits for transactions
    that began before it, were it only a NOTIFY."""

    def built() -> bool:
        while ev._lifecycle.step() or work(ev).processed:
            pass
        building = [c for c in ev.store.versions.collections() if c.state == "building"]
        return all(map(ev._lifecycle.is_filled, building))

    until(built, "the version to be built")
