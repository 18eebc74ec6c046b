"""Protocol of the part that the HTTP service uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from evervec.stores.service_values import Asked, AuditChoice, StoredEntry, StoredKey


class Service(Protocol):
    """The part that keeps keys, audit log and idempotent requests of the service."""

    def add_key(self, key: StoredKey) -> None: ...

    def keys(self, tenant: str | None) -> list[StoredKey]:
        """The keys of one tenant or of all, the oldest first, with revoked and expired ones; no
        tokens."""

    def keys_before(self, tenant: str | None, at: float, id: str, limit: int) -> list[StoredKey]:
        """The next of these keys before the one with that time of creation and id, the newest
        first."""

    def any_keys(self) -> bool: ...

    def find_keys(self, ids: Sequence[str]) -> dict[str, StoredKey]: ...

    def revoke_key(self, id: str) -> bool:
        """False: the key does not exist or was already revoked."""

    def rotate_key(self, id: str, until: float, key: StoredKey) -> bool:
        """Add a key; the old one expires at `until` at the latest. False, and nothing is added: the
        old key does not exist or is no longer valid."""

    def add_token(self, token: StoredKey, since: float, most: int) -> bool:
        """False: the token's parent key has already made `most` tokens since `since`."""

    def forget_tokens(self, before: float) -> int:
        """Delete tokens that expired before `before`; returns how many."""

    def use_keys(self, used: Mapping[str, float]) -> None:
        """Save when keys were last used."""

    def add_audit(self, entries: Sequence[StoredEntry]) -> None: ...

    def audit(self, chosen: AuditChoice, limit: int) -> list[StoredEntry]:
        """Entries of the audit log, the newest first."""

    def forget_audit(self, before: float) -> int: ...

    def frequent_audit(self, most: int) -> list[tuple[str, str]]:
        """The tenants and actions with more entries than `most`."""

    def trim_audit(self, tenant: str, action: str, keep: int, limit: int) -> int:
        """Delete the oldest entries of an action on a tenant, but for the latest `keep`; at most
        `limit` of them. Returns how many."""

    def ask(self, tenant: str, name: str, fingerprint: str) -> Asked:
        """Save a request under the idempotency key that its caller gave it; returns the saved
        request, whether it is new or from an earlier call."""

    def asked(self, tenant: str, name: str) -> Asked | None:
        """The saved request; None if there is none."""

    def count_asked(self, tenant: str, most: int) -> int:
        """How many requests of a tenant are saved, counted up to `most`."""

    def answer(self, tenant: str, name: str, answer: str) -> None:
        """Save the answer to a request."""

    def forget_asked(self, before: float) -> int: ...
