"""Push mode without any worker: dispatch alone brings every index in step, whatever becomes of
its messages."""

import random

import pytest

from support.qstash import CRON_SECRET, Broker
from support.service import Served
from support.world import KIND, World, add_all, assert_in_step

LEASE = 60.0


@pytest.mark.every_index
def test_a_corpus_gets_in_step_though_messages_are_doubled_shuffled_and_lost(
    world: World, served: Served, qstash: Broker
) -> None:
    luck = random.Random(world.store_name)
    texts = {str(n): f"text {n} of the corpus" for n in range(24)}
    add_all(world.ev, KIND, *texts.values())
    waiting, scheduler = [], served.http(CRON_SECRET)
    for number in range(60):
        if number < 4:  # changes go on meanwhile
            texts[str(number)] = f"changed {number}"
            world.ev.add(KIND, texts[str(number)], id=str(number))
            world.ev.delete(KIND, str(23 - number))
            del texts[str(23 - number)]
        scheduler.post("/internal/dispatch?limit=8").raise_for_status()
        waiting += [m for m in qstash.taken() for _ in range(luck.choice((0, 1, 1, 2)))]
        luck.shuffle(waiting)
        late = waiting[: luck.randrange(3)]
        for message in waiting[len(late) :]:
            answered = message.deliver().status_code
            assert answered in (200, 503)
            if answered == 503:  # a server took too long: QStash comes again
                late.append(message)
        waiting = late
        stats = world.ev.queue.stats()
        if number >= 4 and not stats.pending and not stats.processing:
            break
        world.clock.move(LEASE + 1)
    assert stats.failed == 0
    for message in waiting:  # long after
        assert message.deliver().json()["status"] is None
    assert_in_step(world.ev, texts)
