"""API keys of the service, each with an agent, a tenant and a role.

A key is `ev_<id>_<secret>`. The id is public and is used to look up the key; the secret is shown
once, when the key is created, and only its hash is stored. The hash needs no salt and no
stretching: the secret is 256 random bits, not a password.

A token is a short-lived key derived from a key, with fewer permissions: a lower role, one tenant,
some kinds. Only its hash is stored too, and it is valid only as long as its key.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache

from evervec.errors import InvalidArgument
from evervec.model.access import Key, NewKey, Role
from evervec.model.basics import as_datetime, as_seconds
from evervec.records.drafts import check_name
from evervec.stores.base import Store
from evervec.stores.service_values import StoredKey

__all__ = [
    "TOKENS_COUNTED",
    "Key",
    "Keys",
    "NewKey",
    "Role",
    "TokenNotAllowed",
    "TooManyTokens",
]


class TokenNotAllowed(InvalidArgument):
    """A key may not create this token."""


class TooManyTokens(InvalidArgument):
    """Too many tokens were made from a key within an hour."""


TOKENS_COUNTED = 3600.0
_SHAPE = re.compile(r"ev_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_ID = re.compile(r"[0-9a-f]{12}")
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
        """Create a key. Its text cannot be retrieved later."""
        check_name("tenant", tenant)
        check_name("agent", agent)
        now = self._store.now()
        ends = now + expires.total_seconds() if isinstance(expires, timedelta) else expires
        expires_at = None if ends is None else as_seconds(ends)
        if expires_at is not None and expires_at <= now:
            raise InvalidArgument("the key's expiry is in the past: give a later time")
        text, stored = _generate(tenant, agent, _role(role), now, expires_at)
        self._store.service.add_key(stored)
        return NewKey(text, _public(stored))

    def rotate(self, id: str, overlap: timedelta = timedelta(days=1)) -> NewKey:
        """Create a key with the same permissions and lifetime. The old key stays valid for
        `overlap`, so that its users can change to the new one."""
        found = _id(id)
        old = self._store.service.find_keys([found]).get(found) if found else None
        if overlap < timedelta(0):
            raise InvalidArgument("overlap must not be negative")
        if old is None:
            raise _no_key(id, "rotated")
        now = self._store.now()
        ends = None if old.expires_at is None else now + old.expires_at - old.created_at
        text, stored = _generate(old.tenant, old.agent, Role(old.role), now, ends)
        if not self._store.service.rotate_key(old.id, now + overlap.total_seconds(), stored):
            raise _no_key(id, "rotated")
        return NewKey(text, _public(stored))

    def token(
        self,
        parent: Key,
        role: str,
        tenant: str,
        kinds: Sequence[str] | None,
        lasts: timedelta,
        most: int,
    ) -> NewKey:
        """Create a token with a part of a key's permissions. `most`: tokens per key and hour;
        beyond that, `TooManyTokens`."""
        if parent.parent is not None:
            raise TokenNotAllowed("a token cannot create tokens: use its key")
        if _role(role).rank > parent.role.rank:
            raise TokenNotAllowed(
                f"a {parent.role}'s key cannot create a token with the role {role}"
            )
        if tenant != parent.tenant and parent.role is not Role.ADMIN:
            raise TokenNotAllowed("a token must have the tenant of its key: omit the tenant")
        if kinds is not None and (not kinds or _role(role) is Role.ADMIN):
            raise InvalidArgument(
                "kinds must have at least one kind, and the role reader or writer"
            )
        check_name("tenant", tenant)
        for kind in kinds or ():
            check_name("kind", kind)
        now = self._store.now()
        ends = now + lasts.total_seconds()
        text, stored = _generate(tenant, parent.agent, _role(role), now, ends)
        listed = None if kinds is None else json.dumps(sorted(set(kinds)))
        stored = replace(stored, parent=parent.id, kinds=listed)
        if not self._store.service.add_token(stored, now - TOKENS_COUNTED, most):
            raise TooManyTokens(
                f"{most:,} tokens were made from this key within an hour (tokens_per_key): reuse "
                "tokens, or give them a longer lifetime"
            )
        return NewKey(text, _public(stored))

    def list(self, tenant: str | None = None) -> list[Key]:
        """The keys of a tenant, or of all, including revoked and expired ones."""
        return [_public(stored) for stored in self._store.service.keys(tenant)]

    def page(self, tenant: str | None, before: str | None, limit: int) -> Sequence[Key]:
        """Keys of a tenant, or of all, the newest first; `before`: the id of the last one of the
        previous page."""
        at, id = math.inf, ""
        if before is not None:
            last = self._stored(before)
            if last is None:
                raise _no_key(before, "found")
            at, id = last.created_at, last.id
        found = self._store.service.keys_before(tenant, at, id, limit)
        return [_public(stored) for stored in found]

    def find(self, id: str) -> Key | None:
        """The key with this id, valid or not; no token."""
        found = self._stored(id)
        return None if found is None or found.parent is not None else _public(found)

    def _stored(self, id: str) -> StoredKey | None:
        return self._store.service.find_keys([id]).get(id) if _ID.fullmatch(id) else None

    def revoke(self, id: str) -> None:
        """Revoke a key at once. `id`: as listed, or the beginning of the key."""
        found = _id(id)
        if found is None or not self._store.service.revoke_key(found):
            raise _no_key(id, "revoked")

    def any(self) -> bool:
        """Whether a key was ever created; until then clients on this machine need none."""
        return self._store.service.any_keys()

    def check(self, given: Iterable[str]) -> dict[str, Key | None]:
        """The valid keys among some texts; None for the others. The store is queried each time, so
        that a revocation by any process takes effect at once."""
        parts = {text: _SHAPE.fullmatch(text) for text in given}
        ids = [found[1] for found in parts.values() if found]
        good = self.good(ids)
        return {
            text: _verified(good.get(found[1]), found[2]) if found else None
            for text, found in parts.items()
        }

    def good(self, ids: Iterable[str]) -> dict[str, StoredKey]:
        """The keys and tokens among `ids` that are neither revoked nor expired."""
        wanted = sorted(set(ids))
        alive = self._alive(wanted) if wanted else {}
        parents = sorted({key.parent for key in alive.values() if key.parent})
        if not parents:
            return alive
        good = self._alive(parents)
        return {id: key for id, key in alive.items() if key.parent is None or key.parent in good}

    def _alive(self, ids: Sequence[str]) -> dict[str, StoredKey]:
        known, now = self._store.service.find_keys(ids), self._store.now()
        return {
            id: key for id, key in known.items()
            if key.revoked_at is None and (key.expires_at is None or key.expires_at > now)
        }  # fmt: skip

    def used(self, when: Mapping[str, float]) -> None:
        """Save when keys were last used, by id."""
        self._store.service.use_keys(when)


def _verified(stored: StoredKey | None, secret: str) -> Key | None:
    # always compare, so that timing does not reveal whether the id exists
    same = hmac.compare_digest(_hash(secret), stored.hash if stored else _NO_HASH)
    return _public(stored) if same and stored is not None else None


def _generate(
    tenant: str, agent: str, role: Role, now: float, expires_at: float | None
) -> tuple[str, StoredKey]:
    id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    return f"ev_{id}_{secret}", StoredKey(
        id, _hash(secret), tenant, agent, str(role), now, expires_at
    )


def _role(name: str) -> Role:
    if name not in tuple(Role):
        raise InvalidArgument(f"unknown role {name!r}; choose one of {', '.join(Role)}")
    return Role(name)


def _id(given: str) -> str | None:
    """The id in an id, the beginning of a key, or a whole key."""
    found = re.fullmatch(r"(?:ev_)?([0-9a-f]{12})(?:_.*)?", given)
    return found[1] if found else None


def _no_key(id: str, what: str) -> InvalidArgument:
    return InvalidArgument(f"no key {id[:15]!r} can be {what}: see `evervec keys list`")


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


@lru_cache(4096)
def _public(stored: StoredKey) -> Key:
    return Key(
        stored.id, f"ev_{stored.id}", stored.tenant, stored.agent, Role(stored.role),
        as_datetime(stored.created_at), as_datetime(stored.expires_at),  # type: ignore[arg-type]
        as_datetime(stored.last_used_at), as_datetime(stored.revoked_at), stored.parent,
        None if stored.kinds is None else tuple(json.loads(stored.kinds)),
    )  # fmt: skip
