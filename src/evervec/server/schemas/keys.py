"""Keys, tokens, and the audit log."""

from __future__ import annotations

from datetime import datetime

from pydantic import ConfigDict, Field

from evervec.server.keys import Role
from evervec.server.schemas.base import Given, More, Shown

_LONGEST = 100 * 365 * 86400
"""seconds; a date that far away can still be told"""

DEFAULT_OVERLAP = 86400.0


class KeyIn(Given):
    """A key to be made."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"tenant": "acme", "agent": "crawler", "role": "writer"}]}
    )

    tenant: str = Field(min_length=1)
    agent: str = Field("default", min_length=1, description="who will use it")
    role: Role = Role.WRITER
    expires_in: float | None = Field(
        None, gt=0, le=_LONGEST, description="seconds that it is good for; null: until revoked"
    )


class KeyOut(Shown):
    """A key as it may be shown: without its secret."""

    id: str
    prefix: str = Field(description="how the key begins")
    tenant: str
    agent: str
    role: Role
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


class KeysOut(Shown):
    """Keys, the oldest first; revoked and expired ones too."""

    keys: list[KeyOut]


class NewKeyOut(KeyOut):
    """A key that was just made."""

    key: str = Field(description="the key itself, which is shown this once")


class RotateIn(Given):
    """How a key is replaced."""

    overlap: float = Field(
        DEFAULT_OVERLAP, ge=0, le=_LONGEST, description="seconds that the old key stays good"
    )


class RevokedOut(Shown):
    """A key that opens nothing any more."""

    revoked: str


class TokenIn(Given):
    """A token to be made from the key that the request comes with."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"role": "reader", "kinds": ["note"], "expires_in": 600}]}
    )

    role: Role = Field(Role.READER, description="no higher than the key's own")
    tenant: str | None = Field(
        None, min_length=1, description="for platform admins; else it is the key's own"
    )
    kinds: list[str] | None = Field(
        None, min_length=1, max_length=100, description="the only kinds that it opens; null: all"
    )
    expires_in: float = Field(
        900.0, gt=0, description="seconds that it is good for, at most `token_seconds`"
    )


class TokenOut(Shown):
    """A token that was just made."""

    token: str = Field(description="the token itself, which is shown this once; used as a key is")
    id: str
    tenant: str
    agent: str
    role: Role
    kinds: list[str] | None
    expires_at: datetime


class EntryOut(Shown):
    """Something that was done."""

    entry: int
    at: datetime
    key_id: str | None = Field(description="null: without a key, or on the command line")
    agent: str
    tenant: str = Field(description="whose it was done to; `*`: all")
    action: str
    target: str
    outcome: str
    request_id: str | None
    client: str | None = Field(description="the address that the request came from")


class AuditOut(Shown):
    """Entries of the audit log, the newest first."""

    entries: list[EntryOut]
    cursor: More
