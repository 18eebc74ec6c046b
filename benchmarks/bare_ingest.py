"""The least that evervec's rows cost: a script that writes the same ones, and no more.

It uses evervec's own tables and indexes, its batches and its durability, on one
connection in one thread. It trusts that every record is new: it compares nothing,
checks no token, isolates no failure, and cannot be asked anything.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

from benchmarks.made_up import NoCost
from evervec.stores.sqlite.schema import SCHEMA

_ADD_BATCH = 1000
_CLAIM_BATCH = 256
_VERSION = 1
_SCOPE = "t" + b"default".hex()

_RECORD = """
insert into evervec_records
    (record, tenant, kind, id, state, seq, born, hash, weight, created_at, updated_at, metadata,
     text)
values (?, 'default', 'note', ?, 'live', ?, ?, ?, 1.0, ?, ?, '{}', ?)
"""
_TEXT = "insert into evervec_text (rowid, scope, title, text) values (?, ?, '', ?)"
_JOB = """
insert into evervec_jobs
    (job_id, record, version, tenant, op, status, priority, scheduled_for, seq, max_attempts,
     created_at)
values (?, ?, ?, 'default', 'embed', 'pending', 0, ?, ?, 10, ?)
"""
_DUE = """
select j.job_id, j.record, j.seq, r.text
from evervec_jobs as j cross join evervec_records as r on r.record = j.record
where j.status = 'pending' and j.priority = 0 and j.scheduled_for <= ?
order by j.scheduled_for, j.job_id limit ?
"""
_LEASE = """
update evervec_jobs
set status = 'processing', token = ?, worker = 'bare', started_at = ?, lease_expires_at = ?,
    claimed_seq = seq, attempts = attempts + 1
where job_id in (select value from json_each(?))
"""
_POINT = """
insert into evervec_points (point, version, tenant, record, seq, position, hash, vector)
values (?, ?, 'default', ?, ?, 0, ?, ?)
"""
_LEDGER = "insert into evervec_ledger (record, version, seq, chunks) values (?, ?, ?, ?)"
_ATTEMPT = """
insert into evervec_attempts
    (record, tenant, version, attempt, seq, started_at, finished_at, outcome, chunks_embedded,
     worker)
values (?, 'default', ?, 1, ?, ?, ?, 'done', 1, 'bare')
"""
_FINISH = """
update evervec_jobs
set status = 'done', finished_seq = ?, completed_at = ?, lease_expires_at = null
where job_id = ?
"""


class BareIngest:
    """The rows of `add_many` and of a worker, written by hand."""

    def __init__(self, path: Path, embedder: NoCost) -> None:
        self._embedder = embedder
        self._conn = sqlite3.connect(path, isolation_level=None)
        self._conn.execute("pragma journal_mode = wal")
        self._conn.execute("pragma wal_autocheckpoint = 4000")
        self._conn.execute("pragma cache_size = -65536")
        for statement in SCHEMA.statements(1):
            self._conn.execute(statement)
        self._number = 0

    def add(self, texts: Sequence[str]) -> None:
        self._conn.execute("pragma synchronous = full")
        for start in range(0, len(texts), _ADD_BATCH):
            now = time.time()
            records, indexed, jobs = [], [], []
            for place, text in enumerate(texts[start : start + _ADD_BATCH], start):
                self._number += 2
                seq = self._number
                records.append((seq, str(place), seq, seq, _hash(text), now, now, text))
                indexed.append((seq, _SCOPE, text))
                jobs.append((seq + 1, seq, _VERSION, now, seq, now))
            with self._transaction() as conn:
                conn.executemany(_RECORD, records)
                conn.executemany(_TEXT, indexed)
                conn.executemany(_JOB, jobs)

    def process(self) -> int:
        """Claim, embed, write and finish until nothing is left."""
        self._conn.execute("pragma synchronous = normal")
        done = 0
        while claimed := self._claim():
            rows = self._embedder.embed([text for *_, text in claimed])
            now = time.time()
            points, ledger, attempts, finishes = [], [], [], []
            for (job_id, record, seq, text), row in zip(claimed, rows, strict=True):
                self._number += 1
                hash = _hash(text)
                chunk = hash + bytes(4) + len(text).to_bytes(4, "little")
                points.append((self._number, _VERSION, record, seq, hash, row.tobytes()))
                ledger.append((record, _VERSION, seq, chunk))
                attempts.append((record, _VERSION, seq, now, now))
                finishes.append((seq, now, job_id))
            with self._transaction() as conn:
                conn.executemany(_POINT, points)
                conn.executemany(_LEDGER, ledger)
                conn.executemany(_FINISH, finishes)
                conn.executemany(_ATTEMPT, attempts)
            done += len(claimed)
        return done

    def _claim(self) -> list[tuple[int, int, int, str]]:
        now = time.time()
        with self._transaction() as conn:
            claimed: list[tuple[int, int, int, str]] = conn.execute(
                _DUE, (now, _CLAIM_BATCH)
            ).fetchall()
            which = json.dumps([row[0] for row in claimed])
            conn.execute(_LEASE, (secrets.token_hex(16), now, now + 60, which))
        return claimed

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._conn.execute("begin immediate")
        yield self._conn
        self._conn.execute("commit")

    def close(self) -> None:
        self._conn.close()


def _hash(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16).digest()
