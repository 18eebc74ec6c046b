"""`Idempotency-Key`: a request that is sent again is answered again, not done again.

The key, the tenant and a fingerprint of the request are remembered before it is done, its
answer after. Should the service die between the two, the request is done again, which is
safe: an id that was not given is made from the key.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import uuid
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Header
from starlette.requests import Request
from starlette.responses import Response

from evervec.errors import EvervecError
from evervec.server.access import View
from evervec.server.problems import Problem

log = logging.getLogger("evervec.server")

IDEMPOTENCY_KEY = "A name of your own for this request: sent again, it is not done again."
KEY_SHAPE: dict[str, Any] = {"minLength": 1, "maxLength": 255, "pattern": r"^[\x21-\x7e]+$"}
IdempotencyKey = Annotated[
    str | None,
    Header(min_length=1, max_length=255, pattern=KEY_SHAPE["pattern"], description=IDEMPOTENCY_KEY),
]
_NAMESPACE = uuid.UUID("6d6f0f5e-6a0c-5a51-9b5c-6576657276ec")
_KEPT_HEADERS = ("etag", "location")


async def once(
    request: Request, view: View, name: str | None, do: Callable[[], Awaitable[Response]]
) -> Response:
    """Do a request, or give the answer that it had before. Refusals are not kept."""
    if name is None:
        return await do()
    store, fingerprint = view.service.ev.store, await _fingerprint(request, view)
    known = await view.run(store.ask, view.tenant, name, fingerprint)
    if known.fingerprint != fingerprint:
        raise Problem(422, "this Idempotency-Key was used for another request: make a new one")
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
            await view.run(store.answer, view.tenant, name, answered)
        except EvervecError as error:  # it is done, and may be done again
            log.warning("an answer is not kept for its Idempotency-Key: %s", error)
    return response


async def _fingerprint(request: Request, view: View) -> str:
    """What makes two requests the same one."""
    parts = (request.method, request.scope["path"], view.caller.agent, request.url.query)
    digest = hashlib.sha256("\n".join(parts).encode())
    digest.update(await request.body())
    return digest.hexdigest()


def checked_name(given: str | None) -> str | None:
    """The name of a request, as `IdempotencyKey` has it."""
    if given is not None and not (len(given) <= 255 and re.fullmatch(KEY_SHAPE["pattern"], given)):
        raise Problem(422, "Idempotency-Key: must be 1 to 255 printable characters of ASCII")
    return given


def made_id(view: View, kind: str, name: str, position: int = 0) -> str:
    """The id of a record that came without one, the same whenever the request comes."""
    return str(uuid.uuid5(_NAMESPACE, "\n".join((view.tenant, kind, name, str(position)))))
