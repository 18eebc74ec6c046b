"""The values that the part of a store for the service takes and returns: keys, audit log, answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key of the service as the store keeps it: only its hash, never the key."""

    id: str
    hash: str
    tenant: str
    agent: str
    role: str
    created_at: float
    expires_at: float | None = None
    last_used_at: float | None = None
    revoked_at: float | None = None
    parent: str | None = None
    """for a token: the id of the key that made it"""
    kinds: str | None = None
    """for a token: a JSON list of the kinds that it may access; None: all"""


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry of the audit log: who did what, from where, and the outcome."""

    at: float
    key_id: str | None
    agent: str
    tenant: str
    action: str
    target: str
    outcome: str
    request_id: str | None = None
    client: str | None = None
    entry: int = 0


class AuditChoice(NamedTuple):
    """Selects entries of the audit log; None matches any."""

    tenant: str | None = None
    action: str | None = None
    key_id: str | None = None
    before: int | None = None
    """only entries with a lower number"""
    since: float | None = None
    least: int | None = None
    """only entries with this number or a higher one"""


class Asked(NamedTuple):
    """A saved request that may be repeated; `answer` is None until it is answered."""

    fingerprint: str
    answer: str | None
