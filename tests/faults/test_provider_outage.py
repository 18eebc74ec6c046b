"""The provider is down for an hour, with thousands of jobs waiting."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from support.places import Place, query
from support.processes import Start, until
from support.provided import NOTES, Provided, assert_indexed, attempts, provided
from support.provider_process import ProviderProcess

HOUR = 3600.0


@pytest.fixture(params=NOTES)
def world(
    request: pytest.FixtureRequest, path: Place, start: Start, tmp_path: Path
) -> Iterator[Provided]:
    with (
        ProviderProcess() as provider,
        provided(path, provider, start, tmp_path, request.param) as made,
    ):
        yield made


def test_an_hour_without_the_provider_loses_nothing_and_spends_no_attempt(
    world: Provided, path: Place
) -> None:
    """It goes while two workers are at it, and comes back after an hour by the store's clock.
    Meanwhile one of them tries it now and then, and searches answer from text."""
    ev, provider = world.ev, world.provider
    notes = world.add_notes()
    for _ in range(2):
        world.worker()
    until(lambda: provider.seen().embedded > len(notes) / 5, "the workers to be at it")
    provider.behave(down=True)
    until(lambda: ev.queue.stats().gate is not None, "the outage to be noticed")
    until(lambda: ev.queue.stats().processing == 0, "all to be given back")
    for _ in range(3):
        tries = _tries(world) + 1
        world.clock.leap(HOUR / 3)
        until(partial(_tried, world, tries), "one of the workers to try again")
    stats = ev.queue.stats()
    assert 0 < stats.done < len(notes)
    assert (stats.processing, stats.failed, stats.pending) == (0, 0, len(notes) - stats.done)
    pending = "select max(attempts), max(error) from evervec_jobs where status = 'pending'"
    ((spent, error),) = query(path, pending)
    assert spent == 0
    assert "is unreachable" in error
    assert attempts(path) == {(1, "done"): stats.done}
    assert ev.search("note 17").via == "text"

    provider.behave(down=False)
    world.clock.leap(80)  # longer than the longest pause
    until(lambda: world.done == len(notes), "all to be embedded")
    assert ev.queue.stats().gate is None
    assert attempts(path) == {(1, "done"): len(notes)}
    assert_indexed(ev, path, notes)
    assert ev.search("note 17").via == "hybrid"


def _tried(world: Provided, times: int) -> bool:
    return _tries(world) >= times


def _tries(world: Provided) -> int:
    gate = world.ev.queue.stats().gate
    assert gate is not None
    assert gate.state == "outage"
    return gate.tries
