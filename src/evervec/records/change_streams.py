"""The change streams that a tenant follows: what followers need of the store, and operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from secrets import token_hex

from evervec.errors import EvervecError
from evervec.model.bounds import check_limit
from evervec.model.jobs import Ticket
from evervec.model.streams import FailedMessage, Stream, StreamProgress, StreamState
from evervec.records.drafts import check_name
from evervec.records.writer import save_each
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.stores.notes import STREAM_EPOCH, STREAM_PAUSE, STREAM_READER, NoteKey, StreamPause
from evervec.stores.values import Draft
from evervec.tables.tables import Tables


@dataclass(eq=False, repr=False)
class ChangeStreams:
    """The change streams of one tenant: `ev.streams`."""

    _store: Store
    _settings: Settings
    _tenant: str
    _tables: Tables

    # what was set aside
    def states(self) -> list[StreamState]:
        """The followed streams by name: how far each is, and how many messages are set aside."""
        return self._store.streams.states(self._tenant)

    def failed(
        self, name: str | None = None, *, after: int = 0, limit: int = 100
    ) -> list[FailedMessage]:
        """The messages that are set aside, of one stream or of all, by their number; `after`: only
        those with a higher one."""
        return self._store.streams.failed(self._tenant, name, after, check_limit(limit))

    def discard(self, numbers: Iterable[int]) -> int:
        """Drop set-aside messages by their numbers; returns how many there were."""
        return self._store.streams.discard(self._tenant, [*numbers])

    def forget(self, name: str) -> bool:
        """Remove a stream that is no longer followed, with its set-aside messages; its records
        stay. If it is followed again, the positions of its messages count as newer than all
        before, so that a stream that was created again can be followed, and it is read from its
        beginning, unless its group or consumer is given. False: there is none of this name."""
        stream = self.find(name)
        if stream is None:
            return False
        self._begin_epoch(stream.kind)  # first: a crash in between only begins one epoch more
        gone = self._store.streams.forget(self._tenant, name)
        for note in (self._pause_note(name), self._reader_note(name)):
            note.put(self._store.shared, None)
        return gone

    def reader(self, name: str) -> str:
        """The group or consumer by which followers of a stream share it, if none is given. It belongs
        to this store and this stream alone: one that others use too would leave messages to them.
        It is made when it is first asked for."""
        note, shared = self._reader_note(name), self._store.shared
        while True:
            known, revision = note.read(shared)
            if known is not None:
                return known
            note.swap(shared, f"evervec-{token_hex(4)}", revision)

    def _reader_note(self, name: str) -> NoteKey[str]:
        return STREAM_READER.of(name, self._tenant)

    def epoch(self, kind: str) -> int:
        """How often a stream of the kind was forgotten."""
        return self._epoch_note(kind).get(self._store.shared) or 0

    def _begin_epoch(self, kind: str) -> None:
        note = self._epoch_note(kind)
        while True:
            epoch, revision = note.read(self._store.shared)
            if note.swap(self._store.shared, (epoch or 0) + 1, revision):
                return

    def _epoch_note(self, kind: str) -> NoteKey[int]:
        return STREAM_EPOCH.of(kind, self._tenant)

    # following
    def find(self, name: str) -> Stream | None:
        """A stream as it is followed; None if it is not."""
        return self._store.streams.find(self._tenant, name)

    def follow(self, name: str, kind: str, definition: str) -> None:
        """Save a stream, or its new definition. From now on deletes in its kind keep their
        versions."""
        check_name("kind", kind)
        check_name("name", name)
        self._store.streams.follow(Stream(self._tenant, name, kind, definition))

    def report(self, name: str, parts: Sequence[StreamProgress]) -> None:
        """Save how far parts of a stream are."""
        self._store.streams.report(self._tenant, name, parts)

    def pause(self, name: str, reason: str) -> None:
        """Save why followers of a stream wait, for the alert; an empty reason: they ended at the
        end of the stream, and none needs to follow it. `resume` ends it."""
        note, shared = self._pause_note(name), self._store.shared
        known = note.get(shared)
        if known is None or bool(known.reason) != bool(reason):
            note.put(shared, StreamPause(self._store.now(), reason))

    def resume(self, name: str) -> None:
        """A follower reads the stream."""
        self._pause_note(name).put(self._store.shared, None)

    def _pause_note(self, name: str) -> NoteKey[StreamPause]:
        return STREAM_PAUSE.of(name, self._tenant)

    def set_aside(self, messages: Sequence[FailedMessage]) -> None:
        """Keep messages that cannot become records, durably; one that is kept already is replaced."""
        self._store.streams.set_aside(self._tenant, messages)

    def count_failed(self, name: str, most: int) -> int:
        """How many messages of a stream are set aside, counted up to `most`."""
        return self._store.streams.count_failed(self._tenant, name, most)

    # changes
    def check_writable(self, kind: str) -> None:
        """Raise `InvalidArgument` for a kind whose records are the rows of an attached table."""
        self._tables.check_writable(kind)

    def save(self, kind: str, drafts: Sequence[Draft]) -> list[Ticket | EvervecError]:
        """Save drafts (of `ev.draft`) in order: for each its ticket, or the error that refused it.
        One that is refused does not stop the others. When it returns, what has a ticket is
        durable."""
        self._tables.check_writable(kind)
        most, found = self._settings.add_batch, list[Ticket | EvervecError]()
        for start in range(0, len(drafts), most):
            some = drafts[start : start + most]
            found += save_each(self._store.changes, self._tenant, kind, some)
        return found

    def delete(self, kind: str, versions: Mapping[str, int]) -> list[Ticket]:
        """Delete records by their ids, each only if its version is older than the given one. A
        record that does not exist keeps the version of its delete too."""
        self._tables.check_writable(kind)
        ids, most, found = [*versions], self._settings.add_batch, list[Ticket]()
        for start in range(0, len(ids), most):
            some = ids[start : start + most]
            found += self._store.changes.delete(
                self._tenant, kind, some, versions={id: versions[id] for id in some}
            )
        return found
