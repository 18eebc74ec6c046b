"""Leases are held by claim, not by job."""

from __future__ import annotations

from evervec.heartbeat import Heartbeat
from evervec.model import Job
from support.world import KIND, World


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
