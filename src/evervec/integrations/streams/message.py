"""What every change stream has in common: messages at positions, which are committed."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

import orjson

from evervec.errors import EvervecError, InvalidRecord
from evervec.model.streams import FailedMessage, StreamProgress

log = logging.getLogger("evervec")

_SILENT_SECONDS = 30.0
_KEPT_KEY = 1 << 16
_KEPT_CONTENT = 1 << 20
_KEPT_REASON = 1000
"""bytes of a failed message, and characters of its reason, that the store keeps"""


class SourceUnavailable(EvervecError):
    """The change stream does not answer. Nothing is lost: the follower tries again."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a change stream."""

    part: str
    """the partition of a topic, or the stream: positions count up within it"""
    position: int
    key: bytes | None
    value: bytes | None
    """None: the message says that its key is deleted"""
    headers: Mapping[str, str] = field(default_factory=dict)
    sent_at: datetime | None = None
    origin: Any = None
    """the message as the source's own client has it"""

    def failed(self, stream: str, reason: str) -> FailedMessage:
        """The message as the store keeps it when it cannot become a record."""
        key, value = self.key, self.value
        return FailedMessage(
            stream,
            self.part,
            self.position,
            _storable(reason)[:_KEPT_REASON],
            None if key is None else key[:_KEPT_KEY],
            None if value is None else value[:_KEPT_CONTENT],
            len(value or b""),
            _storable(json.dumps(dict(self.headers), ensure_ascii=False))[:_KEPT_KEY],
            self.sent_at,
        )

    @classmethod
    def restored(cls, failed: FailedMessage) -> Message:
        """A message that was set aside."""
        try:
            headers = json.loads(failed.headers)
        except ValueError:  # they were cut
            headers = {}
        return cls(
            failed.part, failed.position, failed.key, failed.content, headers, failed.sent_at
        )


def read_json(data: bytes) -> Any:
    """A message's JSON; `InvalidRecord` if it is none."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InvalidRecord(f"not JSON: {error}") from None


def _storable(text: str) -> str:
    """A text that every store accepts."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


class Complaints:
    """Logs what a client library complains of: the same at most once in a while."""

    def __init__(self, client: str) -> None:
        self._client = client
        self._last = ("", 0.0)

    def __call__(self, error: object) -> None:
        text, now = str(error), time.monotonic()
        said, when = self._last
        if text != said or now >= when + _SILENT_SECONDS:
            self._last = (text, now)
            log.warning("%s: %s", self._client, text)


class Source(Protocol):
    """A change stream as a follower reads it. Only one thread uses it."""

    def identity(self) -> str:
        """What changes when the stream is deleted and created again; empty: the source cannot tell.
        Raises `SourceUnavailable`."""

    def is_behind(self, positions: Mapping[str, int]) -> bool:
        """Whether the stream ends before these positions of its parts, or went back since it was
        opened: then it was created again. Raises `SourceUnavailable`."""

    def fetch(self, most: int, seconds: float) -> Sequence[Message]:
        """The next messages: waits up to `seconds` for the first one. Raises `SourceUnavailable`."""

    def commit(self, messages: Sequence[Message]) -> None:
        """Let no follower get these messages again. It may fail silently: then they are repeated."""

    def hold(self, messages: Sequence[Message]) -> None:
        """Keep messages that were fetched and wait for the store, so that the stream does not take
        this follower for dead; called about once a second."""

    def progress(self) -> Sequence[StreamProgress]:
        """How far the parts are that this follower reads. Raises `SourceUnavailable`."""

    def is_drained(self) -> bool:
        """Whether the last `fetch` found the end of all parts that this follower reads."""

    def close(self) -> None: ...
