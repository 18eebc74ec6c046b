"""What the processes of a store share: notes, locks, spend, cached vectors, the list of workers."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import astuple

from evervec.model.basics import moment
from evervec.model.reports import WorkerState
from evervec.model.usage import Spend
from evervec.stores.sql.engine import Part
from evervec.stores.values import LockHolder, Note

FORGOTTEN_AFTER = 3600.0
"""seconds without a heartbeat after which a worker is no longer listed"""


class Shared(Part):
    """The part of the store that keeps the state shared by processes."""

    # notes
    def note(self, name: str) -> Note | None:
        row = self.read_one(self.sql.note, name)
        return Note(*row) if row else None

    def put_note(self, name: str, value: str | None, revision: int | None) -> bool:
        if revision is None:
            if value is None:
                return self.note(name) is None
            first = secrets.randbits(62)  # differs when a note is dropped and added again
            return self.write(self.sql.add_note, name, value, first) == 1
        if value is None:
            return self.write(self.sql.drop_note, name, revision) == 1
        return self.write(self.sql.set_note, value, name, revision) == 1

    # locks
    def lock(self, name: str, holder: str, seconds: float) -> str | None:
        with self.db.writing(durable=False) as conn:
            now = self.engine.moment(conn)
            wanted = (name, holder, secrets.token_hex(16), now + seconds, now)
            (token,) = conn.execute(self.sql.take_lock, wanted).fetchone() or (None,)
        return None if token is None else str(token)

    def unlock(self, name: str, token: str) -> None:
        self.write(self.sql.drop_lock, name, token)

    def lock_holder(self, name: str) -> LockHolder | None:
        row = self.read_one(self.sql.lock_holder, name)
        return LockHolder(*row) if row else None

    # spend
    def add_spend(self, spent: Sequence[Spend]) -> None:
        rows = sorted(astuple(row) for row in spent)
        with self.db.writing(durable=False) as conn:
            conn.executemany(self.sql.add_spend, rows)

    def spend(self, tenant: str | None, since: str) -> list[Spend]:
        return [Spend(*row) for row in self.read(self.sql.spend, since, tenant)]

    # vectors
    def cached(self, model: str, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        wanted = self.engine.listed(hash.hex() for hash in hashes)
        found = self.read(self.sql.cached, model, wanted)
        return {bytes.fromhex(hash): vector for hash, vector in found}

    def cache(self, model: str, vectors: Mapping[bytes, bytes], most: int) -> None:
        rows = sorted((model, hash.hex(), vector) for hash, vector in vectors.items())
        with self.db.writing(durable=False) as conn:
            self.engine.each(conn, self.sql.add_cached, rows)
            conn.execute(self.sql.trim_cache, (most,))

    def given(self, model: str, records: Sequence[int]) -> dict[int, tuple[int, bytes]]:
        found = self.read(self.sql.given, model, self.engine.listed(records))
        return {record: (seq, vectors) for record, seq, vectors in found}

    def drop_given(self, used: Sequence[tuple[int, int]]) -> None:
        with self.db.writing(durable=False) as conn:
            self.engine.each(conn, self.sql.drop_given, sorted(used))

    def drop_stray_given(self, after: int, limit: int) -> int:
        found = self.read(self.sql.all_given, after, limit)
        if found:
            self.drop_given(found)
        return found[-1][0] if len(found) == limit else 0


class Workers(Part):
    """The list of workers: each sends heartbeats, and is removed from it when they stop."""

    def beat(self, worker: str, *, version: str, held: int, done: int) -> None:
        with self.db.writing(durable=False) as conn:
            now = self.engine.moment(conn)
            conn.execute(self.sql.beat, (worker, version, now, held, done))
            conn.execute(self.sql.forget_workers, (now - FORGOTTEN_AFTER,))

    def leave(self, worker: str) -> None:
        self.write(self.sql.leave, worker)

    def all(self) -> list[WorkerState]:
        return [
            WorkerState(name, version, moment(began), moment(seen), held, done, bool(paused))
            for name, version, began, seen, held, done, paused in self.read(self.sql.workers)
        ]

    def is_paused(self, worker: str) -> bool:
        (paused,) = self.read_one(self.sql.worker_paused, worker) or (False,)
        return bool(paused)

    def set_paused(self, worker: str, paused: bool) -> bool:
        known = self.write(self.sql.pause_worker, int(paused), worker, durable=True) > 0
        self.engine.wake()
        return known
