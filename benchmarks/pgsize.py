"""PostgreSQL with millions of done jobs: what counting costs, and whether purging keeps pace.

The done jobs are made by the database, without their records: neither counts nor purges read those.
10,000,000 take about 6 GB of disk; quick: 200,000.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import psycopg

import evervec
from benchmarks.postgres_server import database, server
from benchmarks.rounds import percentiles, stopwatch
from benchmarks.table import Line, Target, at_least, at_most
from evervec.maintenance.housekeeping import _BATCH, _DROP_REST

_AT_ONCE = 500_000
_LOOKS = 30
_DAY = 86400.0
_DONE = """
insert into evervec.jobs (job_id, record, version, tenant, op, status, priority, scheduled_for, seq,
    finished_seq, max_attempts, attempts, created_at, started_at, completed_at, worker, embedded,
    reused, tokens, embedded_at)
select n, n, (select min(version) from evervec.versions), 'tenant-' || n % 100, 'embed', 'done', 0,
    1, n, n, 10, 1, 1, 1, 2, 'worker', 1, 0, 20, 2
from generate_series({first}::bigint, {last}) as n
"""


def run(*, quick: bool) -> Sequence[Line]:
    many, few = (200_000, 20_000) if quick else (10_000_000, 100_000)
    with server() as url, database(url) as place, evervec.open(place, embedder="noop") as ev:
        ev.queue.enqueue("article", "first")
        ev.queue.finish(ev.queue.claim(1)[0])
        empty = _stats(ev)
        _make_done(place, many)
        unfolded = _stats(ev)
        while ev.store.jobs.fold_counts():
            pass
        full = _stats(ev)
        finished = _finished(ev, few)
        purged = _purged(ev, few)
    paced = purged / (1 + _DROP_REST)
    what = f"{many:,} done"
    return [
        Line(f"stats(), {what}, p50", "ms", full[0], "1 done", empty[0], at_most(2)),
        Line(f"stats(), {what}, p50", "ms", full[0], target=_under(5), own=True),
        Line(f"stats(), {what}, p99", "ms", full[1], "1 done", empty[1]),
        Line("stats() before counts are folded, p50", "ms", unfolded[0], target=_under(5), own=True),
        Line(f"purge, {what}", "jobs/s", purged, "finishes", finished, at_least(1)),
        Line("purge, with housekeeping's rests", "jobs/s", paced, "finishes", finished,
             at_least(1, aim=True)),
    ]  # fmt: skip


def _stats(ev: evervec.Evervec) -> tuple[float, float]:
    """Milliseconds that a call takes, p50 and p99."""
    everyone = ev.queue_of(None)
    found = []
    for _ in range(_LOOKS):
        with stopwatch() as watch:
            everyone.stats()
        found.append(watch.seconds)
    return percentiles(found)


def _make_done(place: str, count: int) -> None:
    """Beyond the numbers that evervec has given, in transactions of bounded size."""
    with psycopg.connect(place, autocommit=True) as conn:
        (last,) = conn.execute("select max(job_id) from evervec.jobs").fetchone() or (0,)
        end = last + count
        for first in range(last + 1, end + 1, _AT_ONCE):
            upto = min(first + _AT_ONCE - 1, end)
            conn.execute(_DONE.format(first=first, last=upto).encode())
        conn.execute(f"alter sequence evervec.numbers restart with {end + 1}".encode())
        conn.execute("vacuum analyze evervec.jobs")


def _finished(ev: evervec.Evervec, count: int) -> float:
    """Jobs a second that one process claims and finishes."""
    ev.queue.enqueue_many("article", range(count))
    done = 0
    with stopwatch() as watch:
        while claimed := ev.queue.claim(500):
            done += sum(ev.queue.finish_many(claimed))
    assert done == count
    return count / watch.seconds


def _purged(ev: evervec.Evervec, count: int) -> float:
    """Done jobs a second that one process purges, in the batches of housekeeping. Sweeps that only
    pass blocks without old rows count too."""
    before, gone, without = time.time() - _DAY, 0, 0
    with stopwatch() as watch:
        while gone < count:
            jobs, _ = ev.store.jobs.purge_ended(before, _BATCH)
            gone, without = gone + jobs, 0 if jobs else without + 1
            assert without < 60, f"only {gone} of {count} were purged"
    return gone / watch.seconds


def _under(most: float) -> Target:
    return Target(f"< {most:g}", lambda ms: ms < most)
