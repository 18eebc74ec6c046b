"""The list of workers: each sends heartbeats, and is removed from the list when they stop."""

from __future__ import annotations

from evervec.model.basics import as_datetime
from evervec.model.reports import WorkerState
from evervec.stores.sql.engine import Engine

FORGOTTEN_AFTER = 3600.0
"""seconds without a heartbeat after which a worker is no longer listed"""


class Fleet(Engine):
    """The part of the store that lists the workers."""

    def beat(self, worker: str, *, version: str, held: int, done: int) -> None:
        with self.db.writing(durable=False) as conn:
            now = self.moment(conn)
            conn.execute(self.sql.beat, (worker, version, now, held, done))
            conn.execute(self.sql.forget_workers, (now - FORGOTTEN_AFTER,))

    def leave(self, worker: str) -> None:
        with self.db.writing(durable=False) as conn:
            conn.execute(self.sql.leave, (worker,))

    def forget_gone(self, spent_before: str) -> None:
        with self.db.writing(durable=False) as conn:
            now = self.moment(conn)
            conn.execute(self.sql.forget_locks, (now,))
            conn.execute(self.sql.forget_workers, (now - FORGOTTEN_AFTER,))
            conn.execute(self.sql.purge_spend, (spent_before,))
            conn.execute(self.sql.forget_holds, (now,))

    def workers(self) -> list[WorkerState]:
        with self.db.reading() as conn:
            rows = conn.execute(self.sql.workers).fetchall()
        return [
            WorkerState(name, version, as_datetime(began), as_datetime(seen), held, done)  # type: ignore[arg-type]
            for name, version, began, seen, held, done in rows
        ]
