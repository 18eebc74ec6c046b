"""The calls for keys, tokens and the audit log of a service."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from evervec.client.connection import Call, Service, read
from evervec.model.access import AuditEntry, Key, NewKey, Token

_KEYS = "/v1/keys"


class KeyCalls:
    """The keys of a service; needs a platform admin's key, not a token."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def list(self, tenant: str | None = None, limit: int = 100) -> Call[list[Key]]:
        """Keys of a tenant, or of all, the newest first, with revoked and expired ones."""
        found = yield from self._service.items(_KEYS, "keys", limit, **_given(tenant=tenant))
        return read(list[Key], found)

    def create(
        self,
        tenant: str,
        agent: str = "default",
        role: str = "writer",
        expires_in: timedelta | float | None = None,
    ) -> Call[NewKey]:
        """Create a key; its text cannot be retrieved later. `expires_in`: its lifetime, also in
        seconds. The request is sent once: after a network error, look in `list` for a key that
        nobody has, and revoke it."""
        body = {
            "tenant": tenant, "agent": agent, "role": role, "expires_in": _seconds(expires_in),
        }  # fmt: skip
        return self._new(_KEYS, body)

    def rotate(self, id: str, overlap: timedelta | float = timedelta(days=1)) -> Call[NewKey]:
        """Create a key with the same permissions and lifetime; the old one stays valid for
        `overlap`. The request is sent once, as for `create`."""
        return self._new(f"{_KEYS}/{_segment(id)}/rotate", {"overlap": _seconds(overlap)})

    def _new(self, path: str, body: dict[str, Any]) -> Call[NewKey]:
        answered = yield from self._service.ask(
            "POST", path, json_body=body, scoped=False, repeats=False
        )
        found = answered.json()
        return NewKey(found.pop("key"), read(Key, found))

    def revoke(self, id: str) -> Call[None]:
        """Revoke a key at once, with its tokens. `id`: as listed, or the beginning of the key.
        Raises `InvalidArgument` if there is none, or it is revoked already."""
        return _revoke(self._service, id)


class TokenCalls:
    """The tokens of the client's key."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def create(
        self,
        role: str = "reader",
        *,
        tenant: str | None = None,
        kinds: Iterable[str] | None = None,
        expires_in: timedelta | float = 900.0,
    ) -> Call[Token]:
        """Create a short-lived token with a part of the key's permissions. `tenant`: only with a
        platform admin's key; `kinds`: what it gives access to, all by default; `expires_in`: its
        lifetime, also in seconds. The request is sent once."""
        body = {
            "role": role, "tenant": tenant, "kinds": None if kinds is None else list(kinds),
            "expires_in": _seconds(expires_in),
        }  # fmt: skip
        answered = yield from self._service.ask("POST", "/v1/tokens", json_body=body, repeats=False)
        return read(Token, answered.json())

    def revoke(self, id: str) -> Call[None]:
        """Revoke a token at once; needs a platform admin's key."""
        return _revoke(self._service, id)


class AuditCalls:
    """The audit log of a service; needs a platform admin's key, not a token."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def list(
        self,
        tenant: str | None = None,
        action: str | None = None,
        key_id: str | None = None,
        limit: int = 100,
    ) -> Call[list[AuditEntry]]:
        """Entries, the newest first. `tenant`: those on this tenant; `*`: on all tenants
        together."""
        which = _given(tenant=tenant, action=action, key_id=key_id)
        found = yield from self._service.items("/v1/audit", "entries", limit, **which)
        return read(list[AuditEntry], found)


def _revoke(service: Service, id: str) -> Call[None]:
    yield from service.ask("POST", f"{_KEYS}/{_segment(id)}/revoke", scoped=False)


def _segment(id: str) -> str:
    return quote(id, safe="").replace(".", "%2E")


def _given(**which: str | None) -> dict[str, str]:
    """The parameters that are given: the others leave the client's own tenant in force."""
    return {name: value for name, value in which.items() if value is not None}


def _seconds(given: timedelta | float | None) -> float | None:
    return given.total_seconds() if isinstance(given, timedelta) else given
