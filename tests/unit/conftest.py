"""Fixtures of the tests of units."""

import pytest

from support.world import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time by which the pipeline waits before it asks again."""
    clock = Clock(1000.0)
    monkeypatch.setattr("evervec.worker.pipeline.time.monotonic", clock)
    return clock
