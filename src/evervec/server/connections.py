"""The open connections of the service, with limits on their number and on idle time.

A connection without a request in progress can be closed at any time. When a limit is reached, a
new connection replaces the one that has been idle longest; those that never sent a request go
first. Time limits are enforced by one sweep per second over all connections, without timers.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import Protocol

from evervec.server.problems import Problem
from evervec.server.rate_limits import MemoryLimiter
from evervec.server.trust import Proxies, client_network
from evervec.settings import Settings

log = logging.getLogger("evervec.server")

_LEAST = 8
_TOLD_AGAIN = 60.0
"""seconds between two log lines about refused connections"""


class Connection(Protocol):
    """An open connection, as this module uses it."""

    def evict(self) -> None:
        """Close it at once; it has no request in progress."""

    def look(self, seconds: float) -> None:
        """Called by the sweep: `seconds` have passed since the last one."""


class _Room:
    """The number of open connections, and which of them are without a request: `silent` ones
    never sent one, `idle` ones did."""

    def __init__(self, most: int, client: str = "") -> None:
        self.most = most
        self.client = client
        """empty: of all clients"""
        self.count = 0
        self.silent: dict[Connection, None] = {}
        self.idle: dict[Connection, None] = {}

    def longest_waiting(self) -> Connection | None:
        return next(iter(self.silent), None) or next(iter(self.idle), None)


class Connections:
    """The connections of one service, in total and by client."""

    def __init__(
        self,
        settings: Settings,
        most: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.clock = clock
        self._proxies = Proxies(settings.trusted_proxies)
        self._all = _Room(most or settings.server_connections)
        self._most_of_client = settings.server_client_connections
        self._new = MemoryLimiter(
            settings.server_client_rate, settings.server_client_connections, clock
        )
        self._by_client: dict[str, _Room] = {}
        self._rooms: dict[Connection, tuple[_Room, ...]] = {}
        self._swept = clock()
        self._told = float("-inf")

    def __len__(self) -> int:
        return len(self._rooms)

    def admit(self, connection: Connection, peer: str | None) -> Problem | None:
        """Admit a new connection, or return the reason for rejecting it. Connections of trusted
        proxies and UNIX sockets carry many clients, so only the total limit applies to them."""
        rooms = [self._all]
        if peer is not None and not self._proxies.trust(peer):
            client = client_network(peer)
            if not self._new.allow(client):
                return self._too_often()
            rooms.insert(0, self._room_of(client))
        for room in rooms:
            if room.count >= room.most:
                waiting = room.longest_waiting()
                if waiting is None:
                    return self._refused(room)
                self.remove(waiting)
                waiting.evict()
        self._rooms[connection] = tuple(rooms)
        for room in rooms:
            room.count += 1
            room.silent[connection] = None
            if room.client:
                self._by_client[room.client] = room
        return None

    def busy(self, connection: Connection) -> None:
        """Mark a connection as having a request in progress."""
        for room in self._rooms.get(connection, ()):
            room.silent.pop(connection, None)
            room.idle.pop(connection, None)

    def idle(self, connection: Connection) -> None:
        """Mark a connection as having no request in progress."""
        for room in self._rooms.get(connection, ()):
            room.idle[connection] = None

    def remove(self, connection: Connection) -> None:
        self.busy(connection)
        for room in self._rooms.pop(connection, ()):
            room.count -= 1
            if not room.count:
                self._by_client.pop(room.client, None)

    def sweep(self) -> None:
        """Tell each connection how much time has passed since the last sweep."""
        now = self.clock()
        passed, self._swept = now - self._swept, now
        for connection in tuple(self._rooms):
            connection.look(passed)

    def _room_of(self, client: str) -> _Room:
        return self._by_client.get(client) or _Room(self._most_of_client, client)

    def _too_often(self) -> Problem:
        self._tell("one client opens too many per second (server_client_rate)")
        return Problem(
            429,
            f"this client opens more than {self._new.rate:g} connections per second "
            "(server_client_rate): reuse open connections",
            headers={"Retry-After": "1"},
        )

    def _tell(self, why: str) -> None:
        now = self.clock()
        if now - self._told > _TOLD_AGAIN:
            self._told = now
            log.warning("rejecting connections: %s", why)

    def _refused(self, room: _Room) -> Problem:
        in_all = room is self._all
        name = "server_connections" if in_all else "server_client_connections"
        whose = "this service has" if in_all else "this client has"
        self._tell(f"{room.most} are in use ({name})")
        return Problem(
            503 if in_all else 429,
            f"{whose} {room.most:,} connections in use ({name}): try again later",
            headers={"Retry-After": "1"},
        )


def most_connections(wanted: int) -> int:
    """`wanted`, but at most half of the process's file descriptors: store, index and worker need
    the others. The process's soft limit is raised as far as allowed."""
    if sys.platform == "win32":
        return wanted
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft not in (hard, resource.RLIM_INFINITY):
        needed = 2 * wanted + 1024
        soft = max(soft, needed if hard == resource.RLIM_INFINITY else min(needed, hard))
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        except (OSError, ValueError):
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft // 2 >= wanted:
        return wanted
    most = max(_LEAST, soft // 2)
    log.warning(
        "only %d connections instead of %d (server_connections): the process may open %d files; "
        "raise that limit with `ulimit -n` or LimitNOFILE=", most, wanted, soft,
    )  # fmt: skip
    return most
