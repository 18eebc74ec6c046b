"""Builds indexes in the background, while their tables are read and written."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import psycopg

from evervec.errors import EvervecError
from evervec.indexes.pgvector.table import SQL
from evervec.runtime.threads import start
from evervec.stores.postgres.connections import Connections, Session

log = logging.getLogger("evervec")


class IndexBuilder:
    """Builds the indexes of one purpose, one at a time."""

    def __init__(self, db: Connections, name: str) -> None:
        self._db = db
        self._name = name
        self._thread: threading.Thread | None = None

    def start(self, build: Callable[[], object]) -> None:
        """Call `build` in a thread, unless one is at it."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = start(self._name, self._quietly, build)

    def _quietly(self, build: Callable[[], object]) -> None:
        try:
            build()
        except (EvervecError, psycopg.Error) as error:
            log.warning("building an index in %s is postponed: %s", self._db.name, error)

    def build(
        self, name: str, on: str, *after: str, memory_kb: int = 0, workers: int | None = None
    ) -> bool:
        """Build an index, then run the statements `after`; False when it exists, or another process
        is building it. The remains of a killed build are dropped and built again. `memory_kb` and
        `workers`: what the build may use, instead of what the server is set to."""
        with self._db.explained(), self._db.dedicated() as raw:
            conn = Session(raw)
            # an advisory lock ends with the connection, and so also when its process is killed
            (taken,) = conn.execute(SQL.take_building, (name,)).fetchone()
            if not taken or name in valid_indexes(conn, name):
                return False
            if memory_kb:
                conn.execute(f"set maintenance_work_mem = {memory_kb}")
            if workers is not None:
                conn.execute(f"set max_parallel_maintenance_workers = {workers}")
            raw.add_notice_handler(_log_notice)
            log.info("building the index %s", name)
            try:
                self._create(conn, name, on)
            finally:  # the connection may be that of a pooler, which gives it to others
                if conn.usable:
                    conn.execute("reset maintenance_work_mem")
                    conn.execute("reset max_parallel_maintenance_workers")
            for statement in after:
                conn.execute(statement)
        log.info("built the index %s", name)
        return True

    def _create(self, conn: Session, name: str, on: str) -> None:
        table, how = on.split(" ", 1)
        leaves = [leaf for (leaf,) in conn.execute(SQL.leaves, (table,))]
        if leaves:  # of an earlier build; those of the partitions go with it
            conn.execute(f"drop index if exists evervec.{name}")
        for leaf in leaves:
            self._create_on(conn, f"{leaf}_{name}", f"{leaf} {how}")
        if leaves:  # takes those of the partitions over
            conn.execute(f"create index {name} on evervec.{on}")
        else:
            self._create_on(conn, name, on)

    def _create_on(self, conn: Session, name: str, on: str) -> None:
        drop = f"drop index concurrently if exists evervec.{name}"
        create = f"create index concurrently {name} on evervec.{on}"
        conn.execute(drop)
        try:
            conn.execute(create)
        except (psycopg.errors.DiskFull, psycopg.errors.OutOfMemory) as error:
            # processes share the memory of a build: a container often has only 64 MB of it
            log.warning("the index %s is built by one process: %s", name, error)
            conn.execute("set max_parallel_maintenance_workers = 0")
            conn.execute(drop)
            conn.execute(create)


def _log_notice(said: psycopg.errors.Diagnostic) -> None:
    """What the server advises: a graph no longer fits into `maintenance_work_mem`."""
    if said.message_hint:
        log.warning("%s (%s)", said.message_primary, said.message_hint)


def valid_indexes(conn: Session, prefix: str) -> set[str]:
    """The names of indexes that can be used."""
    return {name for (name,) in conn.execute(SQL.valid_indexes, (prefix,))}
