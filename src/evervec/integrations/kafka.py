"""Kafka: follow topics, by any broker that speaks its protocol.

Followers of one group share the partitions of their topics. Offsets are committed by the follower,
after the records are durable; nothing is committed automatically.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote, urlsplit

from evervec.errors import EvervecError, InvalidArgument
from evervec.facade import Evervec
from evervec.integrations.streams.follower import MOST_FAILED, Followed, Follower
from evervec.integrations.streams.mapping import MessageMapping
from evervec.integrations.streams.message import Complaints, Message, SourceUnavailable
from evervec.model.streams import StreamProgress
from evervec.runtime.packages import load_package

log = logging.getLogger("evervec")

_BATCH_BYTES = 16 << 20
"""a batch ends when its messages have so many bytes"""
_AT_ONCE = 100
_LATEST = 253_402_300_800_000
"""milliseconds until the year 10000, which no time in Python reaches"""
_CONNECT_SECONDS = 10.0
_ASK_SECONDS = 5.0
_OURS = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
}
_DEFAULTS = {
    "auto.offset.reset": "earliest",
    "client.id": "evervec",
    "log_level": 2,  # what it logs is also reported as an error
    "queued.max.messages.kbytes": 16384,
}

_Part = tuple[str, int]
"""topic and partition"""


def follow(
    ev: Evervec,
    url: str,
    *,
    topic: str | Iterable[str],
    kind: str,
    group: str | None = None,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
    batch: int | None = None,
    most_failed: int = MOST_FAILED,
    drain: bool = False,
    **mapping: Any,
) -> Followed:
    """Follow topics: their messages become records of `kind`. Runs until the end of the topics with
    `drain`, else for ever; use `follower` for one that can be stopped.

    `mapping`: the fields of a message, see `MessageMapping`. `name`: of the stream in this store;
    default: `kafka:` with its topics. `group`: whose members share the topics; default: one of this
    store's own for each stream. `options`: of librdkafka, such as `security.protocol`. `most_failed`: messages that may be set aside before it raises an error.
    """
    made = follower(
        ev, url, topic=topic, kind=kind, group=group, name=name, options=options, batch=batch,
        most_failed=most_failed, **mapping,
    )  # fmt: skip
    return made.run(drain=drain)


def follower(
    ev: Evervec,
    url: str,
    *,
    topic: str | Iterable[str],
    kind: str,
    group: str | None = None,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
    batch: int | None = None,
    most_failed: int = MOST_FAILED,
    **mapping: Any,
) -> Follower:
    """A follower of topics: `run` it, and `stop` it from another thread."""
    topics = [topic] if isinstance(topic, str) else sorted(set(topic))
    if not topics or not all(topics) or group == "":
        raise InvalidArgument("Kafka needs at least one topic, and a group")
    config = {**_DEFAULTS, **_config(url), **(options or {})}
    if taken := sorted(_OURS.keys() & config.keys()):
        raise InvalidArgument(f"{taken[0]} cannot be set: offsets are committed with the records")
    name = name or f"kafka:{','.join(topics)}"

    def source() -> KafkaSource:
        member_of = {"group.id": group or ev.streams.reader(name)}
        return KafkaSource({**config, **_OURS, **member_of}, topics)

    return Follower(
        ev, source, MessageMapping.of(kind, **mapping), name, batch=batch, most_failed=most_failed
    )


def _config(url: str) -> dict[str, Any]:
    """The brokers of a URL, and how to log in."""
    parts = urlsplit(url)
    hosts = parts.netloc.rpartition("@")[2]
    if parts.scheme != "kafka" or not hosts or parts.path not in ("", "/"):
        raise InvalidArgument(f"{parts.scheme}:… is not of the form kafka://host:port,host:port")
    config: dict[str, Any] = {"bootstrap.servers": hosts}
    if parts.username:
        config |= {
            "sasl.username": unquote(parts.username),
            "sasl.password": unquote(parts.password or ""),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
        }
    return config


class KafkaSource:
    """Topics as a member of a consumer group reads them."""

    def __init__(self, config: Mapping[str, Any], topics: Sequence[str]) -> None:
        self._complain = Complaints("Kafka")
        kafka = self._kafka = load_package("confluent_kafka", "Kafka", "evervec[kafka]")
        self._positions: dict[_Part, tuple[int, datetime | None]] = {}
        """of the last committed message of each assigned partition; -1: none"""
        self._ended: set[_Part] = set()
        self._joined = self._paused = False
        self._early: list[Message] = []
        """messages that came while others waited for the store"""
        self._topics = frozenset(topics)
        self._went_back = False
        """a partition began again at an earlier offset than was committed"""
        try:
            self._consumer = kafka.Consumer({**config, "error_cb": self._complain})
            self._consumer.subscribe(
                list(topics), on_assign=self._assigned, on_revoke=self._revoked,
                on_lost=self._revoked,
            )  # fmt: skip
        except (kafka.KafkaException, ValueError, TypeError) as error:
            raise InvalidArgument(f"Kafka's client rejected its options: {error}") from None

    # membership
    def _assigned(self, consumer: Any, partitions: Sequence[Any]) -> None:
        self._joined = True
        known = partitions
        if partitions:
            try:
                known = consumer.committed(partitions, _CONNECT_SECONDS)
            except self._kafka.KafkaException as error:
                log.warning("Kafka did not say what is committed: %s", error)
        for part in known:
            self._positions[part.topic, part.partition] = (max(part.offset, 0) - 1, None)
        names = ", ".join(sorted(f"{p.topic}/{p.partition}" for p in partitions)) or "none"
        log.info("Kafka assigned partitions: %s", names)

    def _revoked(self, consumer: Any, partitions: Sequence[Any]) -> None:
        for part in partitions:
            place = (part.topic, part.partition)
            self._positions.pop(place, None)
            self._ended.discard(place)
        # their next follower gets these again
        self._early = [m for m in self._early if _place(m) in self._positions]

    # messages
    def fetch(self, most: int, seconds: float) -> list[Message]:
        if self._paused and (parts := self._consumer.assignment()):
            self._consumer.resume(parts)
        self._paused = False
        found, self._early = self._early, []
        size = sum(len(m.value or b"") for m in found)
        wait = 0.0 if found else seconds
        while len(found) < most and size < _BATCH_BYTES:
            # the first alone, so that it does not wait for others
            count = min(_AT_ONCE, most - len(found)) if found else 1
            taken = self._consumer.consume(count, wait)
            messages = self._messages(taken)
            found += messages
            size += sum(len(m.value or b"") for m in messages)
            if not taken:
                break
            wait = 0.0
        return found

    def _messages(self, taken: Iterable[Any]) -> list[Message]:
        found = []
        for message in taken:
            place = (message.topic(), message.partition())
            if (error := message.error()) is None:
                self._ended.discard(place)
                position, _ = self._positions.get(place, (-1, None))
                self._went_back = self._went_back or message.offset() <= position
                found.append(_message(message))
            elif error.code() == self._kafka.KafkaError._PARTITION_EOF:
                self._ended.add(place)
            else:
                self._check(error)
        return found

    def _check(self, error: Any) -> None:
        """Raise an error that does not pass; the client retries the others itself."""
        codes = self._kafka.KafkaError
        denied = {
            codes.TOPIC_AUTHORIZATION_FAILED, codes.GROUP_AUTHORIZATION_FAILED,
            codes.CLUSTER_AUTHORIZATION_FAILED, codes.SASL_AUTHENTICATION_FAILED,
        }  # fmt: skip
        if error.fatal() or error.code() in denied:
            raise EvervecError(f"Kafka refuses to be followed: {error}")
        self._complain(error)

    def commit(self, messages: Sequence[Message]) -> None:
        last: dict[_Part, Message] = {}
        for message in messages:
            place = _place(message)
            # a partition that was revoked meanwhile is repeated by its next follower
            if place in self._positions and (
                place not in last or last[place].position < message.position
            ):
                last[place] = message
        if not last:
            return
        offsets = [
            self._kafka.TopicPartition(topic, partition, message.position + 1)
            for (topic, partition), message in last.items()
        ]
        try:
            for part in self._consumer.commit(offsets=offsets, asynchronous=False):
                if part.error is not None:
                    self._check(part.error)
        except self._kafka.KafkaException as error:
            self._check(error.args[0])  # the messages are repeated, which is harmless
        for place, message in last.items():
            if place in self._positions:
                self._positions[place] = (message.position, message.sent_at)

    def hold(self, messages: Sequence[Message]) -> None:
        """Poll, which the group needs as a sign of life, with all partitions paused."""
        if parts := self._consumer.assignment():
            self._consumer.pause(parts)
        self._paused = True
        self._early += self._messages(self._consumer.consume(_AT_ONCE, 0.0))

    # progress
    def progress(self) -> list[StreamProgress]:
        found = []
        limits = self._limits()
        for (topic, partition), (position, sent) in list(self._positions.items()):
            if (topic, partition) in limits:
                low, high = limits[topic, partition]
                lag = max(0, high - max(position + 1, low))
                found.append(StreamProgress(f"{topic}/{partition}", position, lag, sent))
        return found

    def _limits(self) -> dict[_Part, tuple[int, int]]:
        """The first offset of each partition, and that behind its last message."""
        known = {}
        for place in self._positions:
            part = self._kafka.TopicPartition(*place)
            known[place] = self._consumer.get_watermark_offsets(part, cached=True) or (-1, -1)
        # what the client has kept comes with messages, so not while partitions are paused
        asked = [place for place, (_, high) in known.items() if self._paused or high < 0]
        if asked:
            first = self._offsets(asked, self._kafka.OFFSET_BEGINNING)
            behind = self._offsets(asked, self._kafka.OFFSET_END)
            known |= {
                place: (first[place], behind[place]) for place in first.keys() & behind.keys()
            }
        return {place: limits for place, limits in known.items() if limits[1] >= 0}

    def _offsets(self, places: Iterable[_Part], which: int) -> dict[_Part, int]:
        """An offset of each partition that exists, which the brokers are asked for."""
        parts = [self._kafka.TopicPartition(*place, which) for place in places]
        try:
            found = self._consumer.offsets_for_times(parts, _ASK_SECONDS)
        except self._kafka.KafkaException as error:
            raise SourceUnavailable(str(error)) from error
        return {(p.topic, p.partition): p.offset for p in found if p.error is None}

    # which stream it is
    def identity(self) -> str:
        return ""  # an id of a topic is not told to consumers

    def is_behind(self, positions: Mapping[str, int]) -> bool:
        if self._went_back:
            return True
        known = {_place_named(part): position for part, position in positions.items()}
        known = {place: at for place, at in known.items() if place[0] in self._topics and at >= 0}
        ends = self._offsets(known, self._kafka.OFFSET_END) if known else {}
        return any(0 <= end <= known[place] for place, end in ends.items())

    def is_drained(self) -> bool:
        return self._joined and not self._early and self._positions.keys() <= self._ended

    def close(self) -> None:
        self._consumer.close()


def _message(message: Any) -> Message:
    kind, milliseconds = message.timestamp()
    headers = {
        name: (value or b"").decode("utf-8", "replace") for name, value in message.headers() or ()
    }
    part = f"{message.topic()}/{message.partition()}"
    return Message(
        part, message.offset(), message.key(), message.value(), headers,
        _time(milliseconds) if kind else None, (message.topic(), message.partition()),
    )  # fmt: skip


def _time(milliseconds: int) -> datetime | None:
    """When a message was sent; None if its producer gave another unit, or no time at all."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC) if 0 < milliseconds < _LATEST else None


def _place_named(part: str) -> _Part:
    topic, _, partition = part.rpartition("/")
    return topic, int(partition)


def _place(message: Message) -> _Part:
    place: _Part = message.origin
    return place
