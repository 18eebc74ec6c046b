"""A storm of 429 with Retry-After, and how workers come back from it."""

import math
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.places import Place
from support.processes import Start, until
from support.provided import NOTES, Provided, assert_indexed, attempts, provided
from support.provider import Behaviour, Call
from support.provider_process import ProviderProcess

CONCURRENCY, BATCH = 6, 16
SIZES = (18, 19, 20)
"""of the calls of three workers, by which their connections are identified: the calls of a batch are
of equal size, and a whole batch of 256 has calls of just these"""
STORM = 2.5
"""seconds, or twice as long as the machine needs to start the workers, if that is more: a storm
must outlast what is done while it lasts"""


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


def test_all_workers_keep_the_pause_and_come_back_one_call_at_a_time(
    world: Provided, path: Place
) -> None:
    """Workers in three processes, and one more that comes while the storm lasts and has not
    been told of it but by the others."""
    ev, provider = world.ev, world.provider
    notes = world.add_notes()
    began = time.monotonic()
    for size in SIZES:
        world.worker(provider_batch=size)
    wanted = set(SIZES)
    until(lambda: wanted <= {call.inputs for call in provider.calls()}, "all workers to be at it")
    storm = max(STORM, 2 * (time.monotonic() - began))
    provider.behave(storm_until=time.time() + storm)
    gate = until(lambda: ev.queue.stats().gate, "the gate to be shut")
    assert gate is not None
    assert gate.state == "limited"
    assert "Rate limit reached" in gate.reason
    assert not ev.provider.try_resume()
    with ev.worker():
        until(lambda: world.done == len(notes), "all to be embedded")

    calls = [call for call in provider.calls() if call.path == "/v1/embeddings"]
    refused = [call for call in calls if call.status == 429]
    assert refused
    storm_ends = provider.behaviour.storm_until
    first = refused[0]
    pause_ends = first.start + math.ceil(storm_ends - first.start)
    # a thread that passed the gate before it was shut calls once, however late it gets to it
    late = [call for call in calls if storm_ends <= call.start < pause_ends]
    during = [*refused, *late]
    worker = _workers(calls)
    assert len(during) <= len(SIZES) * CONCURRENCY, "somebody called before the pause was over"
    most = max(Counter(worker[call.connection] for call in during).values())
    assert most <= CONCURRENCY, "a worker called again in its pause"
    assert 1 not in {call.inputs for call in during}, "somebody probed before the pause was over"
    probe, *later = [call for call in calls if call.start >= pause_ends]
    assert probe.inputs == 1
    assert all(call.start >= _end(probe) for call in later)
    for size in (BATCH, *SIZES):
        _assert_no_herd([call for call in later if worker[call.connection] == size])
    assert attempts(path) == {(1, "done"): len(notes)}
    assert ev.queue.stats().failed == 0
    assert_indexed(ev, path, notes)


def _workers(calls: list[Call]) -> dict[int, int]:
    """The worker of each connection, by the size of its whole batches: the last batch of a claim
    can have any size."""
    sizes: dict[int, int] = {}
    for call in calls:
        sizes[call.connection] = max(sizes.get(call.connection, 0), call.inputs)
    return sizes


def _assert_no_herd(calls: list[Call]) -> None:
    """A worker has one call under way until that is answered, then two, then four."""
    ends = sorted(map(_end, calls))
    for answered, most in enumerate([1, 2, 4][: len(ends)]):
        begun = sum(call.start < ends[answered] for call in calls)
        assert begun - answered <= most, f"{begun} calls before answer {answered + 1}"


def _end(call: Call) -> float:
    assert call.end is not None
    return call.end
