"""Keys, tokens and the audit log.

Keys and the audit log require a platform admin's key, not a token: a short-lived token must not
create a permanent key.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import Depends, Path, Query
from pydantic import ConfigDict, Field
from starlette.responses import Response

from evervec.errors import InvalidArgument
from evervec.model.basics import make_cursor
from evervec.server.answers import (
    MOST_AT_ONCE,
    Given,
    Items,
    More,
    Shown,
    answer,
    read_cursor,
    shows,
)
from evervec.server.audit import Audit, Entry
from evervec.server.keys import Key, NewKey, Role, TokenNotAllowed, TooManyTokens
from evervec.server.problems import Problem
from evervec.server.router import Routes
from evervec.server.view import AdminView, ReaderView, View
from evervec.stores.service_values import AuditChoice

router = Routes("keys")


_LONGEST = 100 * 365 * 86400
"""seconds; such a date can still be represented"""
_DEFAULT_OVERLAP = 86400.0


class KeyIn(Given):
    """A key to create."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"tenant": "acme", "agent": "crawler", "role": "writer"}]}
    )

    tenant: str = Field(min_length=1)
    agent: str = Field("default", min_length=1, description="name of the key's user")
    role: Role = Role.WRITER
    expires_in: float | None = Field(
        None, gt=0, le=_LONGEST, description="lifetime in seconds; null: until revoked"
    )


@shows(Key)
class KeyOut(Shown):
    """A key without its secret."""


class KeysOut(Shown):
    """Keys, newest first, including revoked and expired ones."""

    keys: list[KeyOut]
    cursor: More


class NewKeyOut(KeyOut):
    """A new key."""

    key: str = Field(description="the key itself, shown only once")


class RotateIn(Given):
    """Options of a rotation."""

    overlap: float = Field(
        _DEFAULT_OVERLAP, ge=0, le=_LONGEST, description="seconds that the old key stays valid"
    )


class RevokedOut(Shown):
    """The id of the revoked key."""

    revoked: str


