"""Values about change streams: those that are followed, how far each is, and set-aside messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Stream:
    """A change stream that is followed: its messages become records of a kind."""

    tenant: str
    name: str
    kind: str
    definition: str = field(repr=False)
    """JSON: how a message becomes a record"""


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """How far a part of a stream is: a partition of a topic, or a whole JetStream stream."""

    part: str
    position: int
    """the last message that is saved or set aside; -1: none"""
    lag: int
    """messages behind it"""
    sent_at: datetime | None = None
    """when that message was sent"""
    seen_at: datetime | None = None
    """when a follower last reported it; None: not reported yet"""


@dataclass(frozen=True, slots=True)
class StreamState:
    """A followed stream as a whole."""

    tenant: str
    name: str
    kind: str
    parts: tuple[StreamProgress, ...]
    failed: int
    """messages that are set aside"""

    @property
    def lag(self) -> int:
        return sum(part.lag for part in self.parts)

    @property
    def seen_at(self) -> datetime | None:
        """When a follower last reported any part."""
        return max((part.seen_at for part in self.parts if part.seen_at), default=None)


@dataclass(frozen=True, slots=True)
class FailedMessage:
    """A message that could not become a record, and is set aside until it is retried."""

    stream: str
    part: str
    position: int
    reason: str
    key: bytes | None = field(repr=False)
    content: bytes | None = field(repr=False)
    """its value; None: it has none"""
    size: int
    """bytes of its value; more than `content` has: only the beginning is kept"""
    headers: str = field(default="{}", repr=False)
    """JSON"""
    sent_at: datetime | None = None
    failed_at: datetime | None = None
    number: int = 0
    """its number in the store"""

    @property
    def is_whole(self) -> bool:
        return self.content is None or len(self.content) == self.size
