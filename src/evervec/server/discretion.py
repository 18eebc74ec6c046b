"""What tenants are told when something fails: nothing of hosts, paths or the provider's account.

A failed job keeps the words of whatever failed: a provider's answer may name its customer, a
store's error its path. Platform admins see them as they are; tenants learn which part failed,
and whether it is their own record that is the cause.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from evervec.model.jobs import Attempt, Job
from evervec.model.reports import Stats
from evervec.server.keys import Role

if TYPE_CHECKING:
    from evervec.server.access import Caller

T = TypeVar("T", Job, Attempt, Stats)

_REFUSED = re.compile(r"^.{1,40}? refuses it\b")
_OWN = ("the record cannot be read", "the text ", "text:", "title:", "metadata:")
"""how errors begin that speak of the tenant's own record alone"""
_TEXT_REFUSED = "the embedding provider refuses this text"
_HIDDEN = "embedding failed: a platform admin's key shows why"
_PROVIDER = {
    "outage": "the embedding provider does not answer",
    "limited": "the embedding provider asked for a pause",
}


def told(caller: Caller, value: T) -> T:
    """A value as a caller may see it."""
    if caller.role is Role.ADMIN:
        return value
    if isinstance(value, Job):
        return replace(value, error=_reason(value.error))
    if isinstance(value, Attempt):
        return replace(value, error=_reason(value.error), worker=_worker(value.worker))
    if value.gate is None:
        return value
    reason = _PROVIDER.get(value.gate.state, "the embedding provider is left alone for now")
    return replace(value, gate=replace(value.gate, reason=reason))


def _reason(error: str | None) -> str | None:
    if error is None or error.startswith(_OWN):
        return error
    return _TEXT_REFUSED if _REFUSED.match(error) else _HIDDEN


def _worker(name: str) -> str:
    """Another name for a worker, always the same, that shows neither host nor process."""
    return f"worker-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