class TokenIn(Given):
    """A token to create from the request's key."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"role": "reader", "kinds": ["note"], "expires_in": 600}]}
    )

    role: Role = Field(Role.READER, description="not higher than the key's role")
    tenant: str | None = Field(
        None, min_length=1, description="only for platform admins; default: the key's tenant"
    )
    kinds: Items[str] | None = Field(
        None, min_length=1, max_length=100,
        description="the kinds that it gives access to; null: all",
    )  # fmt: skip
    expires_in: float = Field(
        900.0, gt=0, description="lifetime in seconds, at most `token_seconds`"
    )


class TokenOut(Shown):
    """A new token."""

    token: str = Field(description="the token itself, shown only once; used like a key")
    id: str
    tenant: str
    agent: str
    role: Role
    kinds: list[str] | None
    expires_at: datetime


@shows(Entry)
class EntryOut(Shown):
    """An entry of the audit log."""


class AuditOut(Shown):
    """Entries of the audit log, newest first."""

    entries: list[EntryOut]
    cursor: More


async def _with_key(view: AdminView) -> View:
    if view.caller.key is not None and view.caller.key.parent is not None:
        raise Problem(403, "a token gives no access to keys and the audit log: use an admin's key")
    return view


_with_key.role = Role.ADMIN  # type: ignore[attr-defined]  # see `CheckedRoute`

KeyAdminView = Annotated[View, Depends(_with_key)]
KeyId = Annotated[
    str, Path(pattern=r"^(ev_)?[0-9a-f]{12}$", description="as listed, or the beginning of the key")
]


@router.on("POST /v1/keys", "Create a key", NewKeyOut, 409, 415, status=201)
async def create_key(view: KeyAdminView, body: KeyIn) -> Response:
    """The key is shown only once: only its hash is stored."""
    if view.caller.key is None and body.role is not Role.ADMIN:
        raise Problem(
            409,
            "the first key must have the role admin: from then on every request needs a key, and "
            "only an admin can create keys",
        )
    lasts = None if body.expires_in is None else timedelta(seconds=body.expires_in)
    made = await view.run(view.service.keys.create, body.tenant, body.agent, str(body.role), lasts)
    await view.audit("key.create", made.info.label)
    return _new_key(made)


@router.on("GET /v1/keys", "List keys", KeysOut)
async def list_keys(
    view: KeyAdminView,
    tenant: Annotated[str | None, Query(min_length=1)] = None,
    cursor: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST_AT_ONCE)] = 100,
) -> Response:
    """Keys of all tenants, or of one, newest first. `cursor`: from the previous page."""
    place = read_cursor(cursor, str)
    found = await view.run(view.service.keys.page, tenant, place[0] if place else None, limit)
    last = make_cursor(found[-1].id) if len(found) == limit else None
    return await view.listed(KeysOut, "keys", found, cursor=last)


@router.on("POST /v1/keys/{id}/revoke", "Revoke a key, or a token", RevokedOut, 404)
async def revoke_key(view: KeyAdminView, id: KeyId) -> Response:
    """The key and its tokens become invalid at once; requests in progress with them end within two
    seconds."""
    try:
        await view.run(view.service.keys.revoke, id)
    except InvalidArgument as error:
        raise Problem(404, str(error)) from None
    await view.audit("key.revoke", id)
    return answer(RevokedOut, {"revoked": id.removeprefix("ev_")})


@router.on(
    "POST /v1/keys/{id}/rotate", "Replace a key without downtime", NewKeyOut, 404, 415, status=201
)
async def rotate_key(view: KeyAdminView, id: KeyId, body: RotateIn | None = None) -> Response:
    """Creates a key with the same tenant, agent and role. The old key stays valid for `overlap`
    seconds."""
    overlap = timedelta(seconds=body.overlap if body else _DEFAULT_OVERLAP)
    try:
        made = await view.run(view.service.keys.rotate, id, overlap)
    except InvalidArgument as error:
        raise Problem(404, str(error)) from None
    await view.audit("key.rotate", f"{id} by {made.info.label}")
    return _new_key(made)


@router.on("POST /v1/tokens", "Create a token from your key", TokenOut, 409, 415, status=201)
async def create_token(view: ReaderView, body: TokenIn) -> Response:
    """For a program that should have fewer permissions than the key, for a limited time. A token is
    used like a key, and becomes invalid with its key."""
    key, settings = view.caller.key, view.service.ev.settings
    if key is None:
        raise Problem(409, "no keys exist, so no token can be created: create a key first")
    if body.expires_in > settings.token_seconds:
        raise Problem(
            422, f"expires_in: at most {settings.token_seconds:g} seconds (token_seconds)"
        )
    try:
        made = await view.run(
            view.service.keys.token, key, str(body.role), body.tenant or view.tenant, body.kinds,
            timedelta(seconds=body.expires_in), settings.tokens_per_key,
        )  # fmt: skip
    except TokenNotAllowed as error:
        raise Problem(403, str(error)) from None
    except TooManyTokens as error:
        raise Problem(429, str(error), headers={"Retry-After": "60"}) from None
    await view.audit("token.create", made.info.label)
    return answer(TokenOut, {"token": made.key, **asdict(made.info)}, 201)


@router.on("GET /v1/audit", "Read the audit log", AuditOut)
async def list_audit_entries(
    view: KeyAdminView,
    tenant: Annotated[
        str | None, Query(min_length=1, description="`*`: actions on all tenants")
    ] = None,
    action: Annotated[str | None, Query(min_length=1, examples=["key.revoke"])] = None,
    key_id: Annotated[str | None, Query(min_length=1)] = None,
    cursor: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST_AT_ONCE)] = 100,
) -> Response:
    """Newest first. `cursor`: from the previous page."""
    place = read_cursor(cursor, int)
    chosen = AuditChoice(tenant, action, key_id, place[0] if place else None)
    found = await view.run(Audit(view.service.ev.store).list, chosen, limit)
    last = make_cursor(found[-1].entry) if len(found) == limit else None
    return await view.listed(AuditOut, "entries", found, cursor=last)


def _new_key(made: NewKey) -> Response:
    return answer(NewKeyOut, {"key": made.key, **asdict(made.info)}, 201)
