"""Jobs for another version, and the periodic maintenance of an SQLite file."""

from __future__ import annotations

from evervec.stores.sql import care
from evervec.stores.sqlite.engine import SQL
from evervec.stores.sqlite.leases import Leases


class Care(Leases, care.Care):
    """The part of the store that operators use."""

    def tend(self) -> None:
        self.db.checkpoint()

    def check(self) -> str | None:
        with self.db.reading() as conn:
            answer: str = conn.execute("pragma quick_check(1)").fetchone()[0]
        return None if answer == "ok" else answer

    def join_version(self, version: int, limit: int = 1000) -> int:
        with self.db.writing(durable=False) as conn:
            now = self.now()
            found = conn.execute(SQL.to_appear, (version, limit)).fetchall()
            number = self.take_numbers(conn, len(found)) if found else 0
            conn.executemany(
                SQL.put_job,
                [
                    (number + place, record, version, tenant, op, priority, due, seq, attempts,
                     now, box, None, None)
                    for place, (record, tenant, op, priority, due, seq, attempts, box)
                    in enumerate(found)
                ],
            )  # fmt: skip
        self.wake()
        return len(found)
