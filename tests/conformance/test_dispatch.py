"""Push mode without any worker: dispatch alone brings the index in step, whatever becomes of
its messages."""

import random
from collections.abc import Iterator

import pytest

from evervec.dispatch import Dispatched
from evervec.model import Status
from support.qstash import CURRENT_KEY, TOKEN, Broker, broker
from support.service import Served, serving
from support.world import KIND, World, add_all, assert_in_step, job_of

LEASE = 60.0


@pytest.fixture
def qstash(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    with broker() as found:
        monkeypatch.setenv("QSTASH_URL", found.url)
        monkeypatch.setenv("QSTASH_TOKEN", TOKEN)
        monkeypatch.setenv("QSTASH_CURRENT_SIGNING_KEY", CURRENT_KEY)
        yield found


@pytest.fixture
def served(world: World) -> Iterator[Served]:
    with serving() as serve:
        yield serve(world.ev)


def test_each_job_goes_out_under_a_token_of_its_own(
    world: World, served: Served, qstash: Broker
) -> None:
    add_all(world.ev, KIND, "alpha", "beta", "gamma")
    answer = served.http().post("/internal/dispatch?limit=2").json()
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


def test_a_corpus_gets_in_step_though_messages_are_doubled_shuffled_and_lost(
    world: World, served: Served, qstash: Broker
) -> None:
    luck = random.Random(world.store_name)
    texts = {str(n): f"text {n} of the corpus" for n in range(40)}
    add_all(world.ev, KIND, *texts.values())
    waiting, scheduler = [], served.http()
    for number in range(60):
        if number < 6:  # changes go on meanwhile
            texts[str(number)] = f"changed {number}"
            world.ev.add(KIND, texts[str(number)], id=str(number))
            world.ev.delete(KIND, str(39 - number))
            del texts[str(39 - number)]
        scheduler.post("/internal/dispatch?limit=15").raise_for_status()
        waiting += [m for m in qstash.taken() for _ in range(luck.choice((0, 1, 1, 2)))]
        luck.shuffle(waiting)
        late = waiting[: luck.randrange(3)]
        for message in waiting[len(late) :]:
            assert message.deliver().status_code == 200
        waiting = late
        stats = world.ev.queue.stats()
        if number >= 6 and not stats.pending and not stats.processing:
            break
        world.clock.move(LEASE + 1)
    assert stats.failed == 0
    for message in waiting:  # long after
        assert message.deliver().json()["status"] is None
    assert_in_step(world.ev, texts)
