"""Read replicas: searches read one that is recent enough, and else the primary.

A replica serves if it follows this primary, on its timeline, and has replayed what the primary had
written at some moment of the last `replica_lag_seconds`. After a ticket it must have replayed what the
primary has written by now, for which a search waits a little. So a replica that lags, is gone, was
promoted, or follows a primary that is no longer one, costs time but never gives an old answer as a new
one.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from evervec.errors import DeadlineExceeded, EvervecError, StoreError
from evervec.model.deadlines import left
from evervec.settings import Settings
from evervec.stores.postgres.connections import Connections, reading_from
from evervec.stores.postgres.engine import SQL
from evervec.stores.values import ReplicaFailed

T = TypeVar("T")
log = logging.getLogger("evervec")

_LOOK_AGAIN = 1.0
"""seconds for which it is assumed that a replica still follows its primary"""
_POLL = 0.01
_REST = 5.0
"""seconds without a replica that failed"""
_CONNECT = 2.0
"""seconds to wait for a connection: the primary can answer instead"""


class Position(NamedTuple):
    """How far a database has written or replayed."""

    system: int
    timeline: int
    lsn: int

    def includes(self, other: Position) -> bool:
        return self[:2] == other[:2] and self.lsn >= other.lsn


class Replica:
    """One replica, connected to when it is first used."""

    def __init__(self, url: str, settings: Settings) -> None:
        self._url = url
        waits = min(settings.connect_seconds, _CONNECT)
        self._settings = dataclasses.replace(settings, connect_seconds=waits)
        self._db: _ReplicaConnections | None = None
        self._rests_until = 0.0
        self._looked = 0.0
        self._position: Position | None = None
        self._trouble = ""

    def has(self, positions: list[Position]) -> bool:
        """Whether it has replayed up to one of the positions."""
        now = time.monotonic()
        if now < self._rests_until:
            return False
        if now - self._looked >= _LOOK_AGAIN or not self._includes(positions):
            try:
                self._position = self._look()
            except StoreError as error:
                self.failed(error)
                return False
            self._looked = now
        return self._includes(positions)

    def _includes(self, positions: list[Position]) -> bool:
        mine = self._position
        return mine is not None and any(map(mine.includes, positions))

    def _look(self) -> Position | None:
        """None: it is a primary of its own."""
        with self.db().reading() as conn:
            follows, *position = conn.execute(SQL.replayed).fetchone()
        if not follows:
            self._tell("it is not a replica any more, or never was")
            return None
        self._tell("")
        return Position(*position)

    def db(self) -> Connections:
        if self._db is None:
            self._db = _ReplicaConnections(self._url, self._settings)
        return self._db

    def failed(self, error: EvervecError) -> None:
        self.close()  # a new pool fails at once where this one would wait for a connection
        self._rests_until = time.monotonic() + _REST
        self._looked, self._position = 0.0, None
        self._tell(str(error))

    def _tell(self, trouble: str) -> None:
        if trouble and not self._trouble:
            log.warning("searches do not read a replica: %s", trouble)
        elif self._trouble and not trouble:
            log.info("searches read a replica again")
        self._trouble = trouble

    def close(self) -> None:
        known, self._db = self._db, None
        if known is not None:
            known.close()


class _ReplicaConnections(Connections):
    def _explain(self, error: Exception) -> EvervecError:
        found = super()._explain(error)
        return found if isinstance(found, DeadlineExceeded) else ReplicaFailed(str(found))


class Replicas:
    """The replicas of one primary."""

    def __init__(self, primary: Connections, settings: Settings) -> None:
        self._primary = primary
        urls = [url.strip() for url in settings.postgres_replicas.split(",")]
        self._replicas = [Replica(url, settings) for url in urls if url]
        self._lag = settings.replica_lag_seconds
        self._wait = settings.replica_wait_seconds
        self._turn = 0
        self._written: deque[tuple[float, Position]] = deque()
        """when the primary had written how much, in the last `replica_lag_seconds`"""

    def search(self, search: Callable[[], T], *, fresh: bool) -> T:
        """Run a search on a replica, or on the primary if none is recent enough. `fresh`: it must
        have all that the primary has by now."""
        replica = self._choose(fresh) if self._replicas else None
        if replica is not None:
            try:
                with reading_from(replica.db()):
                    return search()
            except ReplicaFailed as error:
                replica.failed(error)
        return search()

    def _choose(self, fresh: bool) -> Replica | None:
        until = time.monotonic() + left(self._wait) if fresh else 0.0
        wanted = [self._flushed()] if fresh else self._recently_written()
        while True:
            for replica in self._in_turn():
                if replica.has(wanted):
                    return replica
            if time.monotonic() >= until:
                return None
            time.sleep(_POLL)

    def _in_turn(self) -> Iterator[Replica]:
        self._turn += 1
        count = len(self._replicas)
        for place in range(self._turn, self._turn + count):
            yield self._replicas[place % count]

    def _flushed(self) -> Position:
        """What is written by now, sent to the replicas at once: workers commit without waiting for
        the disk, and replicas get only what is on it."""
        with self._primary.writing(durable=True) as conn:
            conn.execute(SQL.flush)
        return self._now_written()

    def _now_written(self) -> Position:
        with self._primary.reading() as conn:
            return Position(*conn.execute(SQL.written).fetchone())

    def _recently_written(self) -> list[Position]:
        now, known = time.monotonic(), self._written
        if not known or now - known[-1][0] >= min(_LOOK_AGAIN, self._lag):
            known.append((now, self._now_written()))
        while len(known) > 1 and known[0][0] < now - self._lag:
            known.popleft()
        return [position for _, position in known]

    def close(self) -> None:
        for replica in self._replicas:
            replica.close()
