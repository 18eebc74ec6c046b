"""Wrong answers, errors and hangs for single texts among thousands; and for all of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.places import Place
from support.processes import Start, until
from support.provided import NOTES, Provided, assert_indexed, attempts, provided
from support.provider import EVERY_TEXT, Behaviour
from support.provider_process import ProviderProcess

SECONDS = 0.5
FAULTS = {
    "hang": "did not respond within",
    "fail": "500: The server had an error while processing your request",
    "refuse": "'$.input' is invalid",
    "proxy": "502 Bad Gateway",
    "wrong_count": "0 vectors for 1 texts",
    "wrong_dimensions": "4 dimensions instead of 8",
    "nan": "zero or not finite",
    "zero": "zero or not finite",
    "truncated": "not JSON",
    "cut": "the connection to the provider failed",
}
"""what a text can do to the provider, and what is said of it then"""


@pytest.fixture(params=NOTES)
def world(
    request: pytest.FixtureRequest, path: Place, start: Start, tmp_path: Path
) -> Iterator[Provided]:
    settings = {
        "provider_seconds": SECONDS, "provider_batch": 16, "max_attempts": 2,
        "backoff_seconds": 0.1, "concurrency": 8,
    }  # fmt: skip
    with (
        ProviderProcess() as provider,
        provided(path, provider, start, tmp_path, request.param, **settings) as made,
    ):
        yield made


def test_each_bad_text_fails_alone_with_the_providers_words(world: Provided, path: Place) -> None:
    ev = world.ev
    world.provider.behave(**{name: f"this one: {name}!" for name in FAULTS})
    bad = {f"bad {name}": f"this one: {name}!" for name in FAULTS}
    notes = world.add_notes()
    world.add(bad)
    job = ev.queue.status("note", "bad hang")
    assert job is not None
    ev.queue.set_priority(job.job_id, 1)  # first, because it takes its time
    for _ in range(2):
        world.worker()
    until(lambda: world.done == len(notes) and ev.queue.stats().failed == len(bad), seconds=60)
    for name, words in FAULTS.items():
        job = ev.queue.status("note", f"bad {name}")
        assert job is not None
        assert words in (job.error or ""), name
        assert job.attempts == (1 if name == "refuse" else 2)  # a refusal is final
        assert ev.search(f"this one {name}", mode="text")[0].id == f"bad {name}"
    assert attempts(path) == {
        (1, "done"): len(notes), (1, "retry"): len(bad) - 1, (1, "failed"): 1,
        (2, "failed"): len(bad) - 1,
    }  # fmt: skip
    assert ev.queue.stats().gate is None
    assert_indexed(ev, path, notes, failed=len(bad))

    world.provider.behaviour = Behaviour()  # it was mended
    assert ev.queue.retry_failed() == len(bad)
    until(lambda: world.done == len(notes) + len(bad))
    assert_indexed(ev, path, {**notes, **bad})


def test_a_provider_that_hangs_for_every_text_is_away(world: Provided, path: Place) -> None:
    ev, provider = world.ev, world.provider
    notes = world.add_notes()
    for _ in range(2):
        world.worker()
    until(lambda: provider.seen().embedded > len(notes) / 5, "the workers to be at it")
    provider.behave(hang=EVERY_TEXT)
    until(lambda: ev.queue.stats().gate is not None, "the gate to be shut")
    until(lambda: ev.queue.stats().processing == 0, "all to be given back")
    gate = ev.queue.stats().gate
    assert gate is not None
    assert gate.state == "outage"
    assert "did not respond within" in gate.reason
    assert set(attempts(path)) == {(1, "done")}
    provider.behave(hang=None)
    world.clock.leap(80)
    until(lambda: world.done == len(notes), "all to be embedded")
    assert attempts(path) == {(1, "done"): len(notes)}
    assert_indexed(ev, path, notes)
