"""NOTIFY and LISTEN: notify other processes of changes without delay.

A notification is only a hint. The store's own transactions do not send it, because NOTIFY makes
commits wait for each other; a thread sends one notification afterwards for all changes since the
last, if another process listens. Those that listen hold an advisory lock, by which the thread sees
them. A process that misses a notification, or has no connection to listen on, sees the change at
its next poll.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import psycopg

from evervec.errors import EvervecError
from evervec.runtime.threads import start
from evervec.stores.postgres.connections import Connections, Session

log = logging.getLogger("evervec")

NOTIFY = "notify evervec"
_TELL = f"begin; set local synchronous_commit = off; {NOTIFY}; commit"
"""A plain NOTIFY would be synced to disk at its commit, and every other commit with a NOTIFY would
wait for that."""
_LOCK = (0x65766572, 1)
"""the advisory lock of those that listen ("ever")"""
_MARK = "select pg_advisory_lock_shared(%s, %s)"
_OTHERS = """
select exists (
    select 1 from pg_locks
    where locktype = 'advisory' and (classid, objid, objsubid) = ($1::oid, $2::oid, 2) and granted
        and database = (select oid from pg_database where datname = current_database())
        and pid <> $3)
"""
_OTHERS_HOLD = 1.0
"""seconds for which another process is believed to listen"""
_ALONE = 0.2
"""seconds between two looks whether another process listens, while none does. A process that begins
to listen reads the store first, so no change is missed."""
_REST = 0.01
"""seconds between two notifications of one process"""
_RETRY = 1.0
_LOOK = 1.0


class Listener:
    """Sends and receives notifications of changes. Its threads start when first needed."""

    def __init__(self, db: Connections, heard: Callable[[], None]) -> None:
        self._db = db
        self._heard = heard
        self._stop = threading.Event()
        self._changed = threading.Event()
        self._lock = threading.Lock()
        self._threads: dict[str, threading.Thread] = {}
        self._own_session = 0
        self._ask_at = 0.0

    def tell(self) -> None:
        """Notify the other processes soon, from a thread."""
        self._changed.set()
        self._begin("evervec-tell", self._tell)

    def listen(self) -> None:
        """Start to listen for notifications of other processes."""
        self._begin("evervec-listen", self._listen)

    def _begin(self, name: str, work: Callable[[], None]) -> None:
        if name in self._threads:
            return
        with self._lock:
            if name not in self._threads and not self._stop.is_set():
                self._threads[name] = start(name, work)

    def _tell(self) -> None:
        while True:
            self._changed.wait()
            if self._stop.is_set():
                return
            self._changed.clear()
            try:
                with self._db.reading() as conn:
                    heard = self._others_listen(conn)
                    if heard:
                        conn.execute(_TELL)
                self._stop.wait(_REST if heard else _ALONE)
            except EvervecError as error:
                log.debug("NOTIFY failed: %s", error)
                self._stop.wait(_RETRY)

    def _others_listen(self, conn: Session) -> bool:
        if time.monotonic() >= self._ask_at:
            (others,) = conn.execute(_OTHERS, (*_LOCK, self._own_session)).fetchone()
            if not others:  # asked again after the next change: see `_ALONE`
                return False
            self._ask_at = time.monotonic() + _OTHERS_HOLD
        return True

    def _listen(self) -> None:
        while not self._stop.is_set():
            try:
                with self._db.dedicated() as conn:
                    self._own_session = conn.info.backend_pid
                    conn.execute(_MARK, _LOCK)
                    conn.execute("listen evervec")
                    self._heard()  # changes may have been missed before LISTEN
                    while not self._stop.is_set():
                        for _ in conn.notifies(timeout=_LOOK, stop_after=1):
                            self._heard()
            except psycopg.Error as error:
                log.debug("LISTEN is restarted: %s", error)
                self._stop.wait(_RETRY)

    def close(self) -> None:
        """Stop both threads; neither has unsaved state."""
        with self._lock:
            self._stop.set()
        self._changed.set()
        if "evervec-listen" in self._threads:
            with suppress(EvervecError), self._db.reading() as conn:
                conn.execute(NOTIFY)  # wakes the listening thread
        for thread in self._threads.values():
            thread.join(2 * _LOOK)
