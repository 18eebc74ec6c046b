"""Keys, tokens and the audit log.

Keys and the audit log are for platform admins who come with a key: a token, which was given away for
a while, must not make something that stays.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from evervec.errors import InvalidArgument
from evervec.server.access import Reading, Running, View
from evervec.server.answers import answer, make_cursor, read_cursor
from evervec.server.audit import Audit
from evervec.server.keys import Key, NewKey, Role, TooManyTokens
from evervec.server.problems import Problem, documented
from evervec.server.requests import CheckedRoute
from evervec.server.schemas.base import MOST_AT_ONCE
from evervec.server.schemas.keys import (
    DEFAULT_OVERLAP,
    AuditOut,
    KeyIn,
    KeysOut,
    NewKeyOut,
    RevokedOut,
    RotateIn,
    TokenIn,
    TokenOut,
)
from evervec.stores.values import AuditChoice

router = APIRouter(prefix="/v1", tags=["keys"], route_class=CheckedRoute)

KeyId = Annotated[
    str, Path(pattern=r"^(ev_)?[0-9a-f]{12}$", description="as listed, or how the key begins")
]


@router.post(
    "/keys",
    summary="Make a key",
    status_code=201,
    responses={201: {"model": NewKeyOut}, **documented(409, 415)},
)
async def create(view: Running, body: KeyIn) -> Response:
    """The key is shown this once: only its hash is kept."""
    _must_have_key(view)
    if view.caller.key is None and body.role is not Role.ADMIN:
        raise Problem(
            409,
            "the first key must be an admin's: from then on nobody comes in without one, and only "
            "an admin makes others",
        )
    lasts = None if body.expires_in is None else timedelta(seconds=body.expires_in)
    made = await view.run(view.service.keys.create, body.tenant, body.agent, str(body.role), lasts)
    await view.note("key.create", _target(made.info))
    return _shown(made)


@router.get("/keys", summary="List keys", responses={200: {"model": KeysOut}, **documented()})
async def keys(
    view: Running, tenant: Annotated[str | None, Query(min_length=1)] = None
) -> Response:
    """Of all tenants, or of one."""
    _must_have_key(view)
    return answer(KeysOut, {"keys": await view.run(view.service.keys.list, tenant)})


@router.post(
    "/keys/{id}/revoke",
    summary="Revoke a key, or a token",
    responses={200: {"model": RevokedOut}, **documented(404)},
)
async def revoke(view: Running, id: KeyId) -> Response:
    """It opens nothing from now on, nor do its tokens; requests under way with it end within two
    seconds."""
    _must_have_key(view)
    try:
        await view.run(view.service.keys.revoke, id)
    except InvalidArgument as error:
        raise Problem(404, str(error)) from None
    await view.note("key.revoke", id)
    return answer(RevokedOut, {"revoked": id.removeprefix("ev_")})


@router.post(
    "/keys/{id}/rotate",
    summary="Replace a key without downtime",
    status_code=201,
    responses={201: {"model": NewKeyOut}, **documented(404, 415)},
)
async def rotate(view: Running, id: KeyId, body: RotateIn | None = None) -> Response:
    """Makes a key of the same tenant, agent and role. The old one stays good for `overlap`
    seconds."""
    _must_have_key(view)
    overlap = timedelta(seconds=body.overlap if body else DEFAULT_OVERLAP)
    try:
        made = await view.run(view.service.keys.rotate, id, overlap)
    except InvalidArgument as error:
        raise Problem(404, str(error)) from None
    await view.note("key.rotate", f"{id} by {_target(made.info)}")
    return _shown(made)


@router.post(
    "/tokens",
    summary="Make a token from your key",
    status_code=201,
    responses={201: {"model": TokenOut}, **documented(409, 415)},
)
async def token(view: Reading, body: TokenIn) -> Response:
    """For a program that should have less than the key, and not for long. It is used as a key is,
    and ends with the key that it was made from."""
    key, settings = view.caller.key, view.service.ev.settings
    if key is None:
        raise Problem(
            409, "there are no keys yet, so nothing to make a token from: make a key first"
        )
    if key.parent is not None:
        raise Problem(403, "a token makes no tokens: use the key that it was made from")
    if body.role.rank > key.role.rank:
        raise Problem(403, f"a {key.role}'s key makes no token of an {body.role}")
    tenant = body.tenant or view.tenant
    if tenant != key.tenant and key.role is not Role.ADMIN:
        raise Problem(403, "this key is of another tenant: leave tenant out")
    if body.expires_in > settings.token_seconds:
        raise Problem(
            422, f"expires_in: at most {settings.token_seconds:g} seconds (token_seconds)"
        )
    try:
        made = await view.run(
            view.service.keys.token, key, str(body.role), tenant, body.kinds,
            timedelta(seconds=body.expires_in), settings.tokens_per_key,
        )  # fmt: skip
    except TooManyTokens as error:
        raise Problem(429, str(error), headers={"Retry-After": "60"}) from None
    await view.note("token.create", _target(made.info))
    return answer(TokenOut, {"token": made.key, **asdict(made.info)}, 201)


@router.get(
    "/audit",
    summary="Who did what",
    responses={200: {"model": AuditOut}, **documented()},
)
async def audit(
    view: Running,
    tenant: Annotated[str | None, Query(min_length=1, description="`*`: done to all")] = None,
    action: Annotated[str | None, Query(min_length=1, examples=["key.revoke"])] = None,
    key_id: Annotated[str | None, Query(min_length=1)] = None,
    cursor: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST_AT_ONCE)] = 100,
) -> Response:
    """The newest first. `cursor`: as the page before gave it."""
    _must_have_key(view)
    place = read_cursor(cursor, int)
    chosen = AuditChoice(tenant, action, key_id, place[0] if place else None)
    found = await view.run(Audit(view.service.ev.store).list, chosen, limit)
    last = make_cursor(found[-1].entry) if len(found) == limit else None
    return answer(AuditOut, {"entries": found, "cursor": last})


def _must_have_key(view: View) -> None:
    if view.caller.key is not None and view.caller.key.parent is not None:
        raise Problem(403, "a token does not open keys and the audit log: use an admin's key")


def _target(key: Key) -> str:
    return f"{key.id} ({key.role} of {key.tenant}, agent {key.agent})"


def _shown(made: NewKey) -> Response:
    return answer(NewKeyOut, {"key": made.key, **asdict(made.info)}, 201)
