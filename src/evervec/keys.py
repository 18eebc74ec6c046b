"""Keys of the service: who asks, for which tenant, and what they may do.

A key is `ev_<id>_<secret>`. Its id is public and finds it; its secret is shown once, when
the key is made, and only the hash is kept. That hash needs no salt and no stretching: the
secret is 256 random bits, not a password.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from evervec.drafts import check_name
from evervec.errors import InvalidArgument
from evervec.model import as_datetime, as_seconds
from evervec.stores.base import Store
from evervec.stores.values import StoredKey


class Role(StrEnum):
    """What the holder of a key may do."""

    READER = "reader"
    """read and search in the tenant"""
    WRITER = "writer"
    """that, and change what is in the tenant"""
    ADMIN = "admin"
    """everything in every tenant: who runs the platform"""


@dataclass(frozen=True, slots=True)
class Key:
    """A key as it may be shown to anybody who runs the store."""

    id: str
    prefix: str
    """how the key begins, to know it by"""
    tenant: str
    agent: str
    role: Role
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made: the only time that its text can be had."""

    key: str = field(repr=False)
    info: Key


_SHAPE = re.compile(r"ev_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_NO_HASH = "0" * 64


class Keys:
    """The keys of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def create(
        self,
        tenant: str,
        agent: str = "default",
        role: str = Role.WRITER,
        expires: timedelta | datetime | None = None,
    ) -> NewKey:
        """Make a key. What is not noted now cannot be had again."""
        check_name("tenant", tenant)
        check_name("agent", agent)
        if role not in tuple(Role):
            raise InvalidArgument(f"there is no role {role!r}; there are {', '.join(Role)}")
        now = self._store.now()
        ends = now + expires.total_seconds() if isinstance(expires, timedelta) else expires
        expires_at = None if ends is None else as_seconds(ends)
        if expires_at is not None and expires_at <= now:
            raise InvalidArgument("the key would have expired already: give a later time")
        id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        stored = StoredKey(id, _hash(secret), tenant, agent, str(role), now, expires_at)
        self._store.add_key(stored)
        return NewKey(f"ev_{id}_{secret}", _shown(stored))

    def list(self, tenant: str | None = None) -> list[Key]:
        """The keys of a tenant, or of all; revoked and expired ones too."""
        return [_shown(stored) for stored in self._store.keys(tenant)]

    def revoke(self, id: str) -> None:
        """From now on the key opens nothing. `id`: as listed, or how the key begins."""
        found = re.fullmatch(r"(?:ev_)?([0-9a-f]{12})(?:_.*)?", id)
        if found is None or not self._store.revoke_key(found[1]):
            raise InvalidArgument(
                f"there is no key {id[:15]!r} that could be revoked: `evervec keys list` shows them"
            )

    def any(self) -> bool:
        """Whether a key was ever made; the service is open to its own machine until then."""
        return self._store.any_keys()

    def check(self, given: Iterable[str]) -> dict[str, Key | None]:
        """Which of some texts are keys that open something now; None for those that are not.
        The store is asked each time, so that a key revoked anywhere is of no use at once."""
        parts = {text: _SHAPE.fullmatch(text) for text in given}
        ids = [found[1] for found in parts.values() if found]
        known = self._store.find_keys(ids) if ids else {}
        now = self._store.now()
        return {
            text: _opened(known.get(found[1]), found[2], now) if found else None
            for text, found in parts.items()
        }

    def used(self, when: Mapping[str, float]) -> None:
        """Note when keys were last used, by their ids."""
        self._store.use_keys(when)


def _opened(stored: StoredKey | None, secret: str, now: float) -> Key | None:
    # compared in any case, so that time does not tell whether the id exists
    same = hmac.compare_digest(_hash(secret), stored.hash if stored else _NO_HASH)
    if not same or stored is None or stored.revoked_at is not None:
        return None
    return None if stored.expires_at is not None and stored.expires_at <= now else _shown(stored)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _shown(stored: StoredKey) -> Key:
    return Key(
        stored.id, f"ev_{stored.id}", stored.tenant, stored.agent, Role(stored.role),
        as_datetime(stored.created_at), as_datetime(stored.expires_at),  # type: ignore[arg-type]
        as_datetime(stored.last_used_at), as_datetime(stored.revoked_at),
    )  # fmt: skip
