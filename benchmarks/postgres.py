"""PostgreSQL: the queue beside its peers, documents into pgvector, flat claims, freshness.

All run on one server with the durability that it ships with. What goes in is synced to disk;
what comes out is not, for evervec and for each peer that can be told so. Evervec writes a
record's stub with each job, dedups by record, checks tokens and writes an attempt row.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from statistics import median

import numpy as np
import psycopg

import evervec
from benchmarks import postgres_peers as peers
from benchmarks.made_up import NoCost, texts
from benchmarks.postgres_peers import PROCESSOR, drained
from benchmarks.postgres_server import FILL, database, server
from benchmarks.processor import Spent, processor
from benchmarks.rounds import Measured, percentiles, stopwatch, take_turns
from benchmarks.table import Line, Target, at_least, at_most
from evervec.indexes.pgvector.vectors import pack_vectors

_PGAI, _PGAI_REFERENCE = 373.0, 14_233.0
"""documents/s of pgai's worker, and of the reference loop in the same run (MEASURED.md)"""


def run(*, quick: bool) -> Sequence[Line]:
    with server() as url:
        return [
            *_queues(url, 10_000 if quick else 50_000, 1 if quick else 3),
            *_documents(url, 3_000 if quick else 10_000),
            *([] if quick else _documents(url, 100_000)),
            *_flat(url, 100_000 if quick else 1_000_000),
            *_freshness(url, 200 if quick else 1_000),
        ]


