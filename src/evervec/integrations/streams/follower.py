"""Reads a change stream, saves its changes, and then commits their positions.

A position is committed only when its record, its delete or its set-aside message is durable. So a
follower that is killed at any point repeats messages, and loses none. Versions make repetition and
reordering harmless.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from evervec.errors import (
    EvervecError,
    InvalidArgument,
    QuotaExceeded,
    StoreClosed,
    StoreError,
)
from evervec.facade import Evervec
from evervec.integrations.streams.mapping import MessageMapping
from evervec.integrations.streams.message import Message, Source, SourceUnavailable
from evervec.integrations.streams.registration import (
    Registration,
    admit,
    check_replaceable,
    register,
)
from evervec.model.jobs import Ticket
from evervec.model.streams import FailedMessage
from evervec.records.drafts import check_name
from evervec.runtime.backoff import backoff
from evervec.stores.values import Draft

log = logging.getLogger("evervec")

MOST_FAILED = 10_000
"""messages that may be set aside before a follower stops: then rather the mapping is wrong"""
_POLL_SECONDS = 0.5
_REPORT_SECONDS = 1.0
_IDLE_REPORT_SECONDS = 10.0
_LONGEST_WAIT = 30.0


@dataclass(slots=True)
class Followed:
    """What a follower has done."""

    messages: int = 0
    saved: int = 0
    deleted: int = 0
    stale: int = 0
    """changes that were not newer than the record, such as repeated ones"""
    failed: int = 0
    """messages that were set aside"""

    def add(self, other: Followed) -> None:
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class _Stopped(Exception):
    """The follower is to stop while messages wait for the store: they are not committed."""


class ChangeWriter:
    """Saves the changes of a stream's messages."""

    def __init__(self, ev: Evervec, mapping: MessageMapping, name: str) -> None:
        self._ev = ev
        self._mapping = mapping
        self._name = name

    def save(self, messages: Sequence[Message]) -> tuple[Followed, list[FailedMessage]]:
        """Save what messages say. When it returns, all of it is durable, except for the messages
        that it returns, which cannot become records. It may be repeated."""
        done = Followed(messages=len(messages))
        failed: list[FailedMessage] = []
        drafts: list[tuple[Message, Draft]] = []
        deletes: dict[str, int] = {}
        for message in messages:
            try:
                change = self._mapping.read(message)
                draft = change and self._mapping.draft(self._ev, change)
            except (StoreError, MemoryError):  # not the message's fault
                raise
            except Exception as error:  # noqa: BLE001 - the message's, or a kind's own code for it
                failed.append(self._fail(message, error))
                continue
            if draft is not None:
                drafts.append((message, draft))
            elif change is not None:
                deletes[change.id] = max(change.version, deletes.get(change.id, change.version))
        failed += self._add(drafts, done)
        self._delete({id: deletes[id] for id in sorted(deletes)}, done)
        done.failed = len(failed)
        return done, failed

    def _add(self, drafts: Sequence[tuple[Message, Draft]], done: Followed) -> list[FailedMessage]:
        failed: list[FailedMessage] = []
        saved = self._ev.streams.save(self._mapping.kind, [draft for _, draft in drafts])
        for (message, _), result in zip(drafts, saved, strict=True):
            if isinstance(result, Ticket):
                done.saved += result.accepted
                done.stale += not result.accepted
            elif isinstance(result, QuotaExceeded):
                raise result  # room may be made: the stream waits
            else:
                failed.append(self._fail(message, result))
        return failed

    def _delete(self, versions: dict[str, int], done: Followed) -> None:
        tickets = self._ev.streams.delete(self._mapping.kind, versions)
        accepted = sum(ticket.accepted for ticket in tickets)
        done.deleted += accepted
        done.stale += len(tickets) - accepted

    def _fail(self, message: Message, error: Exception) -> FailedMessage:
        reason = str(error)
        if not isinstance(error, EvervecError):
            reason = f"{type(error).__name__}: {reason}"
        return message.failed(self._name, reason)


