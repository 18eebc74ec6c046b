"""What stands beside evervec on PostgreSQL: a bare loop, and three queues at their best settings.

- the reference: one table, claim by `FOR UPDATE SKIP LOCKED`, finish by token, in batches. It has
  no records, no history and no Python objects: a ceiling.
- PgQueuer with a pool, batches of 200, its `drain` mode; procrastinate with 30 jobs at once;
  pgmq's own SQL functions, read and delete in batches of 100, which is no lease with a token. In
  larger batches it reads and deletes faster still.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import Any

import psycopg

from benchmarks.processor import Spent, processor
from benchmarks.rounds import Measured, stopwatch

PROCESSOR = "drain, processor"


def drained(jobs: int, seconds: float, spent: Spent) -> Measured:
    """Jobs per second, and microseconds of processor per job where that is known."""
    cost = spent.per(jobs)
    return {"drain": jobs / seconds} | ({} if cost is None else {PROCESSOR: cost})


_REFERENCE = """
create table jobs (job_id bigserial primary key, record_id text not null,
    status text not null default 'pending', scheduled_for timestamptz not null default now(),
    attempts int not null default 0, token text, lease_expires_at timestamptz);
create index on jobs (scheduled_for, job_id) where status = 'pending'
"""
_CLAIM = """update jobs set status = 'processing', attempts = attempts + 1, token = %s,
    lease_expires_at = now() + interval '60 s'
where job_id = any (array(select job_id from jobs where status = 'pending'
    and scheduled_for <= now() order by scheduled_for, job_id limit %s for update skip locked))
returning job_id, record_id"""
_FINISH = "update jobs set status = 'done' where job_id = any (%s) and token = %s"


def reference(url: str, ids: range, batch: int = 500) -> Measured:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(_REFERENCE.encode())
        with stopwatch() as enqueue:
            for start in range(0, len(ids), 1000):
                some = [str(id) for id in ids[start : start + 1000]]
                conn.execute("insert into jobs (record_id) select unnest(%s::text[])", (some,))
        conn.execute("set synchronous_commit = off")
        conn.execute("set plan_cache_mode = force_custom_plan")
        done = 0
        with processor(url) as spent, stopwatch() as drain:
            while True:
                token = secrets.token_hex(8)
                rows = conn.execute(_CLAIM.encode(), (token, batch)).fetchall()
                if not rows:
                    break
                done += conn.execute(_FINISH.encode(), ([row[0] for row in rows], token)).rowcount
        assert done == len(ids)
    return {"enqueue": len(ids) / enqueue.seconds} | drained(len(ids), drain.seconds, spent)


def pgmq(url: str, ids: range, batch: int = 100) -> Measured:
    from pgmq.install import get_embedded_install_sql

    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(get_embedded_install_sql().encode())
        conn.execute("select pgmq.create('bench')")
        with stopwatch() as enqueue:
            for start in range(0, len(ids), 1000):
                some = [f'{{"id": {id}}}' for id in ids[start : start + 1000]]
                conn.execute("select pgmq.send_batch('bench', %s::jsonb[])", (some,))
        conn.execute("set synchronous_commit = off")
        done = 0
        with processor(url) as spent, stopwatch() as drain:
            read = f"select msg_id from pgmq.read('bench', 60, {batch})".encode()
            while rows := conn.execute(read).fetchall():
                gone = [row[0] for row in rows]
                done += len(
                    conn.execute("select pgmq.delete('bench', %s::bigint[])", (gone,)).fetchall()
                )
        assert done == len(ids)
    return {"enqueue": len(ids) / enqueue.seconds} | drained(len(ids), drain.seconds, spent)


def pgqueuer(url: str, ids: range) -> Measured:
    return asyncio.run(_pgqueuer(url, ids))


async def _pgqueuer(url: str, ids: range) -> Measured:
    import asyncpg
    from pgqueuer import PgQueuer
    from pgqueuer.db import AsyncpgPoolDriver
    from pgqueuer.queries import Queries
    from pgqueuer.types import QueueExecutionMode

    logging.getLogger("pgqueuer").setLevel(logging.ERROR)
    async with (
        asyncpg.create_pool(url, min_size=1, max_size=1) as synced,
        asyncpg.create_pool(
            url, min_size=2, max_size=10, server_settings={"synchronous_commit": "off"}
        ) as pool,
    ):
        driver = AsyncpgPoolDriver(pool)
        queries: Any = Queries(AsyncpgPoolDriver(synced))
        await queries.install()
        with stopwatch() as enqueue:
            for start in range(0, len(ids), 1000):
                some = ids[start : start + 1000]
                count = len(some)
                payloads = [str(id).encode() for id in some]
                await queries.enqueue(["embed"] * count, payloads, [0] * count)
        queue: Any = PgQueuer(driver)
        done = 0

        @queue.entrypoint("embed")  # type: ignore[untyped-decorator]
        async def embed(job: Any) -> None:
            nonlocal done
            done += 1

        with stopwatch() as drain:
            await queue.qm.run(batch_size=200, mode=QueueExecutionMode.drain)
        assert done == len(ids)
    return {"enqueue": len(ids) / enqueue.seconds, "drain": len(ids) / drain.seconds}


def procrastinate(url: str, ids: range) -> Measured:
    return asyncio.run(_procrastinate(url, ids))


async def _procrastinate(url: str, ids: range) -> Measured:
    import procrastinate as peer

    logging.getLogger("procrastinate").setLevel(logging.ERROR)
    connector = peer.PsycopgConnector(
        conninfo=url, min_size=4, max_size=20, kwargs={"options": "-c synchronous_commit=off"}
    )
    app = peer.App(connector=connector)
    done = 0

    @app.task(name="embed")  # type: ignore[untyped-decorator]
    async def embed(id: int) -> None:
        nonlocal done
        done += 1

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        with stopwatch() as enqueue:
            for start in range(0, len(ids), 1000):
                some = ids[start : start + 1000]
                await embed.configure().batch_defer_async(*({"id": id} for id in some))
        with stopwatch() as drain:
            await app.run_worker_async(wait=False, concurrency=30, install_signal_handlers=False)
        assert done == len(ids)
    return {"enqueue": len(ids) / enqueue.seconds, "drain": len(ids) / drain.seconds}
