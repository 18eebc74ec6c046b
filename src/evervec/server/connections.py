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

from evervec.server.buffers import Unread
from evervec.server.delays import Delays
from evervec.server.origin import Proxies, client_network
from evervec.server.problems import Problem
from evervec.server.rate_limits import MemoryLimiter
from evervec.settings import Settings

log = logging.getLogger("evervec.server")

_LEAST = 8
_LOG_INTERVAL = 60.0
"""seconds between two log lines about refused connections"""


class Connection(Protocol):
    """An open connection, as this module uses it."""

    def evict(self) -> None:
        """Close it at once."""

    def check_time(self, seconds: float) -> None:
        """Called by the sweep: `seconds` have passed since the last one."""


class _Group:
    """The number of open connections, and which of them are without a request: `silent` ones
    never sent one, `idle` ones did."""

    def __init__(self, most: int, client: str = "") -> None:
        self.most = most
        self.client = client
        """empty: of all clients"""
        self.count = 0
        self.silent: dict[Connection, None] = {}
        self.idle: dict[Connection, None] = {}

    def longest_idle(self) -> Connection | None:
        return next(iter(self.silent), None) or next(iter(self.idle), None)


class Connections:
    """The connections of one service, in total and by client."""

    def __init__(
        self,
        settings: Settings,
        most: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        unread: Unread | None = None,
        delays: Delays | None = None,
    ) -> None:
        self.clock = clock
        self.unread = unread or Unread(settings)
        """what their clients have not read yet"""
        self.delays = delays or Delays(clock)
        self._proxies = Proxies(settings.trusted_proxies)
        self._all = _Group(most or settings.server_connections)
        self._most_of_client = settings.server_client_connections
        self._new = MemoryLimiter(
            settings.server_client_rate, settings.server_client_connections, clock
        )
        self._by_client: dict[str, _Group] = {}
        self._groups: dict[Connection, tuple[_Group, ...]] = {}
        self._swept = clock()
        self._logged_at = float("-inf")

    def __len__(self) -> int:
        return len(self._groups)

    def admit(self, connection: Connection, peer: str | None) -> Problem | None:
        """Admit a new connection, or return the reason for rejecting it. Connections of trusted
        proxies and UNIX sockets carry many clients, so only the total limit applies to them."""
        groups = [self._all]
        if peer is not None and not self._proxies.trust(peer):
            client = client_network(peer)
            if not self._new.allow(client):
                return self._too_often()
            groups.insert(0, self._group_of(client))
        for group in groups:
            if group.count >= group.most:
                waiting = group.longest_idle()
                if waiting is None:
                    return self._too_many(group)
                self.remove(waiting)
                waiting.evict()
        self._groups[connection] = tuple(groups)
        for group in groups:
            group.count += 1
            group.silent[connection] = None
            if group.client:
                self._by_client[group.client] = group
        return None

    def busy(self, connection: Connection) -> None:
        """Mark a connection as having a request in progress."""
        for group in self._groups.get(connection, ()):
            group.silent.pop(connection, None)
            group.idle.pop(connection, None)

    def idle(self, connection: Connection) -> None:
        """Mark a connection as having no request in progress."""
        for group in self._groups.get(connection, ()):
            group.idle[connection] = None

    def remove(self, connection: Connection) -> None:
        self.busy(connection)
        for group in self._groups.pop(connection, ()):
            group.count -= 1
            if not group.count:
                self._by_client.pop(group.client, None)

    def sweep(self) -> None:
        """Tell each connection how much time has passed since the last sweep."""
        now = self.clock()
        passed, self._swept = now - self._swept, now
        for connection in tuple(self._groups):
            connection.check_time(passed)

    def _group_of(self, client: str) -> _Group:
        return self._by_client.get(client) or _Group(self._most_of_client, client)

    def _too_often(self) -> Problem:
        return self._refused(
            429,
            "one client opens too many per second (server_client_rate)",
            f"this client opens more than {self._new.rate:g} connections per second "
            "(server_client_rate): reuse open connections",
        )

    def _too_many(self, group: _Group) -> Problem:
        in_all = group is self._all
        name = "server_connections" if in_all else "server_client_connections"
        whose = "this service has" if in_all else "this client has"
        return self._refused(
            503 if in_all else 429,
            f"{group.most} are in use ({name})",
            f"{whose} {group.most:,} connections in use ({name}): try again later",
        )

    def _refused(self, status: int, logged: str, detail: str) -> Problem:
        now = self.clock()
        if now - self._logged_at > _LOG_INTERVAL:
            self._logged_at = now
            log.warning("rejecting connections: %s", logged)
        return Problem(status, detail, headers={"Retry-After": "1"})


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
