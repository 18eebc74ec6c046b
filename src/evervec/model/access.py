"""Who may do what with a service, and what was done: keys, tokens, the audit log."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class Role(StrEnum):
    """What the holder of a key may do."""

    READER = "reader"
    """read and search the tenant's records"""
    WRITER = "writer"
    """also change them"""
    ADMIN = "admin"
    """everything in every tenant: the operator of the platform"""

    @property
    def rank(self) -> int:
        """A higher rank has more permissions."""
        return _RANKS[self]


_RANKS = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True, slots=True)
class Key:
    """A key without its secret."""

    id: str
    """by which it is rotated and revoked"""
    prefix: str
    """the beginning of the key, to identify it"""
    tenant: str
    """whose records it gives access to"""
    agent: str
    """the name of its user"""
    role: Role
    """`reader`, `writer` or `admin`"""
    created_at: datetime
    """when it was created"""
    expires_at: datetime | None
    """None: it is valid until it is revoked"""
    last_used_at: datetime | None
    """to within a minute; None: never"""
    revoked_at: datetime | None
    """None: it was not revoked"""
    parent: str | None = field(default=None, repr=False)
    """of a token: the id of its key"""
    kinds: tuple[str, ...] | None = field(default=None, repr=False)
    """of a token: the kinds that it gives access to; None: all"""

    @property
    def label(self) -> str:
        """How the audit log names it."""
        return f"{self.id} ({self.role} of {self.tenant}, agent {self.agent})"


@dataclass(frozen=True, slots=True)
class NewKey:
    """A new key, with its secret, which is not available later."""

    key: str = field(repr=False)
    """the key itself"""
    info: Key
    """what is known of it later"""


@dataclass(frozen=True, slots=True)
class Token:
    """A new token, with its secret, which is not available later."""

    token: str = field(repr=False)
    """the token itself, used like a key"""
    id: str
    """by which it is revoked"""
    tenant: str
    """whose records it gives access to"""
    agent: str
    """that of its key"""
    role: Role
    """`reader`, `writer` or `admin`"""
    kinds: tuple[str, ...] | None
    """the kinds that it gives access to; None: all"""
    expires_at: datetime
    """when it becomes invalid, at the latest"""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One action in the audit log."""

    entry: int
    """its number; later entries have higher ones"""
    at: datetime
    """when it was done"""
    key_id: str | None
    """of the key or token; None: on the command line, or before any key existed"""
    agent: str
    """the name of the key's user"""
    tenant: str
    """the tenant affected; `*`: all"""
    action: str
    """such as `key.revoke`"""
    target: str
    """what it concerns"""
    outcome: str
    """`done`, or what went wrong"""
    request_id: str | None
    """of the request, as in the service's log"""
    client: str | None
    """the address of the client"""
