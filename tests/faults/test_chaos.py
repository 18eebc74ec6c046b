"""All at once: workers on one file, killed again and again while records come and go."""

import random
from pathlib import Path

from evervec import Evervec
from support.fault_checks import assert_true_to, settle
from support.places import Place, query
from support.processes import Child, Start, until

SEED = 1
RECORDS = 500
KILLS = 9
"""fewer than a job has attempts, so that no record can be buried by mere bad luck"""


def test_workers_killed_at_random_points_keep_the_index_true(
    ev: Evervec, path: Place, start: Start
) -> None:
    """Faults 1, 2, 3 and 14 together, at points that nobody chose."""
    chance = random.Random(SEED)
    settings = {"lease_seconds": 0.5, "batch_size": 16, "poll_seconds": 0.02}

    def worker() -> Child:
        return start("work", path, settings=settings, max_batch=8, burn_seconds=0.005)

    workers = [worker() for _ in range(3)]
    notes: dict[str, str] = {}
    records = RECORDS if isinstance(path, Path) else RECORDS // 2  # each takes a server longer
    changes = [chance.randrange(records) for _ in range(3 * records)]
    every = len(changes) // KILLS
    kills = 0
    for turn, n in enumerate(changes):
        id, dice = str(n), chance.random()
        if dice < 0.15 and id in notes:
            ev.delete("note", id)
            del notes[id]
        else:
            text = f"record{n} turn{turn} " + " ".join(
                f"w{chance.randrange(10_000)}" for _ in range(chance.choice((5, 40, 300)))
            )
            ev.add("note", text, id=id)
            notes[id] = text
        if turn // every >= kills:
            victim = _one_at_work(workers, ev, chance)
            if victim is not None:
                victim.kill()  # it may be anywhere in its work by now
                workers.remove(victim)
                workers.append(worker())
                kills += 1
    assert kills >= KILLS - 1
    until(lambda: not ev.queue.stats().pending, "the queue to be claimed")
    settle(ev)
    assert ev.queue.stats().failed == 0
    crashed = query(path, "select count(*) from evervec_attempts where outcome = 'crashed'")
    assert crashed[0][0] > 0, "no kill hit a worker at work"
    assert_true_to(ev, path, notes)


def _one_at_work(workers: list[Child], ev: Evervec, chance: random.Random) -> Child | None:
    """A worker that has just begun to embed something; None when there is nothing to do."""
    found: list[Child] = []

    def look() -> bool:
        order = chance.sample(workers, len(workers))
        found.extend(child for child in order if child.reaches("embedding", seconds=0))
        return bool(found) or not ev.queue.stats().pending

    for child in workers:
        child.hear_out()
    until(look, "a worker to begin")
    return found[0] if found else None


def test_a_writer_killed_in_its_stream_loses_nothing_it_has_a_ticket_for(
    ev: Evervec, path: Place, start: Start
) -> None:
    """Records come with their jobs or not at all, up to the last ticket and beyond."""
    writer = start("add", path, settings={"add_batch": 20})
    writer.at("added", "333")
    writer.kill()
    acknowledged = {said["about"] for said in writer.rest() if said["at"] == "added"}
    assert len(acknowledged) >= 333
    there = dict(query(path, "select id, text from evervec_records"))
    assert acknowledged <= there.keys()
    assert len(there) % 20 == 0  # whole batches
    assert ev.queue.stats().pending == len(there)
    settle(ev)
    assert_true_to(ev, path, there)
