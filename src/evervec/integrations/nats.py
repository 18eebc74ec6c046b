"""NATS: follow a stream of JetStream.

Followers of one durable consumer share its messages. A message is acknowledged after its record is
durable. The number of a message in its stream is its version, whatever its subject is.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, TypeVar
from urllib.parse import urlsplit

from evervec.errors import InvalidArgument
from evervec.facade import Evervec
from evervec.integrations.streams.follower import MOST_FAILED, Followed, Follower
from evervec.integrations.streams.mapping import MessageMapping
from evervec.integrations.streams.message import Complaints, Message, SourceUnavailable
from evervec.model.streams import StreamProgress
from evervec.runtime.coroutines import LOOP
from evervec.runtime.packages import load_package

log = logging.getLogger("evervec")

T = TypeVar("T")

_SCHEMES = ("nats", "tls", "ws", "wss")
_CALL_SECONDS = 10.0
_CONNECT_SECONDS = 5.0
_BATCH_BYTES = 16 << 20
"""about so many bytes are fetched at once, by the size of the last messages"""
_FIRST_SIZE = _BATCH_BYTES // 100
_AHEAD = 10
"""batches that the followers of a consumer may have without acknowledging them"""
_GRACE_SECONDS = 0.1
_NO_MESSAGE, _CONFLICT = ("404", "408"), "409"
"""statuses that end a request for messages"""
_REMOVED = ("DEL", "PURGE")
"""operations of a key-value bucket that delete a key"""


def follow(
    ev: Evervec,
    url: str,
    *,
    stream: str,
    kind: str,
    subject: str = ">",
    durable: str | None = None,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
    ack_seconds: float = 60.0,
    batch: int | None = None,
    most_failed: int = MOST_FAILED,
    drain: bool = False,
    **mapping: Any,
) -> Followed:
    """Follow a stream: its messages become records of `kind`. Runs until the end of the stream with
    `drain`, else for ever; use `follower` for one that can be stopped.

    `subject`: only these messages; what its wildcards match is the key of a message. `durable`: the
    consumer, which is created if it does not exist; default: one of this store's own for each
    stream. `ack_seconds`: when a message of a follower that was killed goes to another one.
    `options`: of `nats.connect`, such as `user_credentials`. `mapping`: the fields of a message, see
    `MessageMapping`.
    """
    made = follower(
        ev, url, stream=stream, kind=kind, subject=subject, durable=durable, name=name,
        options=options, ack_seconds=ack_seconds, batch=batch, most_failed=most_failed, **mapping,
    )  # fmt: skip
    return made.run(drain=drain)


def follower(
    ev: Evervec,
    url: str,
    *,
    stream: str,
    kind: str,
    subject: str = ">",
    durable: str | None = None,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
    ack_seconds: float = 60.0,
    batch: int | None = None,
    most_failed: int = MOST_FAILED,
    **mapping: Any,
) -> Follower:
    """A follower of a stream: `run` it, and `stop` it from another thread."""
    if urlsplit(url).scheme not in _SCHEMES or not urlsplit(url).netloc:
        raise InvalidArgument("the URL is not of the form nats://host:port")
    if not (stream and subject) or durable == "":
        raise InvalidArgument("NATS needs a stream, a subject and a durable consumer")
    size = batch or ev.settings.add_batch
    name = name or f"nats:{stream}"

    def source() -> NatsSource:
        consumer = durable or ev.streams.reader(name)
        return NatsSource(
            Consumer(url, stream, subject, consumer, ack_seconds, size * _AHEAD, options or {})
        )

    return Follower(
        ev, source, MessageMapping.of(kind, **mapping), name, batch=size, most_failed=most_failed
    )


class Consumer:
    """A durable consumer of a stream, and where it is."""

    def __init__(
        self, url: str, stream: str, subject: str, durable: str, ack_seconds: float, ahead: int,
        options: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.url, self.stream, self.subject, self.durable = url, stream, subject, durable
        self.ack_seconds, self.ahead, self.options = ack_seconds, ahead, options
        escaped = re.escape(subject).replace(r"\*", "([^.]+)").replace(">", "(.+)")
        self._key = re.compile(escaped)

    def key_of(self, subject: str) -> bytes | None:
        """What the wildcards of the followed subject match; None if it has none."""
        found = self._key.fullmatch(subject)
        return ".".join(found.groups()).encode() if found and found.groups() else None

    def message_of(self, message: Any) -> Message:
        data, headers = message.metadata, dict(message.headers or {})
        removed = headers.get("KV-Operation") in _REMOVED
        value = None if removed or not message.data else message.data
        return Message(
            self.stream, data.sequence.stream, self.key_of(message.subject), value, headers,
            data.timestamp, message,
        )  # fmt: skip


class NatsSource:
    """A stream as one of a consumer's followers reads it."""

    def __init__(self, consumer: Consumer) -> None:
        self._nats = load_package("nats", "NATS", "evervec[nats]")
        self._consumer = consumer
        self._size = _FIRST_SIZE
        LOOP.hold(self)
        try:
            self._connection, self._subscription = self._call(self._subscribe())
        except BaseException as error:
            LOOP.release(self)
            if isinstance(error, ValueError | TypeError) and not isinstance(error, InvalidArgument):
                raise InvalidArgument(f"NATS's client rejected its options: {error}") from None
            raise

    async def _subscribe(self) -> tuple[Any, Any]:
        wanted = self._consumer
        complaints = Complaints("NATS")

        async def complain(error: Exception) -> None:
            complaints(error)

        connection = await asyncio.wait_for(
            self._nats.connect(
                **{
                    "servers": wanted.url, "name": "evervec", "max_reconnect_attempts": -1,
                    "error_cb": complain, **wanted.options,
                }
            ),
            _CONNECT_SECONDS,
        )  # fmt: skip
        try:
            await self._make_consumer(connection.jetstream())
            return connection, await connection.subscribe(connection.new_inbox())
        except self._nats.js.errors.NotFoundError:
            await connection.close()
            raise InvalidArgument(f"the stream {wanted.stream!r} does not exist") from None
        except BaseException:
            await connection.close()
            raise

    async def _make_consumer(self, context: Any) -> None:
        """Create the consumer, or check that it is the wanted one."""
        wanted, api = self._consumer, self._nats.js.api
        try:
            found = (await context.consumer_info(wanted.stream, wanted.durable)).config
        except self._nats.js.errors.NotFoundError:
            config = api.ConsumerConfig(
                durable_name=wanted.durable, filter_subject=wanted.subject,
                ack_policy=api.AckPolicy.EXPLICIT, ack_wait=wanted.ack_seconds,
                max_ack_pending=wanted.ahead,
            )  # fmt: skip
            await context.add_consumer(wanted.stream, config)
            return
        given = found.filter_subjects or [found.filter_subject or ">"]
        if given != [wanted.subject]:
            raise InvalidArgument(
                f"the consumer {wanted.durable!r} gets messages of {', '.join(given)}, not of "
                f"{wanted.subject}: follow these under another --name"
            )

    def _call(self, made: Coroutine[Any, Any, T], seconds: float = 3 * _CALL_SECONDS) -> T:
        future = LOOP.submit(made)
        try:
            return future.result(seconds)
        except (self._nats.errors.Error, FutureTimeout, OSError) as error:
            future.cancel()
            raise SourceUnavailable(str(error) or "NATS does not answer") from error

    # which stream it is
    def identity(self) -> str:
        created = self._stream_info().created
        return created.isoformat() if created else ""

    def is_behind(self, positions: Mapping[str, int]) -> bool:
        position = positions.get(self._consumer.stream, 0)
        return position > 0 and position > self._stream_info().state.last_seq

    def _stream_info(self) -> Any:
        context = self._connection.jetstream()
        return self._call(context.stream_info(self._consumer.stream))

    # messages
    def fetch(self, most: int, seconds: float) -> list[Message]:
        found = self._call(self._fetch(min(most, max(1, _BATCH_BYTES // self._size)), seconds))
        if found:
            self._size = max(1, sum(len(m.value or b"") for m in found) // len(found))
        return found

    async def _fetch(self, most: int, seconds: float) -> list[Message]:
        """What is there; if nothing is, the next message."""
        found = await self._pull(most, seconds, no_wait=True)
        return found or await self._pull(1, seconds, expires=int(seconds * 1e9))

    async def _pull(self, most: int, seconds: float, **terms: Any) -> list[Message]:
        """Messages that the server gives for one request, in its own protocol: the client's `fetch`
        takes a message with a header `Status` for a status of the server."""
        wanted, inbox = self._consumer, self._subscription.subject
        request = json.dumps({"batch": most, **terms}).encode()
        await self._connection.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{wanted.stream}.{wanted.durable}", request, inbox
        )
        found: list[Message] = []
        while len(found) < most:
            try:
                message = await self._subscription.next_msg(seconds + _GRACE_SECONDS)
            except self._nats.errors.TimeoutError:  # also a timeout of asyncio
                break
            if not message.reply:  # there is nothing to acknowledge: it is a status
                await self._check((message.headers or {}).get("Status"), seconds)
                break
            found.append(wanted.message_of(message))
        return found

    async def _check(self, status: str | None, seconds: float) -> None:
        if status == _CONFLICT:  # such as too many messages that are not acknowledged
            await asyncio.sleep(seconds)
        elif status not in _NO_MESSAGE:
            raise SourceUnavailable(f"NATS does not give messages: status {status}")

    def commit(self, messages: Sequence[Message]) -> None:
        try:
            self._call(self._acknowledge(messages))
        except SourceUnavailable as error:  # the messages are repeated, which is harmless
            log.warning("NATS: messages could not be acknowledged: %s", error)

    async def _acknowledge(self, messages: Sequence[Message]) -> None:
        for message in messages:
            await message.origin.ack()
        await self._connection.flush(_CALL_SECONDS)

    def hold(self, messages: Sequence[Message]) -> None:
        try:
            self._call(self._extend(messages))
        except SourceUnavailable as error:
            log.warning("NATS: messages could not be held: %s", error)

    async def _extend(self, messages: Sequence[Message]) -> None:
        for message in messages:
            await message.origin.in_progress()

    # progress
    def progress(self) -> list[StreamProgress]:
        info = self._info()
        position = info.ack_floor.stream_seq if info.ack_floor else 0
        lag = (info.num_pending or 0) + (info.num_ack_pending or 0)
        return [StreamProgress(self._consumer.stream, position, lag)]

    def is_drained(self) -> bool:
        info = self._info()
        return not info.num_pending and not info.num_ack_pending

    def _info(self) -> Any:
        context, wanted = self._connection.jetstream(), self._consumer
        return self._call(context.consumer_info(wanted.stream, wanted.durable))

    def close(self) -> None:
        try:
            self._call(self._connection.close())
        except SourceUnavailable as error:
            log.warning("NATS: the connection was not closed: %s", error)
        finally:
            LOOP.release(self)
