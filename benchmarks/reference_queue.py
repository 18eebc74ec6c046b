"""The least that a leased queue on SQLite costs: a hand-written loop over one table.

It has the columns and the index that a lease queue cannot do without. A claim is one
UPDATE … RETURNING that sets token and lease; a finish checks the token. It has no
records behind its jobs, no history of attempts, no pause, no embedding versions and no
Python objects: rows come out as tuples. It does not dedup either, unless asked to.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

_SCHEMA = """
create table jobs (
    job_id integer primary key,
    kind text not null,
    record_id text not null,
    status integer not null default 0,  -- 0 pending, 1 processing, 2 done
    priority integer not null default 0,
    scheduled_for real not null,
    attempts integer not null default 0,
    created_at real not null,
    completed_at real,
    token text,
    lease_expires_at real
);
create index jobs_ready on jobs (priority desc, scheduled_for, job_id) where status = 0;
"""

_KEY = "create unique index jobs_key on jobs (kind, record_id)"

_ENQUEUE = "insert into jobs (kind, record_id, scheduled_for, created_at) values (?, ?, ?, ?)"

_REPLACE = """ on conflict (kind, record_id)
do update set status = 0, attempts = 0, scheduled_for = excluded.scheduled_for
"""

_CLAIM = """
update jobs set status = 1, attempts = attempts + 1, token = ?, lease_expires_at = ?
where job_id in (
    select job_id from jobs
    where status = 0 and scheduled_for <= ?
    order by priority desc, scheduled_for, job_id
    limit ?)
returning job_id, kind, record_id, attempts
"""

_FINISH = """
update jobs set status = 2, completed_at = ?, lease_expires_at = null
where job_id = ? and token = ? and status = 1
"""


class ReferenceQueue:
    """`synced`: a job that was taken in is on disk, as in evervec; claims and finishes never
    wait for the disk. `keyed`: one job for each record, a later one replaces it."""

    def __init__(self, path: Path, *, synced: bool = True, keyed: bool = False) -> None:
        self._synced = synced
        self._enqueue = _ENQUEUE + _REPLACE if keyed else _ENQUEUE
        self._conn = sqlite3.connect(path, isolation_level=None)
        self._conn.execute("pragma journal_mode = wal")
        self._conn.execute("pragma wal_autocheckpoint = 8000")
        self._conn.execute("pragma cache_size = -65536")
        self._conn.executescript(_SCHEMA)
        if keyed:
            self._conn.execute(_KEY)

    def enqueue_all(self, ids: Sequence[int], batch: int) -> None:
        conn = self._conn
        conn.execute(f"pragma synchronous = {'full' if self._synced else 'normal'}")
        for start in range(0, len(ids), batch):
            now = time.time()
            conn.execute("begin immediate")
            conn.executemany(
                self._enqueue, [("article", str(id), now, now) for id in ids[start : start + batch]]
            )
            conn.execute("commit")

    def drain(self, batch: int) -> int:
        """Claim and finish until nothing is left; how many were finished with a good token."""
        conn, finished = self._conn, 0
        conn.execute("pragma synchronous = normal")
        while True:
            now, token = time.time(), secrets.token_hex(16)
            conn.execute("begin immediate")
            claimed = conn.execute(_CLAIM, (token, now + 60, now, batch)).fetchall()
            conn.execute("commit")
            if not claimed:
                return finished
            conn.execute("begin immediate")
            done = conn.executemany(_FINISH, [(now, row[0], token) for row in claimed])
            conn.execute("commit")
            finished += done.rowcount

    def close(self) -> None:
        self._conn.close()
