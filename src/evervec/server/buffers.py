"""Memory that clients can make the service hold: bodies that it receives, and responses that are not
read yet.

Each is limited on its own, and one tenant may hold only a part of it: others must not wait for a
tenant with many long bodies, nor for one that does not read. What every request may hold
(`FREE_BYTES`) is not counted; the limit on requests bounds it.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from evervec.server.problems import Problem
from evervec.settings import Settings
from evervec.telemetry.counters import REFUSED

log = logging.getLogger("evervec.server")

FREE_BYTES = 65_536
_PARTS = 4
"""one tenant may hold this part of the bytes"""
_CUT_PARTS = 2
"""the responses of a tenant that holds this part are cut off; at less it gets no further ones"""
_LOG_INTERVAL = 60.0
_AGAIN = {"Retry-After": "1"}


class Bodies:
    """The bytes of request bodies, by tenant."""

    def __init__(self, settings: Settings) -> None:
        self._setting = settings.server_buffer_mb
        longest = int(settings.server_body_mb * 1e6)  # one body always has room
        self._most = max(int(self._setting * 1e6), longest)
        self._most_of_one = max(self._most // _PARTS, longest)
        self._by_tenant: Counter[str] = Counter()
        self.held = 0

    def has_room(self, tenant: str, size: int) -> bool:
        """Whether a tenant may hold so many bytes more."""
        own = self._by_tenant[tenant] + size
        return own <= self._most_of_one and self.held + size <= self._most

    def hold(self, tenant: str, size: int) -> None:
        """Count bytes; negative: they are given back."""
        self.held += size
        self._by_tenant[tenant] += size
        if not self._by_tenant[tenant]:
            del self._by_tenant[tenant]

    def refusal(self, tenant: str, size: int) -> Problem:
        """Why a tenant may not hold so many bytes more."""
        if self._by_tenant[tenant] + size > self._most_of_one:
            REFUSED.add(1, "tenant_bytes")
            what = f"this tenant's requests in progress have {self._most_of_one:,} bytes of bodies"
            status = 429
        else:
            REFUSED.add(1, "all_bytes")
            what = f"the service's requests in progress have {self._most:,} bytes of bodies"
            status = 503
        detail = f"{what} (server_buffer_mb): wait for some of them to finish"
        return Problem(status, detail, error="too many bytes at once", headers=_AGAIN)


class Reader(Protocol):
    """A connection whose client has a response to read."""

    def unsent(self) -> int:
        """The bytes that it has not sent yet."""

    def evict(self) -> None:
        """Cut it off at once."""


class _Response:
    """What a connection has not sent yet."""

    __slots__ = ("began", "size", "tenant")

    def __init__(self, tenant: str, size: int, began: float) -> None:
        self.tenant = tenant
        self.size = size
        self.began = began


class Unread:
    """The bytes of responses that clients have not read yet, by tenant.

    A tenant with too many gets no further responses. If those that are under way become too many
    all the same, the connections are cut off that hold the most bytes for the longest time.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._most = int(settings.server_buffer_mb * 1e6)
        self._by_tenant: Counter[str] = Counter()
        self._responses: dict[Reader, _Response] = {}
        self.held = 0
        self._logged_at = float("-inf")

    def check(self, tenant: str) -> None:
        """Raise a `Problem` if a tenant must first read the responses that it has."""
        if self._by_tenant[tenant] * _PARTS > self._most:
            REFUSED.add(1, "tenant_bytes")
            raise Problem(
                429,
                f"{self._by_tenant[tenant]:,} bytes of this tenant's responses are not read yet "
                "(server_buffer_mb): read them, and send fewer requests at once",
                error="too many bytes at once",
                headers=_AGAIN,
            )

    def hold(self, reader: Reader, tenant: str, size: int) -> None:
        """Note the bytes of a connection's response, and cut others off if they are too many."""
        self.release(reader)
        self._responses[reader] = _Response(tenant, size, self.clock())
        self._add(tenant, size)
        if not self._are_too_many(tenant):
            return
        for each in self._responses:  # most may have been read meanwhile
            if each is not reader:
                self.shrink(each, each.unsent())
        while self.held > self._most and self._cut(reader, self._responses):
            pass
        own = [each for each, found in self._responses.items() if found.tenant == tenant]
        while self._are_too_many(tenant) and self._cut(reader, own):
            own = [each for each in own if each in self._responses]

    def shrink(self, reader: Reader, size: int) -> None:
        """Note that a client has read, and so many bytes are left."""
        found = self._responses.get(reader)
        if found is not None:
            self._add(found.tenant, size - found.size)
            found.size = size

    def release(self, reader: Reader) -> None:
        """Forget a connection, which has sent its response or is closed."""
        found = self._responses.pop(reader, None)
        if found is not None:
            self._add(found.tenant, -found.size)

    def _are_too_many(self, tenant: str) -> bool:
        return self.held > self._most or self._by_tenant[tenant] * _CUT_PARTS > self._most

    def _add(self, tenant: str, size: int) -> None:
        self.held += size
        self._by_tenant[tenant] += size
        if not self._by_tenant[tenant]:
            del self._by_tenant[tenant]

    def _cut(self, latest: Reader, among: Iterable[Reader]) -> bool:
        """Cut off a connection other than the latest; False: there is none."""
        now = self.clock()

        def weight(reader: Reader) -> float:
            found = self._responses[reader]
            return found.size * (now - found.began)

        worst = max((each for each in among if each is not latest), key=weight, default=None)
        if worst is None:
            return False
        self.release(worst)
        worst.evict()
        REFUSED.add(1, "unread")
        if now - self._logged_at > _LOG_INTERVAL:
            self._logged_at = now
            log.warning("cutting off clients that do not read their responses (server_buffer_mb)")
        return True
