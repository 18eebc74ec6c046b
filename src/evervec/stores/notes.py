"""The notes of a store: the name of each, and the type of its value.

A note is a small value that all processes of a store share. It is changed by compare-and-set: `read`
returns its value with a revision, and `swap` writes only if the revision is still the same. Notes of
versions are named by the version's number, those of kinds and providers by their names.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Generic, Protocol, TypeVar

from evervec.model.reports import Gate
from evervec.stores.values import Note

T = TypeVar("T")


class Notes(Protocol):
    """The part of a store that keeps notes."""

    def note(self, name: str) -> Note | None: ...
    def put_note(self, name: str, value: str | None, revision: int | None) -> bool: ...


@dataclass(frozen=True, slots=True)
class NoteKey(Generic[T]):
    """The name of a note, and how its value is read from text and written as text."""

    name: str
    parse: Callable[[str], T]
    write: Callable[[T], str]

    def read(self, notes: Notes) -> tuple[T | None, int | None]:
        """The value and its revision, for `swap`; both None if there is no such note."""
        note = notes.note(self.name)
        return (self.parse(note.value), note.revision) if note else (None, None)

    def get(self, notes: Notes) -> T | None:
        return self.read(notes)[0]

    def swap(self, notes: Notes, value: T | None, revision: int | None) -> bool:
        """Set the note, or delete it with None. False: another process changed it since it was
        read; nothing is changed."""
        return notes.put_note(self.name, None if value is None else self.write(value), revision)

    def put(self, notes: Notes, value: T | None) -> None:
        """Set the note, or delete it with None, whatever it is now."""
        while True:
            now, revision = self.read(notes)
            if now == value or self.swap(notes, value, revision):
                return


# of a version


def filled(version: int) -> NoteKey[float]:
    """The last record that was checked while the version is filled; infinite: all are enqueued."""
    return NoteKey(
        f"filled {version}",
        lambda text: math.inf if text == "all" else int(text),
        lambda upto: "all" if upto == math.inf else str(int(upto)),
    )


def retired(version: int) -> NoteKey[float]:
    """When the version was retired."""
    return NoteKey(f"retired {version}", float, repr)


def backfilled(version: int) -> NoteKey[int]:
    """The change of chunker up to which the version's records were backfilled."""
    return NoteKey(f"backfilled {version}", int, str)


def unaware(version: int, state: str) -> NoteKey[set[str]]:
    """The open transactions that may not see that the version is in this state."""
    return NoteKey(
        f"unaware that {version} is {state}",
        lambda text: set(text.split("|")),
        lambda transactions: "|".join(sorted(transactions)),
    )


def forget_version(store: Notes, version: int) -> None:
    """Delete the notes that a migration made of a version."""
    for key in (filled(version), retired(version), backfilled(version)):
        key.put(store, None)


def switch_to(name: str) -> NoteKey[str]:
    """Set while the version of this name is to serve as soon as it is complete."""
    return NoteKey(f"switch to {name}", str, str)


# of a kind


def template(kind: str) -> NoteKey[str]:
    """The fingerprint of the template with which the kind's records were last rendered."""
    return NoteKey(f"template {kind}", str, str)


def kept(kind: str) -> NoteKey[int]:
    """The last record that was kept when the kind's table was detached."""
    return NoteKey(f"kept {kind}", int, str)


# of a provider


def gate(provider: str) -> NoteKey[Gate]:
    """Why the provider is paused for all workers."""
    return NoteKey(
        f"gate {provider}",
        lambda text: Gate(**json.loads(text)),
        lambda gate: json.dumps(asdict(gate)),
    )


SentInSecond = tuple[float, int, int]
"""the latest time within a second, and the requests and tokens that were sent in that second"""


def budget(provider: str) -> NoteKey[list[SentInSecond]]:
    """What was sent to the provider in the last minute, second by second."""
    return NoteKey(
        f"budget {provider}",
        lambda text: [(time, requests, tokens) for time, requests, tokens in json.loads(text)],
        json.dumps,
    )


# of the index


@dataclass(frozen=True, slots=True)
class Location:
    """Which index holds the store's vectors."""

    url: str
    """without secrets; for a folder the whole path"""
    generation: int = 0
    """changes when vectors are made for another index: writers of the previous one must stop"""
    rebuild: bool = False
    """the ledger still has entries of the previous index"""


INDEX: NoteKey[Location] = NoteKey(
    "index",
    lambda text: Location(**json.loads(text)),
    lambda location: json.dumps(asdict(location)),
)


def head(table: str) -> NoteKey[int]:
    """The current version of a LanceDB table."""
    return NoteKey(f"head of {table}", int, str)


# of the store


JOBLESS: NoteKey[int] = NoteKey("records without jobs", int, str)
"""The lowest number of the records whose dead letters were purged since a worker last checked for
them."""


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


ALERTS: NoteKey[list[Episode]] = NoteKey(
    "alerts",
    lambda text: [Episode(**episode) for episode in json.loads(text)],
    lambda episodes: json.dumps([asdict(episode) for episode in episodes]),
)
