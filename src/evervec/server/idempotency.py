"""`Idempotency-Key`: a repeated request gets the stored response and is not executed again.

The key, its tenant and agent, and a fingerprint of the request are stored before execution, the
response afterwards. If the service crashes in between, the request is executed again. This is
safe: the id of a record without one is derived from the key.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Header
from starlette.requests import Request
from starlette.responses import Response

from evervec.errors import EvervecError
from evervec.server.problems import Problem
from evervec.server.view import View
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.stores.service_values import Asked

log = logging.getLogger("evervec.server")

IDEMPOTENCY_KEY = "Your own unique name for this request: a repeated request is not executed again."
KEY_SHAPE: dict[str, Any] = {"minLength": 1, "maxLength": 255, "pattern": r"^[\x21-\x7e]+$"}
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=KEY_SHAPE["pattern"],
        description=IDEMPOTENCY_KEY,
    ),
]
_NAMESPACE = uuid.UUID("6d6f0f5e-6a0c-5a51-9b5c-6576657276ec")
_RECOUNT_SECONDS = 60.0
"""seconds after which the keys of a tenant that has too many are counted again"""
_TENANTS = 1000
"""number of tenants whose counts are cached"""
_KEPT_HEADERS = ("etag", "location")


async def once(view: View, name: str | None, do: Callable[[], Awaitable[Response]]) -> Response:
    """Execute a request, or return its stored response. Error responses are not stored."""
    if name is None:
        return await do()
    names, fingerprint = view.service.idempotency_keys, await _fingerprint(view.request)
    name = f"{name} {view.caller.agent}"  # two agents may choose the same name
    known = await view.run(names.ask, view.tenant, name, fingerprint)
    if known.fingerprint != fingerprint:
        raise Problem(422, "this Idempotency-Key was used for a different request: use a new one")
    if known.answer is not None:
        status, headers, body = json.loads(known.answer)
        return Response(body, status, {**headers, "Idempotency-Replayed": "true"})
    response = await do()
    if response.status_code < 300:
        kept = {h: response.headers[h] for h in _KEPT_HEADERS if h in response.headers}
        kept["content-type"] = "application/json"
        text = bytes(response.body).decode()
        answered = json.dumps((response.status_code, kept, text))
        try:
            await view.run(names.answer, view.tenant, name, answered)
        except EvervecError as error:  # the request is done, and may be repeated safely
            log.warning("the response for an Idempotency-Key was not stored: %s", error)
    return response


class IdempotencyKeys:
    """The stored Idempotency-Keys, with a limit per tenant.

    They are not counted with every request: below the limit, a hundredth of the limit is admitted
    without another count; at the limit, they are counted again after a while.
    """

    def __init__(
        self, store: Store, settings: Settings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._most = settings.server_repeat_names
        self._hours = settings.server_repeat_hours
        self._clock = clock
        self._counts: dict[str, _Count] = {}

    def answer(self, tenant: str, name: str, answer: str) -> None:
        self._store.service.answer(tenant, name, answer)

    def ask(self, tenant: str, name: str, fingerprint: str) -> Asked:
        """The stored state of a request, which is added if it is new; raises a `Problem` at the
        tenant's limit."""
        if self._take_room(tenant):
            return self._store.service.ask(tenant, name, fingerprint)
        known = self._store.service.asked(tenant, name)
        if known is None:
            raise Problem(
                429,
                f"this tenant has the maximum of {self._most:,} stored Idempotency-Keys "
                f"(server_repeat_names), each kept for {self._hours:g} h: wait, or send the "
                "request without one",
                headers={"Retry-After": f"{_RECOUNT_SECONDS:.0f}"},
            )
        return known

    def _take_room(self, tenant: str) -> bool:
        """Take one of the keys that the tenant has left; returns whether there was one."""
        count = self._counts.get(tenant)
        if count is None or (
            count.left <= 0 and (count.below_limit or self._clock() >= count.count_again_at)
        ):
            free = self._most - self._store.service.count_asked(tenant, self._most)
            left = min(free, max(1, self._most // 100))
            count = _Count(left, free > 0, self._clock() + _RECOUNT_SECONDS)
            self._counts.pop(tenant, None)
            self._counts[tenant] = count
            if len(self._counts) > _TENANTS:
                self._counts.pop(next(iter(self._counts)), None)
        count.left -= 1
        return count.left >= 0


@dataclass(slots=True)
class _Count:
    """The result of a count of a tenant's keys."""

    left: int
    """keys that are admitted before the next count"""
    below_limit: bool
    """whether the tenant was below its limit"""
    count_again_at: float
    """when to count again, at the limit"""


async def _fingerprint(request: Request) -> str:
    """A hash that is equal for repeated requests."""
    parts = (request.method, request.scope["path"], request.url.query)
    digest = hashlib.sha256("\n".join(parts).encode())
    digest.update(await request.body())
    return digest.hexdigest()


def checked_name(given: str | None) -> str | None:
    """The Idempotency-Key of a request; raises a `Problem` if it is malformed."""
    if given is not None and not (len(given) <= 255 and re.fullmatch(KEY_SHAPE["pattern"], given)):
        raise Problem(422, "Idempotency-Key: must have 1 to 255 printable ASCII characters")
    return given


def derived_id(view: View, kind: str, name: str, position: int = 0) -> str:
    """The id of a record without one, the same for each repetition of the request."""
    parts = (view.tenant, view.caller.agent, kind, name, str(position))
    return str(uuid.uuid5(_NAMESPACE, "\n".join(parts)))
