"""Push mode: jobs go out one by one, and come back if nobody takes them."""

from collections.abc import Sequence

import pytest

from evervec.model.jobs import Status
from evervec.worker.push import Delivered, Dispatched
from support.qstash import CRON_SECRET, Broker
from support.service import Served
from support.world import KIND, World, add_all, assert_in_step, job_of


def test_each_job_goes_out_under_a_token_of_its_own(
    world: World, served: Served, qstash: Broker
) -> None:
    add_all(world.ev, KIND, "alpha", "beta", "gamma")
    answer = served.http(CRON_SECRET).post("/internal/dispatch?limit=2").json()
    assert answer == {"claimed": 2, "published": 2, "released": 0}
    jobs = [job_of(world.ev, id) for id in ("0", "1")]
    assert len({job.token for job in jobs}) == 2
    names = {message.deduplication_id for message in qstash.messages}
    assert names == {f"{KIND}:{job.record_id}:{job.token}" for job in jobs}
    assert job_of(world.ev, "2").status is Status.PENDING


def test_a_job_that_nobody_takes_is_released_at_once_with_its_attempt(world: World) -> None:
    add_all(world.ev, KIND, "alpha")
    nobody = "http://127.0.0.1:9"  # the port of a service that only discards
    assert world.ev.dispatcher.dispatch(10, nobody) == Dispatched(1, 0, 1)
    job = job_of(world.ev, "0")
    assert (job.status, job.attempts) == (Status.PENDING, 0)


def test_a_plain_request_does_what_qstash_does_not(
    world: World, served: Served, qstash: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    qstash.down = True
    monkeypatch.setenv("WORKER_SECRET", "the worker's secret")
    add_all(world.ev, KIND, "alpha", "beta")
    assert world.ev.dispatcher.dispatch(10, served.url) == Dispatched(2, 2, 0)
    assert_in_step(world.ev, {"0": "alpha", "1": "beta"})


def test_a_message_that_comes_again_during_long_work_finds_nothing_to_do(world: World) -> None:
    ev = world.ev
    ev.add(KIND, "alpha", id="1")
    (job,) = ev.queue.claim(1)
    again: list[Delivered] = []

    def last_long(texts: Sequence[str]) -> None:
        for _ in range(5):
            world.clock.move(ev.settings.lease_seconds / 3)
            assert ev.queue.renew_many([job]) == [True]  # as the heartbeat does
        again.append(ev.dispatcher.deliver(job.job_id, str(job.token)))

    world.embedder.before = last_long
    assert ev.dispatcher.deliver(job.job_id, str(job.token)).status == "done"
    assert again == [Delivered()]
    assert len(world.embedder.calls) == 1
