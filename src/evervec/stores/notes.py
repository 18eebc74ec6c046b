"""The notes of a store: the name of each, and the type of its value.

A note is a small value that all processes of a store share (`store.shared`). It is changed by
compare-and-set: `read` returns its value with a revision, and `swap` writes only if the revision is
still the same. A name with `{}` is that of many notes: `FILLED.of(12)` is the note of version 12.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, Literal, TypeVar

from evervec.model.reports import Gate
from evervec.model.verification import VerifyResult, VerifyRun
from evervec.stores.base import Shared

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NoteKey(Generic[T]):
    """The name of a note, and how its value is read from text and written as text."""

    name: str
    parse: Callable[[str], T]
    write: Callable[[T], str] = str

    def of(self, *parts: object) -> NoteKey[T]:
        """The note of one version, kind or provider."""
        return NoteKey(self.name.format(*parts), self.parse, self.write)

    def read(self, shared: Shared) -> tuple[T | None, int | None]:
        """The value and its revision, for `swap`; both None if there is no such note."""
        note = shared.note(self.name)
        return (self.parse(note.value), note.revision) if note else (None, None)

    def get(self, shared: Shared) -> T | None:
        return self.read(shared)[0]

    def swap(self, shared: Shared, value: T | None, revision: int | None) -> bool:
        """Set the note, or delete it with None. False: another process changed it since it was
        read; nothing is changed."""
        return shared.put_note(self.name, None if value is None else self.write(value), revision)

    def put(self, shared: Shared, value: T | None) -> None:
        """Set the note, or delete it with None, whatever it is now."""
        while True:
            now, revision = self.read(shared)
            if now == value or self.swap(shared, value, revision):
                return


@dataclass(frozen=True, slots=True)
class Location:
    """Which index holds the store's vectors."""

    url: str
    """without secrets; for a folder the whole path"""
    generation: int = 0
    """changes when vectors are made for another index: writers of the previous one must stop"""
    rebuild: bool = False
    """the ledger still has entries of the previous index"""


@dataclass(slots=True)
class Episode:
    """A problem from its beginning to its end."""

    name: str
    text: str
    since: float
    raised: bool = False
    """it lasted long enough for an alert"""
    ended: float | None = None
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    told: int = 0
    """number of messages posted: first the beginning, then the end"""
    taken_until: float = 0.0

    @property
    def untold(self) -> bool:
        return self.raised and self.told < (1 if self.ended is None else 2)


@dataclass(frozen=True, slots=True)
class StreamPause:
    """Why a change stream is not read on."""

    since: float
    reason: str = ""
    """what its followers wait for; empty: they ended at the end of the stream, as they were told"""


FieldType = Literal["text", "number", "boolean"]
"""of a metadata field that an index keeps ready for filters"""

SentInSecond = tuple[float, int, int]
"""the latest time within a second, and the requests and tokens that were sent in that second"""


def _json(value: Any) -> str:
    return json.dumps(asdict(value))


# of a version, by its number or name
FILLED: NoteKey[float] = NoteKey(
    "filled {}",
    lambda text: math.inf if text == "all" else int(text),
    lambda upto: "all" if upto == math.inf else str(int(upto)),
)
"""the last record that was checked while the version is filled; infinite: all are enqueued"""
RETIRED: NoteKey[float] = NoteKey("retired {}", float, repr)
"""when it was retired"""
BACKFILLED: NoteKey[int] = NoteKey("backfilled {}", int)
"""the change of chunker up to which its records were backfilled"""
UNAWARE: NoteKey[set[str]] = NoteKey(
    "unaware that {} is {}", lambda text: set(text.split("|")), lambda ids: "|".join(sorted(ids))
)
"""the open transactions that may not see that the version is in this state"""
SWITCH_TO: NoteKey[str] = NoteKey("switch to {}", str)
"""set while the version of this name is to serve as soon as it is complete"""

# of a kind
TEMPLATE: NoteKey[str] = NoteKey("template {}", str)
"""the fingerprint of the template with which its records were last rendered"""
KEPT: NoteKey[int] = NoteKey("kept {}", int)
"""the last record that was kept when its table was detached"""
INDEX_FIELDS: NoteKey[dict[str, FieldType]] = NoteKey("index fields of {}", json.loads, json.dumps)
"""the metadata fields that an index keeps ready for filters"""
FOLDERS: NoteKey[dict[str, Any]] = NoteKey("folders of {} in {}", json.loads, json.dumps)
"""the folders of which a tenant's records of the kind are files, by name"""

# of a change stream
STREAM_PAUSE: NoteKey[StreamPause] = NoteKey(
    "pause of {} in {}", lambda text: StreamPause(**json.loads(text)), _json
)
"""why it is not read on"""
STREAM_READER: NoteKey[str] = NoteKey("reader of {} in {}", str)
"""the group or consumer by which its followers share it, if none is given"""
STREAM_EPOCH: NoteKey[int] = NoteKey("stream epoch of {} in {}", int)
"""of a kind: how often a stream of it was forgotten, after which positions count as newer ones"""

# of a tenant, or of all tenants together
VERIFY_RUN: NoteKey[VerifyRun] = NoteKey("verification of {}", VerifyRun.load, VerifyRun.dump)
"""the verification that a service runs, or ran last"""
VERIFY_RESULT: NoteKey[VerifyResult] = NoteKey(
    "result of the verification of {}", VerifyResult.load, VerifyResult.dump
)
"""what was found last"""

# of a provider
GATE: NoteKey[Gate] = NoteKey("gate {}", lambda text: Gate(**json.loads(text)), _json)
"""why it is paused for all workers"""
BUDGET: NoteKey[list[SentInSecond]] = NoteKey(
    "budget {}",
    lambda text: [(when, n, tokens) for when, n, tokens in json.loads(text)],
    json.dumps,
)
"""what was sent to it in the last minute, second by second"""

# of the index
INDEX: NoteKey[Location] = NoteKey("index", lambda text: Location(**json.loads(text)), _json)
HEAD: NoteKey[int] = NoteKey("head of {}", int)
"""the current version of a LanceDB table"""

# of the store
JOBLESS: NoteKey[int] = NoteKey("records without jobs", int)
"""the lowest number of the records whose dead letters were purged since a worker last checked"""
ALERTS: NoteKey[list[Episode]] = NoteKey(
    "alerts",
    lambda text: [Episode(**episode) for episode in json.loads(text)],
    lambda episodes: json.dumps([asdict(episode) for episode in episodes]),
)
