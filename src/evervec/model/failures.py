"""Failures that are alike: their messages differ only in numbers, ids, quoted texts and paths."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache

LONGEST_MESSAGE = 300
LONGEST_EXAMPLE = 2000
_LONGEST_READ = 600
"""characters of an error that are compared with others; the rest tells nothing more"""
SPARK_SECONDS, SPARKS = 600, 144
"""the length of the buckets in which failures are counted over time, and how many are kept: a day"""
MOST_OPEN = 1000
"""dead letters of a group that are counted"""

# each takes a number of steps that is linear in the text: see tests/unit/test_linear_patterns.py
_VARYING = (
    (re.compile(r"(?<!\w)'[^']*'|\"[^\"]*\"|`[^`]*`|“[^”]*”"), "'…'"),
    (re.compile(r"\b[A-Za-z]{1,12}://\S+"), "URL"),
    (re.compile(r"\b[\w.+-]{1,64}@[\w.-]+"), "ADDRESS"),
    (re.compile(r"(?:\b[A-Za-z]:)?(?<![\w.])[\\/][\w.-]+(?:[\\/][\w.-]*)+"), "PATH"),
    (re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "ID"),
    (re.compile(r"\b[0-9a-fA-F]{8,}\b"), "HEX"),
    # not the numbers that name an error or an encoding
    (
        re.compile(
            r"(?<!HTTP )(?<!status )(?<!Errno )(?<!UTF-)(?<!utf-)\b(?!(?:utf|UTF)(?:8|16|32)\b)"
            r"(?!(?:(?<=answered )|(?<=answers )|(?<=code )|(?<=code: ))[1-5]\d\d\b)"
            r"[^\W\d]*\d\w*(?:[.,:]\d\w*)*"
        ),
        "N",
    ),
)


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failures of one kind and model whose messages are alike."""

    fingerprint: str
    """the same for failures that are alike"""
    tenant: str
    kind: str
    model: str
    """the embedding version for which they failed"""
    message: str
    """what their messages have in common, in one line"""
    example: str
    """the latest message, as it was"""
    job_id: int
    """the job whose message that is; it may be gone since"""
    first_seen: datetime
    """when it failed first"""
    last_seen: datetime
    """when it failed last"""
    failed: int
    """jobs that became dead letters"""
    retried: int
    """attempts that failed and are tried again"""
    open: int = 0
    """its dead letters now; at most 1,000 are counted"""
    recent: tuple[int, ...] = ()
    """how often it failed in each ten minutes of the last day, the earliest first"""
    dismissed_at: datetime | None = None
    """when it was dismissed; it is shown again once it fails after that"""

    @property
    def title(self) -> str:
        """The latest message in one line, with its numbers and names."""
        return " ".join(_first_line(self.example).split())[:LONGEST_MESSAGE] or self.message


@dataclass(slots=True)
class FailureCounts:
    """What was counted of a group since the last flush."""

    kind: str
    model: str
    message: str
    example: str
    job_id: int
    first_seen: float
    last_seen: float
    failed: int = 0
    retried: int = 0
    times: dict[int, int] = field(default_factory=dict)
    """failures by the beginning of their bucket"""

    def count(self, now: float, failed: bool, times: int = 1) -> None:
        self.failed += times if failed else 0
        self.retried += 0 if failed else times
        began = int(now) // SPARK_SECONDS * SPARK_SECONDS
        self.times[began] = self.times.get(began, 0) + times

    def add(self, later: FailureCounts) -> None:
        """Add what was counted after this."""
        self.example, self.job_id, self.last_seen = later.example, later.job_id, later.last_seen
        self.failed += later.failed
        self.retried += later.retried
        for began, times in later.times.items():
            self.times[began] = self.times.get(began, 0) + times


def common_message(error: str) -> str:
    """What an error has in common with errors like it: its first line without numbers, ids, quoted
    texts and paths."""
    text = _first_line(error[:_LONGEST_READ])
    for pattern, placeholder in _VARYING:
        text = pattern.sub(placeholder, text)
    return " ".join(text.split())[:LONGEST_MESSAGE]


def _first_line(text: str) -> str:
    return next((line for line in text.split("\n") if line.strip()), "")


def reasons_of(groups: Iterable[FailureGroup]) -> list[list[FailureGroup]]:
    """The groups of each message, whatever their tenants, kinds and models: those with the most
    dead letters first, the latest message first in each."""
    alike: dict[str, list[FailureGroup]] = {}
    for group in sorted(groups, key=lambda group: group.last_seen, reverse=True):
        alike.setdefault(group.message, []).append(group)
    return sorted(alike.values(), key=lambda found: -sum(group.open for group in found))


@lru_cache(maxsize=1024)
def fingerprint(kind: str, model: str, error: str) -> str:
    """The same for errors that are alike, of the same kind and model."""
    words = "\0".join((kind, model, common_message(error)))
    return hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()[:16]
