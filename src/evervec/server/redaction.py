"""Removes hosts, paths and account details from errors that tenants see.

A failed job keeps the original error: a provider's response may name its customer, a store's
error its path. Platform admins see the original; tenants see which part failed, and whether
their own record is the cause.
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

_REFUSED = re.compile(r"^.{1,40}? rejected the input\b")
_OWN = ("record is unreadable", "the text ", "text:", "title:", "metadata:")
"""beginnings of errors that concern only the tenant's own record"""
_TEXT_REFUSED = "the embedding provider rejected this text"
_HIDDEN = "embedding failed: details are visible with a platform admin's key"
_PROVIDER = {
    "outage": "the embedding provider is unavailable",
    "limited": "the embedding provider's rate limit is reached",
}


def redacted(caller: Caller, value: T) -> T:
    """A value with only what the caller may see."""
    if caller.role is Role.ADMIN:
        return value
    if isinstance(value, Job):
        return replace(value, error=_reason(value.error))
    if isinstance(value, Attempt):
        return replace(value, error=_reason(value.error), worker=_worker(value.worker))
    if value.gate is None:
        return value
    reason = _PROVIDER.get(value.gate.state, "embedding is paused")
    return replace(value, gate=replace(value.gate, reason=reason))


def _reason(error: str | None) -> str | None:
    if error is None or error.startswith(_OWN):
        return error
    return _TEXT_REFUSED if _REFUSED.match(error) else _HIDDEN


def _worker(name: str) -> str:
    """A stable pseudonym for a worker that shows neither host nor process."""
    return f"worker-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
