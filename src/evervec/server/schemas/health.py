"""How the service does."""

from __future__ import annotations

from typing import Literal

from evervec.server.schemas.base import Shown


class AliveOut(Shown):
    """The process answers."""

    status: Literal["ok"]


class PartOut(Shown):
    """How one part of the service does."""

    ok: bool
    reason: str
    """`ok`, or why not: `timeout`, `unreachable`, `unwritable`, `full`, `low`, `stopped`,
    `failing`, `stuck`, `paused`, `none` or `error`"""
    detail: str


class ReadyOut(Shown):
    """How the service does, part by part. Without index or provider it takes records and answers
    from text, so it is degraded, not down. It is down when records cannot be saved, because of
    the store or the disk, and when a worker that should run inside does not work."""

    status: Literal["ready", "degraded", "down"]
    store: PartOut
    disk: PartOut
    index: PartOut
    provider: PartOut
    workers: PartOut
