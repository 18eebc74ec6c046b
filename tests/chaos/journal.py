"""What an application noted of its own writes, on disk before and after each of them.

A write is noted before it is tried, and again when it was acknowledged, refused or taken back. A
write without an answer may have been done or not: its process was killed, or its connection lost.
Which it is can be told afterwards by reading the record, because nobody changes it any more.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evervec import Evervec, Ticket
from support.oracle import Key, Oracle, Wanted, shortened

_LATE = 2.0
"""seconds after a process is gone in which its server may still commit what it asked for"""


class Journal:
    """The file of one process. Each line is on disk when its method returns."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._count = 0

    def _line(self, **facts: Any) -> None:
        os.write(self._file, json.dumps({"at": time.time(), **facts}).encode() + b"\n")
        os.fsync(self._file)

    def intend(self, key: Key, text: str | None, **how: Any) -> str:
        """A write that is about to be tried; None: a delete. What it is called from now on."""
        self._count += 1
        name = f"{os.getpid()}-{self._count}"
        self._line(intend=name, key=key, text=text, how=how)
        return name

    def acknowledged(self, name: str, ticket: Ticket) -> None:
        self._line(ack=name, job_id=ticket.job_id, seq=ticket.seq, accepted=ticket.accepted)

    def taken_back(self, name: str) -> None:
        """Its transaction was rolled back."""
        self._line(undone=name)

    def unknown(self, names: Iterable[str], error: BaseException) -> None:
        """An error came in place of an answer."""
        for name in names:
            self._line(unknown=name, error=repr(error))

    def wrong(self, key: Key, what: str) -> None:
        """Something that must not be was seen."""
        self._line(wrong=what, key=key)

    def note(self, what: str) -> None:
        self._line(note=what)

    def gone(self) -> None:
        """By whoever killed the process: what has no answer now never gets one."""
        self._line(gone=True)


@dataclass
class Write:
    """One write and what became of it."""

    key: Key
    text: str | None
    how: Mapping[str, Any]
    begun: float
    ended: float = float("inf")
    state: str = "unknown"
    ticket: Ticket | None = None

    @property
    def wanted(self) -> Wanted | None:
        if self.text is None:
            return None
        return Wanted(self.text, self.how.get("metadata") or {})

    def __str__(self) -> str:
        what = "delete" if self.text is None else f"add {shortened(self.text)} {dict(self.how)}"
        seq = f" seq {self.ticket.seq}" if self.ticket else ""
        return f"{self.begun:.3f} {what}: {self.state}{seq} by {self.ended:.3f}"


@dataclass
class Writes:
    """All writes of all processes."""

    by_key: dict[Key, list[Write]] = field(default_factory=dict)
    wrong: list[tuple[Key, str]] = field(default_factory=list)
    notes: list[tuple[float, str]] = field(default_factory=list)

    @property
    def acknowledged(self) -> int:
        return sum(write.state == "acknowledged" for write in self)

    @property
    def unknown(self) -> int:
        return sum(write.state == "unknown" for write in self)

    def __iter__(self) -> Iterator[Write]:
        for writes in self.by_key.values():
            yield from writes

    @classmethod
    def read(cls, paths: Iterable[Path]) -> "Writes":
        found = cls()
        for path in paths:
            found._read(path)
        for writes in found.by_key.values():
            writes.sort(key=lambda write: write.begun)
        return found

    def _read(self, path: Path) -> None:
        under_way: dict[str, Write] = {}
        for line in path.read_bytes().splitlines():
            facts = json.loads(line)
            at = facts["at"]
            if "intend" in facts:
                key = Key(*facts["key"])
                write = Write(key, facts["text"], facts["how"], at)
                under_way[facts["intend"]] = write
                self.by_key.setdefault(key, []).append(write)
            elif "ack" in facts:
                write = under_way.pop(facts["ack"])
                write.ended, write.state = at, "acknowledged"
                write.ticket = Ticket(
                    write.key.kind, write.key.id, facts["job_id"], facts["seq"], facts["accepted"]
                )
            elif "undone" in facts:
                write = under_way.pop(facts["undone"])
                write.ended, write.state = at, "taken back"
            elif "unknown" in facts:
                under_way.pop(facts["unknown"]).ended = at
            elif "gone" in facts:
                for write in under_way.values():
                    write.ended = at
                under_way.clear()
            elif "wrong" in facts:
                self.wrong.append((Key(*facts["key"]), facts["wrong"]))
            else:
                self.notes.append((at, facts["note"]))

    def tell(self, oracle: Oracle, ev: Evervec) -> None:
        """What there is to be, in a store where nothing is left to do."""
        for key, writes in self.by_key.items():
            answered = [w for w in writes if w.ticket is not None and w.ticket.accepted]
            answered.sort(key=lambda w: (w.ticket.seq if w.ticket else 0, w.begun))
            for write in answered:
                assert write.ticket is not None
                if write.text is None:
                    oracle.deleted(key, write.ticket)
                else:
                    oracle.wrote(key, write.text, write.ticket, **write.how)
            self._resolve(key, answered, oracle, ev)
            for write in writes:
                oracle.note(key, str(write))
        for key, what in self.wrong:
            oracle.blame(key, what, "stale")

    def _resolve(self, key: Key, answered: list[Write], oracle: Oracle, ev: Evervec) -> None:
        """A write without an answer counts if it may have been the last one and the record is as
        it says."""
        last = answered[-1] if answered else None
        possible = [
            w
            for w in self.by_key[key]
            if w.state == "unknown" and (last is None or w.ended + _LATE >= last.begun)
        ]
        if not possible:
            return
        got = ev.of(key.tenant).get(key.kind, key.id)
        found = Wanted(got.text, got.metadata) if got else None
        if found == (last.wanted if last else None):
            return
        for write in possible:
            if write.wanted == found:
                oracle.note(key, "read: the write without an answer was done")
                if found is None:
                    oracle.wanted.pop(key, None)
                else:
                    oracle.wanted[key] = found
                return
