"""The list of workers: each sends heartbeats, and is removed from the list when they stop."""

from __future__ import annotations

from evervec.model.basics import as_datetime
from evervec.model.reports import WorkerState
from evervec.stores.sql.engine import Part

FORGOTTEN_AFTER = 3600.0
"""seconds without a heartbeat after which a worker is no longer listed"""


class Workers(Part):
    """The part of the store that lists the workers."""

    def beat(self, worker: str, *, version: str, held: int, done: int) -> None:
        with self.db.writing(durable=False) as conn:
            now = self.engine.moment(conn)
            conn.execute(self.sql.beat, (worker, version, now, held, done))
            conn.execute(self.sql.forget_workers, (now - FORGOTTEN_AFTER,))

    def leave(self, worker: str) -> None:
        self.write(self.sql.leave, worker)

    def all(self) -> list[WorkerState]:
        return [
            WorkerState(name, version, as_datetime(began), as_datetime(seen), held, done)  # type: ignore[arg-type]
            for name, version, began, seen, held, done in self.read(self.sql.workers)
        ]
