"""What a request costs beyond what was known when it came: the bytes of its response, and the calls
that one message makes.

A response is encoded and sent before its size is known, so this is taken from the rate limit and
the tenant's share afterwards: the next requests of the same agent wait for it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from evervec.server.requests import Message, Send

if TYPE_CHECKING:
    from evervec.server.service import Service

BYTES_PER_REQUEST = 65_536
"""bytes of a body, or of a response, that count as one more request"""
_FREE_CALLS = 4
"""calls of one message that count as one request"""
IN_SCOPE = "evervec.charge"
"""the name in a request's scope of its `Charge`; absent for platform admins, who have no limits"""


class Charge:
    """What one request costs later."""

    __slots__ = ("_bucket", "_calls", "_sent", "_service", "_tenant")

    def __init__(self, service: Service, bucket: str, tenant: str) -> None:
        self._service = service
        self._bucket = bucket
        self._tenant = tenant
        self._sent = self._calls = 0

    def counting(self, send: Send) -> Send:
        """`send`, which counts the bytes of the response."""

        async def send_counted(message: Message) -> None:
            self.count_bytes(len(message.get("body", b"")))
            await send(message)

        return send_counted

    def count_bytes(self, size: int) -> None:
        """Count bytes of the response."""
        before = self._sent // BYTES_PER_REQUEST
        self._sent += size
        if cost := self._sent // BYTES_PER_REQUEST - before:
            self._take(cost)

    def count_call(self) -> None:
        """Count one more call of the service's own routes; a few are paid for."""
        self._calls += 1
        if self._calls > _FREE_CALLS:
            self._take(1)

    def _take(self, cost: int) -> None:
        service, limiter = self._service, self._service.limiter
        service.shares.charge(self._tenant, cost)
        if limiter.blocks:
            work = service.run(limiter.charge, self._bucket, cost)
            service.outlive(asyncio.ensure_future(work))
        else:
            limiter.charge(self._bucket, cost)
