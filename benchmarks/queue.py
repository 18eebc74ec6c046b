"""The queue alone: how fast jobs go in and come out.

Evervec writes a record's stub and a job for each id, synced to disk, dedups by record,
and drains in batches of 500: tokens checked, an attempt row for each job. Beside it:

- the reference loop of `reference_queue`, the ceiling: with evervec's durability (what
  goes in is synced, what comes out is not), with nothing synced, and with evervec's
  durability and a key for each record. It enqueues 1,000 in a transaction, as evervec does.
- huey's SqliteHuey with fsync off, which has no bulk form. It deletes a job when it
  hands it out, so that a crash loses it: no lease, no token, no history. Its drain is
  what its consumer does for each job: dequeue, then execute (a task that does nothing);
  the dequeue alone, which brings no job to its end, stands beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from huey import SqliteHuey

import evervec
from benchmarks.reference_queue import ReferenceQueue
from benchmarks.rounds import Measured, stopwatch, take_turns
from benchmarks.table import Line, at_least

_BATCH = 500
_ENQUEUE_BATCH = 1000


def run(*, quick: bool) -> Sequence[Line]:
    jobs = 10_000 if quick else 50_000
    huey_jobs = 2_000 if quick else 10_000
    ids = range(jobs)
    medians = take_turns(
        {
            "evervec": lambda folder: _evervec(folder, ids),
            "reference": lambda folder: _reference(ReferenceQueue(folder / "q.db"), ids),
            "reference, nothing synced": lambda folder: _reference(
                ReferenceQueue(folder / "q.db", synced=False), ids
            ),
            "reference, keyed": lambda folder: _reference(
                ReferenceQueue(folder / "q.db", keyed=True), ids
            ),
            "huey, fsync off": lambda folder: _huey(folder, range(huey_jobs)),
        },
        rounds=3,
    )
    own = medians.pop("evervec")
    targets = {"reference": at_least(1 / 3), "huey, fsync off": at_least(6)}
    lines = [
        Line(what, "jobs/s", own[what], name, other[what], targets.get(name))
        for what in ("enqueue", "drain")
        for name, other in medians.items()
    ]
    taken = medians["huey, fsync off"]["dequeue"]
    return [*lines, Line("drain", "jobs/s", own["drain"], "huey, dequeue alone", taken)]


def _evervec(folder: Path, ids: range) -> Measured:
    with evervec.open(folder / "queue.db", embedder="noop") as ev:
        with stopwatch() as enqueue:
            ev.queue.enqueue_many("article", ids)
        finished = 0
        with stopwatch() as drain:
            while claimed := ev.queue.claim(_BATCH):
                finished += sum(ev.queue.finish_many(claimed))
        assert finished == len(ids)
        assert len(ev.queue.history("article", ids[-1])) == 1
    return {"enqueue": len(ids) / enqueue.seconds, "drain": len(ids) / drain.seconds}


def _reference(queue: ReferenceQueue, ids: range) -> Measured:
    with stopwatch() as enqueue:
        queue.enqueue_all(ids, _ENQUEUE_BATCH)
    with stopwatch() as drain:
        finished = queue.drain(_BATCH)
    assert finished == len(ids)
    queue.close()
    return {"enqueue": len(ids) / enqueue.seconds, "drain": len(ids) / drain.seconds}


def _huey(folder: Path, ids: range) -> Measured:
    huey = SqliteHuey("bench", filename=str(folder / "huey.db"), fsync=False, results=False)

    @huey.task()  # type: ignore[untyped-decorator]
    def embed(kind: str, id: int) -> None: ...

    tasks = [embed.s("article", id) for id in ids]
    with stopwatch() as enqueue:
        for task in tasks:
            huey.enqueue(task)
    half = len(ids) // 2
    with stopwatch() as dequeue:
        for _ in range(half):
            huey.dequeue()
    executed = 0
    with stopwatch() as drain:
        while (task := huey.dequeue()) is not None:
            huey.execute(task)
            executed += 1
    assert executed == len(ids) - half
    huey.storage.close()
    return {
        "enqueue": len(ids) / enqueue.seconds,
        "dequeue": half / dequeue.seconds,
        "drain": executed / drain.seconds,
    }
