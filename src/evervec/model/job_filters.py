"""Which jobs: a filter for lists and for changes of many at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from evervec.errors import InvalidArgument
from evervec.model.jobs import Status

MOST_CHANGED = 10_000
"""jobs that one call changes"""
SEARCHED = 10_000
"""jobs of a status that one call searches"""
_LONGEST_TEXT = 1000


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs. All conditions have to be met; None: any."""

    status: str | Sequence[str] = ()
    """one or several; empty: any"""
    kind: str | None = None
    prefix: str | None = None
    """how the record's id begins"""
    error: str | None = None
    """a part of the error, in upper or lower case"""
    fingerprint: str | None = None
    """that of a group of failures, or several with commas between them; the jobs are their dead
    letters"""
    worker: str | None = None
    """the worker that claimed it last"""
    older_than: timedelta | float | None = None
    """at least so long (seconds) in its status: since it ended, was claimed, or is due"""
    newer_than: timedelta | float | None = None
    """at most so long (seconds) in its status"""

    def __post_init__(self) -> None:
        given = self.status if isinstance(self.status, list | tuple | set) else (self.status,)
        object.__setattr__(self, "status", tuple(dict.fromkeys(map(read_status, given))))
        for name in ("kind", "prefix", "error", "fingerprint", "worker"):
            self._check_text(name, getattr(self, name))
        for name in ("older_than", "newer_than"):
            object.__setattr__(self, name, _seconds(name, getattr(self, name)))

    @staticmethod
    def _check_text(name: str, value: Any) -> None:
        if value is None:
            return
        if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_TEXT or "\0" in value:
            raise InvalidArgument(f"{name} must be a text of 1 to {_LONGEST_TEXT} characters")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidArgument(f"{name} is not valid Unicode") from None

    @property
    def fingerprints(self) -> tuple[str | None, ...]:
        """Those of the groups, each once; None alone: whatever the group."""
        if self.fingerprint is None:
            return (None,)
        given = (each.strip() for each in self.fingerprint.split(","))
        return tuple(dict.fromkeys(filter(None, given)))

    @property
    def statuses(self) -> tuple[Status, ...]:
        """The statuses that its jobs may have."""
        wanted = [Status(status) for status in self.status or Status]
        return tuple(s for s in wanted if self.fingerprint is None or s is Status.FAILED)

    def limited_to(self, *statuses: Status) -> JobFilter | None:
        """The same, of these `statuses` only; None: no job can fit."""
        left = tuple(status for status in self.statuses if status in statuses)
        return replace(self, status=left) if left else None


def read_status(given: Any) -> Status:
    try:
        return Status(given)
    except ValueError:
        known = ", ".join(Status)
        raise InvalidArgument(f"unknown status {given!r}; choose one of {known}") from None


def _seconds(name: str, value: Any) -> float | None:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e11:
        raise InvalidArgument(f"{name} must be a timedelta or a number of seconds, not {value!r}")
    return float(seconds)