class Follower:
    """Follows one stream until it is stopped; several may share a stream's parts."""

    def __init__(
        self,
        ev: Evervec,
        source: Callable[[], Source],
        mapping: MessageMapping,
        name: str,
        *,
        batch: int | None = None,
        most_failed: int = MOST_FAILED,
    ) -> None:
        """`source` opens the stream; `batch`: messages that are saved together."""
        check_name("kind", mapping.kind)
        check_name("name", name)
        if (batch is not None and batch < 1) or most_failed < 0:
            raise InvalidArgument("batch must be at least 1, and most_failed at least 0")
        self._ev = ev
        self._open = source
        self._name = name
        self._batch = batch or ev.settings.add_batch
        self._most_failed = most_failed
        self._mapping = mapping
        self._stopping = threading.Event()
        self._report_at = 0.0
        self._may_be_paused = True
        """whether the store may have it as waiting; an earlier follower may have been killed"""
        self.done = Followed()

    def stop(self) -> None:
        """End `run` after the messages that it has fetched; from any thread or signal handler."""
        self._stopping.set()

    def run(self, *, drain: bool = False) -> Followed:
        """Follow the stream until `stop`; `drain`: until its end is reached. Raises
        `InvalidArgument` if it is another stream than it was."""
        self._ev.streams.check_writable(self._mapping.kind)
        known = register(self._ev, self._name, self._mapping)
        self._mapping = known.mapping
        self._writer = ChangeWriter(self._ev, known.mapping, self._name)
        source = self._opened(known)
        if source is None:
            return self.done
        try:
            self._run(source, drain)
            self._report(source)
            if drain and not self._stopping.is_set():
                self._ev.streams.pause(self._name, "")
        except _Stopped:
            log.warning(
                "%s stopped before the store took its messages: they are repeated", self._name
            )
        finally:
            source.close()
        return self.done

    def _opened(self, known: Registration) -> Source | None:
        """The stream, as soon as it is available; None: the follower is to stop."""
        failures = 0
        while not self._stopping.is_set():
            try:
                return self._admitted(self._open(), known)
            except SourceUnavailable as error:
                failures += 1
                self._wait_for_stream(failures, error)
        return None

    def _admitted(self, source: Source, known: Registration) -> Source:
        try:
            admit(self._ev, self._name, known, source)
        except BaseException:
            source.close()
            raise
        return source

    def _wait_for_stream(self, failures: int, error: SourceUnavailable) -> None:
        log.warning("the stream %s is unavailable: %s", self._name, error)
        self._tell_pause(f"the stream is unavailable: {error}")
        self._stopping.wait(self._pause(failures))

    def _tell_pause(self, reason: str) -> None:
        """Save that the follower waits, if the store can be written to."""
        self._may_be_paused = True
        with suppress(StoreError):
            self._ev.streams.pause(self._name, reason)

    def _tell_progress(self) -> None:
        if self._may_be_paused:
            with suppress(StoreError):
                self._ev.streams.resume(self._name)
                self._may_be_paused = False

    def _run(self, source: Source, drain: bool) -> None:
        failures = 0
        while not self._stopping.is_set():
            try:
                messages = source.fetch(self._batch, _POLL_SECONDS)
                if messages:
                    if source.is_behind({}):
                        check_replaceable(self._name, self._mapping)
                    self._handle(source, messages)
                elif drain and source.is_drained():
                    return
                failures = 0
                self._tell_progress()
            except SourceUnavailable as error:
                failures += 1
                self._wait_for_stream(failures, error)
                continue
            self._report_soon(source, _REPORT_SECONDS if messages else _IDLE_REPORT_SECONDS)

    def _handle(self, source: Source, messages: Sequence[Message]) -> None:
        """Save messages, however often the store is unavailable, then commit them."""
        failures = 0
        while True:
            try:
                done, failed = self._writer.save(messages)
                if failed:
                    self._set_aside(failed)
                break
            except StoreClosed:
                raise
            except (StoreError, QuotaExceeded) as error:
                failures += 1
                log.warning("the stream %s waits for the store: %s", self._name, error)
                self._tell_pause(str(error))
                self._wait(source, messages, self._pause(failures))
        source.commit(messages)
        self.done.add(done)

    def _set_aside(self, failed: Sequence[FailedMessage]) -> None:
        streams = self._ev.streams
        count = streams.count_failed(self._name, self._most_failed + 1)
        if count + len(failed) > self._most_failed:
            raise EvervecError(
                f"{count} messages of the stream {self._name!r} are set aside, and no more than "
                f"{self._most_failed} may be: the last one failed with {failed[-1].reason!r}. Correct "
                "the mapping or the messages, then retry or discard them"
            )
        streams.set_aside(failed)
        for message in failed:
            where = {"stream": self._name, "part": message.part, "position": message.position}
            log.warning(
                "a message of %s was set aside (%s, %d): %s",
                self._name, message.part, message.position, message.reason, extra=where,
            )  # fmt: skip

    def _pause(self, failures: int) -> float:
        settings = self._ev.settings
        longest = min(settings.backoff_cap_seconds, _LONGEST_WAIT)
        return backoff(
            failures, settings.backoff_seconds, longest, settings.backoff_jitter, settings.rng
        )

    def _wait(self, source: Source, messages: Sequence[Message], seconds: float) -> None:
        """Wait for the store; raises `_Stopped`."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._stopping.wait(min(left, 1.0)):
                raise _Stopped
            source.hold(messages)
            self._report_soon(source, _REPORT_SECONDS)

    def _report_soon(self, source: Source, pause: float) -> None:
        """Report if it is time; then again after a pause, or soon if there was nothing to report
        yet."""
        if time.monotonic() >= self._report_at:
            pause = pause if self._report(source) else _REPORT_SECONDS
            self._report_at = time.monotonic() + pause

    def _report(self, source: Source) -> bool:
        """Save how far the stream is; False: the source does not know it yet."""
        try:
            if parts := source.progress():
                self._ev.streams.report(self._name, parts)
            return bool(parts)
        except (StoreError, SourceUnavailable) as error:
            log.warning("the progress of %s is not reported: %s", self._name, error)
            return True
