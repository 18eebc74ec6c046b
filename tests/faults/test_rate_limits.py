"""Fault 26: a storm of 429 with Retry-After, and how workers come back from it."""

import math
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.places import Place
from support.processes import Start, until
from support.provided import NOTES, Provided, assert_indexed, attempts, provided
from support.provider import Behaviour, Call
from support.provider_process import ProviderProcess

WORKERS, CONCURRENCY, BATCH = 3, 6, 16
STORM = 2.5


@pytest.fixture(params=NOTES)
def world(
    request: pytest.FixtureRequest, path: Place, start: Start, tmp_path: Path
) -> Iterator[Provided]:
    behaviour = Behaviour(latency=0.02, tells=("retry-after",))
    settings = {"concurrency": CONCURRENCY, "provider_batch": BATCH}
    with (
        ProviderProcess(behaviour) as provider,
        provided(path, provider, start, tmp_path, request.param, **settings) as made,
    ):
        yield made


def test_26_all_workers_keep_the_pause_and_come_back_one_call_at_a_time(
    world: Provided, path: Place
) -> None:
    """Workers in three processes, and one more that comes while the storm lasts and has not
    been told of it but by the others."""
    ev, provider = world.ev, world.provider
    notes = world.add_notes()
    for n in range(WORKERS):
        world.worker(provider_batch=BATCH + 1 + n)  # by which their calls are told apart
    sizes = {BATCH + 1 + n for n in range(WORKERS)}
    until(lambda: sizes <= {call.inputs for call in provider.calls()}, "all workers to be at it")
    provider.behave(storm_until=time.time() + STORM)
    until(lambda: ev.queue.stats().gate is not None, "the gate to be shut")
    gate = ev.queue.stats().gate
    assert gate is not None
    assert gate.state == "limited"
    assert "Rate limit reached" in gate.reason
    assert not ev.provider.ready()
    with ev.worker():
        until(lambda: world.done == len(notes), "all to be embedded")

    calls = [call for call in provider.calls() if call.path == "/v1/embeddings"]
    refused = [call for call in calls if call.status == 429]
    assert 1 <= len(refused) <= WORKERS * CONCURRENCY  # those that were under way
    storm_ends = provider.behaviour.storm_until
    first = refused[0]
    pause_ends = first.start + math.ceil(storm_ends - first.start)
    early = [call for call in calls if first.start + 1 < call.start < pause_ends]
    assert early == [], "somebody called before the pause was over"
    probe, *later = [call for call in calls if call.start >= pause_ends]
    assert probe.inputs == 1
    assert all(call.start >= _end(probe) for call in later)
    for n in range(WORKERS + 1):
        _assert_no_herd([call for call in later if call.inputs == BATCH + n])
    assert attempts(path) == {(1, "done"): len(notes)}
    assert ev.queue.stats().failed == 0
    assert_indexed(ev, path, notes)


def _assert_no_herd(calls: list[Call]) -> None:
    """A worker has one call under way until that is answered, then two, then four."""
    ends = sorted(map(_end, calls))
    for answered, most in enumerate([1, 2, 4][: len(ends)]):
        begun = sum(call.start < ends[answered] for call in calls)
        assert begun - answered <= most, f"{begun} calls before answer {answered + 1}"


def _end(call: Call) -> float:
    assert call.end is not None
    return call.end
