"""Protocol of the part that keeps what followers of change streams share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from evervec.model.streams import FailedMessage, Stream, StreamProgress, StreamState


class Streams(Protocol):
    """The part that keeps followed streams, their progress and their set-aside messages.

    While a stream is followed, the deleted records of its kind keep their versions: a change that
    is older than a delete is refused however late it comes.
    """

    def follow(self, stream: Stream) -> None:
        """Save a stream, or its new definition."""

    def find(self, tenant: str, name: str) -> Stream | None: ...

    def forget(self, tenant: str, name: str) -> bool:
        """Remove a stream with its progress and set-aside messages; False: there is none."""

    def states(self, tenant: str | None) -> list[StreamState]:
        """The streams of a tenant, or of all, by tenant and name."""

    def report(self, tenant: str, name: str, parts: Sequence[StreamProgress]) -> None:
        """Save how far parts of a stream are."""

    def set_aside(self, tenant: str, messages: Sequence[FailedMessage]) -> None:
        """Keep messages durably. A message that is there already is replaced."""

    def failed(
        self, tenant: str, name: str | None = None, after: int = 0, limit: int = 100
    ) -> list[FailedMessage]:
        """Set-aside messages with a number above `after`, of one stream or of all."""

    def count_failed(self, tenant: str, name: str, most: int) -> int:
        """How many messages of a stream are set aside, counted up to `most`."""

    def any_failed(self) -> bool: ...

    def discard(self, tenant: str, numbers: Sequence[int]) -> int:
        """Drop set-aside messages; returns how many there were."""