def _queues(url: str, jobs: int, rounds: int) -> list[Line]:
    def on(work: Callable[[str], Measured]) -> Callable[[Path], Measured]:
        def turn(folder: Path) -> Measured:
            with database(url) as place:
                return work(place)

        return turn

    ids, few = range(jobs), range(jobs // 20)
    found = take_turns(
        {
            "evervec": on(lambda place: _evervec(place, ids)),
            "reference": on(lambda place: peers.reference(place, ids)),
            "pgmq": on(lambda place: peers.pgmq(place, ids)),
            "pgmq, 2,000 at a time": on(lambda place: peers.pgmq(place, ids, 2000)),
            "PgQueuer": on(lambda place: peers.pgqueuer(place, ids)),
            "procrastinate": on(lambda place: peers.procrastinate(place, few)),
        },
        rounds,
    )
    own = found.pop("evervec")
    targets = {
        ("enqueue", "PgQueuer"): at_least(1),
        ("drain", "pgmq"): at_least(1),
        ("drain", "PgQueuer"): at_least(2),
        ("drain", "procrastinate"): at_least(50),
    }
    lines = [
        Line(what, "jobs/s", own[what], name, other[what], targets.get((what, name)))
        for what in ("enqueue", "drain")
        for name, other in found.items()
    ]
    lines += [
        Line("drain, processor", "µs/job", own.get(PROCESSOR), name, found[name].get(PROCESSOR))
        for name in ("reference", "pgmq")
    ]
    two, one = own["drain by two processes"], own["drain by one process"]
    return [*lines, Line("drain by two processes", "jobs/s", two, "by one", one, at_least(1))]


def _evervec(url: str, ids: range) -> Measured:
    measured: Measured = {}
    with evervec.open(url, embedder="noop") as ev:
        with stopwatch() as enqueue:
            ev.queue.enqueue_many("article", ids)
        measured["enqueue"] = len(ids) / enqueue.seconds
        done = 0
        with processor(url) as spent, stopwatch() as drain:
            while claimed := ev.queue.claim(500):
                done += sum(ev.queue.finish_many(claimed))
        assert done == len(ids)
        measured |= drained(len(ids), drain.seconds, spent)
        for count, name in ((1, "one process"), (2, "two processes")):
            ev.queue.enqueue_many("article", ids)
            measured[f"drain by {name}"] = len(ids) / _drained_by(url, count, len(ids))
    return measured


def _drained_by(url: str, count: int, jobs: int) -> float:
    """Seconds that so many processes need together."""
    program = [sys.executable, "-m", "benchmarks.postgres_worker", url]
    workers = [
        subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    with stopwatch() as watch:
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        done = sum(int(worker.communicate()[0]) for worker in workers)
    assert done == jobs
    return watch.seconds


def _documents(url: str, count: int) -> list[Line]:
    """From `add_many` until all are found in pgvector, with an embedder of no cost."""
    made = texts(count, 60)
    with database(url) as place:
        embedder = NoCost(made)
        with (
            evervec.open(place, embedder=embedder) as ev,
            processor(place) as spent,
            stopwatch() as watch,
        ):
            with ev.worker():
                tickets = list(
                    ev.add_many("doc", ({"id": n, "text": text} for n, text in enumerate(made)))
                )
                ev.wait(tickets[-1], 600)
                while ev.queue.stats().pending or ev.queue.stats().processing:
                    time.sleep(0.02)
            assert ev.search(made[-1], k=1, mode="semantic")[0].id == str(count - 1)
    with database(url) as place:
        bare, cost = _bare_documents(place, made, embedder)
    scaled = _PGAI * (count / bare) / _PGAI_REFERENCE
    speed, what = count / watch.seconds, f"{count:,} documents → searchable"
    return [
        Line(what, "docs/s", speed, "reference", count / bare, at_least(0.4, aim=True)),
        Line(f"{what}, processor", "µs/doc", spent.per(count), "reference", cost.per(count)),
        Line(what, "docs/s", speed, "pgai, scaled", scaled, at_least(5)),
    ]


def _bare_documents(url: str, made: list[str], embedder: NoCost) -> tuple[float, Spent]:
    """Seconds and processor time of a loop that only writes texts, hashes and vectors, 256 at a time."""
    size = embedder.dimensions
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("create extension if not exists vector")
        conn.execute(
            f"create table docs (id int primary key, hash text, text text, v vector({size}))".encode()
        )
        (element,) = conn.execute("select 'vector'::regtype::oid::bigint").fetchone() or (0,)
        with processor(url) as spent, stopwatch() as watch:
            for start in range(0, len(made), 256):
                some = made[start : start + 256]
                vectors = np.asarray(embedder.embed(some))
                hashes = [blake2b(text.encode(), digest_size=16).hexdigest() for text in some]
                ids = list(range(start, start + len(some)))
                conn.execute(
                    "insert into docs select * from unnest"
                    "(%s::int[], %s::text[], %s::text[], %s::vector[])",
                    (ids, hashes, some, pack_vectors(vectors, element)),
                )
    return watch.seconds, spent


_FINISH_ALL = """
with gone as (delete from evervec.ready where job_id <= {last})
update evervec.jobs set status = 'done', completed_at = 1, finished_seq = seq
where status = 'pending' and job_id <= {last}
"""


def _flat(url: str, many: int) -> list[Line]:
    """What a claim of 256 costs, with few and many waiting, and after many were done."""
    with database(url) as place, evervec.open(place, embedder="noop") as ev:
        ev.queue.enqueue("article", "first")
        ev.queue.finish(ev.queue.claim(1)[0])
        with psycopg.connect(place, autocommit=True) as conn:
            last = 10_000

            def fill(count: int) -> None:
                nonlocal last
                conn.execute(FILL.format(first=last + 1, last=last + count).encode())
                last += count

            fill(1_000)
            few = _claim_ms(ev, fill)
            fill(many)
            waiting = _claim_ms(ev, fill)
            conn.execute(_FINISH_ALL.format(last=last - 1_000).encode())
            finished = _claim_ms(ev, fill)
    return [
        Line(f"claim of 256, {many:,} wait", "ms", waiting, "1,000 wait", few, at_most(1.3)),
        Line(f"claim of 256, {many:,} done", "ms", finished, "1,000 wait", few, at_most(1.3)),
    ]


def _claim_ms(ev: evervec.Evervec, fill: Callable[[int], None]) -> float:
    """Of a claim of 256; as many as were waiting wait again before the next."""
    seconds = []
    for _ in range(22):
        with stopwatch() as watch:
            jobs = ev.queue.claim(256)
        assert len(jobs) == 256
        seconds.append(watch.seconds)
        ev.queue.finish_many(jobs)
        fill(256)
    return 1000 * median(seconds[2:])


def _freshness(url: str, count: int) -> list[Line]:
    """From commit to being found, at 50 writes a second, with the worker in another thread."""
    made = texts(count, 60)
    found: list[float] = []
    lock = threading.Lock()
    with database(url) as place, evervec.open(place, embedder=NoCost(made)) as ev, ev.worker():
        waiters = []

        def await_one(ticket: evervec.Ticket, start: float) -> None:
            ev.wait(ticket, 60)
            with lock:
                found.append(time.perf_counter() - start)

        begin = time.perf_counter()
        for number, text in enumerate(made):
            time.sleep(max(0.0, begin + number / 50 - time.perf_counter()))
            ticket = ev.add("note", text, id=number)
            waiter = threading.Thread(target=await_one, args=(ticket, time.perf_counter()))
            waiter.start()
            waiters.append(waiter)
        for waiter in waiters:
            waiter.join()
    p50, p99 = percentiles(found)
    return [
        Line("commit → searchable, p50", "ms", p50, target=_under(50), own=True),
        Line("commit → searchable, p99", "ms", p99, target=_under(250), own=True),
    ]


def _under(most: float) -> Target:
    return Target(f"< {most:g}", lambda ms: ms < most)
