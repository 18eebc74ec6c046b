"""Keys, tokens, and the audit log."""

from __future__ import annotations

from datetime import datetime

from pydantic import ConfigDict, Field

from evervec.server.keys import Role
from evervec.server.schemas.base import Given, More, Shown

_LONGEST = 100 * 365 * 86400
"""seconds; such a date can still be represented"""

DEFAULT_OVERLAP = 86400.0


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


class KeyOut(Shown):
    """A key without its secret."""

    id: str
    prefix: str = Field(description="the beginning of the key")
    tenant: str
    agent: str
    role: Role
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


class KeysOut(Shown):
    """Keys, oldest first, including revoked and expired ones."""

    keys: list[KeyOut]


class NewKeyOut(KeyOut):
    """A new key."""

    key: str = Field(description="the key itself, shown only once")


class RotateIn(Given):
    """Options of a rotation."""

    overlap: float = Field(
        DEFAULT_OVERLAP, ge=0, le=_LONGEST, description="seconds that the old key stays valid"
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
    kinds: list[str] | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="the kinds that it gives access to; null: all",
    )
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


class EntryOut(Shown):
    """An entry of the audit log."""

    entry: int
    at: datetime
    key_id: str | None = Field(description="null: without a key, or on the command line")
    agent: str
    tenant: str = Field(description="the tenant affected; `*`: all")
    action: str
    target: str
    outcome: str
    request_id: str | None
    client: str | None = Field(description="the client's address")


class AuditOut(Shown):
    """Entries of the audit log, newest first."""

    entries: list[EntryOut]
    cursor: More
