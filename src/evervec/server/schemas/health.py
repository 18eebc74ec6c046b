"""Liveness and readiness."""

from __future__ import annotations

from typing import Literal

from evervec.server.schemas.base import Shown


class AliveOut(Shown):
    """The process responds."""

    status: Literal["ok"]


class PartOut(Shown):
    """The state of one part of the service."""

    ok: bool
    reason: str
    """`ok`, or why not: `timeout`, `unreachable`, `unwritable`, `full`, `low`, `stopped`,
    `failing`, `stuck`, `paused`, `none` or `error`"""
    detail: str


class ReadyOut(Shown):
    """The state of the service by part. Without index or provider, the service saves records and
    searches text, so it is degraded, not down. It is down when records cannot be saved, because of
    the store or the disk, or when one of its own workers does not work."""

    status: Literal["ready", "degraded", "down"]
    store: PartOut
    disk: PartOut
    index: PartOut
    provider: PartOut
    workers: PartOut
