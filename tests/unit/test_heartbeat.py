"""Leases are held by claim, not by job."""

from __future__ import annotations

import threading

import pytest

from evervec import StoreError
from evervec.model.jobs import Job
from evervec.worker.threads import Heartbeat
from support.world import KIND, PATIENCE, World


def test_a_job_that_was_lost_and_claimed_again_is_renewed_by_its_second_token(
    memory: World,
) -> None:
    """The first, hopeless call ends later; that must not end the renewal of the second lease."""
    memory.ev.add(KIND, "alpha", id="1")
    renewed: list[Job] = []
    heartbeat = Heartbeat(renewed.extend, every=60)
    (first,) = memory.ev.queue.claim(1)
    heartbeat.hold([first])
    memory.clock.move(100)
    assert memory.ev.queue.recover_stuck() == 1
    (second,) = memory.ev.queue.claim(1)
    heartbeat.hold([second])
    heartbeat.drop([first])
    heartbeat.beat()
    assert renewed == [second]


@pytest.mark.parametrize("error", [StoreError("away"), RuntimeError("a bug"), OSError(24, "full")])
def test_no_exception_ends_the_renewal_of_leases(memory: World, error: Exception) -> None:
    memory.ev.add(KIND, "alpha", id="1")
    renewed, left = threading.Event(), [error]

    def renew(jobs: list[Job]) -> None:
        if left:
            raise left.pop()
        renewed.set()

    with Heartbeat(renew, every=0.001) as heartbeat:
        heartbeat.hold(memory.ev.queue.claim(1))
        assert renewed.wait(PATIENCE)
