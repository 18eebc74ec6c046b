"""What a change does to a record. It is decided here; each engine has its own way to write it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from evervec.model.basics import quick_maker
from evervec.model.jobs import Op, Status, Ticket
from evervec.stores.values import Draft, GivenVectors, Merge

_make_ticket = quick_maker(Ticket)


@dataclass(slots=True)
class Row:
    """A record as it is stored, then as this batch leaves it."""

    id: str
    record: int = 0  # 0: not stored yet
    state: str = ""
    seq: int = 0
    hash: bytes | None = None
    weight: float = 1.0
    created_at: float = 0.0
    updated_at: float = 0.0
    version: int | None = None
    metadata: str = "{}"
    data: str | None = None
    born: int = 0
    job_id: int = 0
    job_status: str | None = None
    debt: str | None = None
    """the status of a job, of any version, that has a row or a box to read"""
    boxed: bool = False
    """a version has a box that would replace the content"""
    ledger_seq: int | None = None
    # what the batch does with it
    draft: Draft | None = None
    given: GivenVectors | None = None
    """vectors that a worker will need"""
    quiet: bool = False
    was_stored: bool = False
    was_live: bool = False
    job_ids: tuple[int, ...] = ()
    """numbers for new jobs, one per version"""
    box_seq: int = 0
    """the seq of the add that filled its job's box; 0: the add is in this batch"""

    @classmethod
    def stored(cls, found: tuple[Any, ...]) -> Row:
        """From a row of `known_records`."""
        row = cls(*found)
        row.job_id = row.job_id or 0
        row.was_stored, row.was_live = True, row.state == "live"
        return row

    def same_as(self, draft: Draft) -> bool:
        """Whether nothing that is searched or embedded differs, and its vectors exist or a job will
        make them."""
        return (
            self.state == "live"
            and self.hash == draft.hash
            and self.metadata == draft.metadata
            and self.weight == draft.weight
            and not self.boxed
            and (
                self.job_status not in (None, Status.FAILED)
                or (self.job_status is None and (self.ledger_seq or -1) >= self.seq)
            )
        )

    def take(self, numbers: Iterator[int], targets: int) -> None:
        """Take a new seq, and numbers for the jobs that the record may need."""
        self.seq = next(numbers)
        fresh = tuple(islice(numbers, targets))
        self.job_ids = self.job_ids or fresh  # two drafts in one batch share a job
        self.job_id = self.job_id or self.job_ids[0]

    @property
    def quiet_values(self) -> tuple[Any, ...]:
        """The parameters of `update_quietly`."""
        return self.created_at, self.updated_at, self.version, self.data, self.record

    @property
    def can_be_deleted(self) -> bool:
        """Whether it is live, or a job may still make it appear."""
        return self.state == "live" or self.debt is not None

    @property
    def has_waiting_debt(self) -> bool:
        """Whether content newer than the record's waits to be read."""
        return self.debt in (Status.PENDING, Status.PROCESSING)

    def shown(self, draft: Draft, now: float, words: tuple[str, str]) -> RecordValues:
        """The record with this draft, visible; `words`: title and text in the form that is indexed
        for full text."""
        created_at, updated_at = self.times(draft, now)
        title_words, text_words = words
        return RecordValues(
            self.record, self.id, "live", self.seq, self.born if self.was_live else self.seq,
            draft.hash, draft.weight, created_at, updated_at, self.version, draft.title,
            draft.metadata, draft.data, draft.text, title_words, text_words,
        )  # fmt: skip

    def hidden(self, now: float) -> RecordValues:
        """The record before its content is known: it appears when its box is opened or its row is
        loaded."""
        return RecordValues(
            self.record, self.id, "hidden", self.seq, self.seq, None, 1.0, now, now, self.version,
            None, "{}", None, "", None, None,
        )  # fmt: skip

    def deleted(self, now: float) -> RecordValues:
        """The record after its deletion: only its version counts."""
        return self.hidden(now)._replace(state="deleted")

    def times(self, draft: Draft, now: float) -> tuple[float, float]:
        """The record's creation and update times, if it is saved or boxed now."""
        created, updated = draft.created_at, draft.updated_at
        if created is None:
            known = self.was_live or (self.was_stored and self.state == "hidden")
            created = self.created_at if known else now
        return created, now if updated is None else updated


class RecordValues(NamedTuple):
    """A record as statements write it."""

    record: int
    id: str
    state: str
    seq: int
    born: int
    hash: bytes | None
    weight: float
    created_at: float
    updated_at: float
    version: int | None
    title: str | None
    metadata: str
    data: str | None
    text: str
    title_words: str | None
    """title and text in the form that is indexed for full text; None: they are not indexed"""
    text_words: str | None

    @property
    def stored(self) -> tuple[Any, ...]:
        """Without the words for full text."""
        return self[:-2]


NewJob = tuple[Row, Op, str | None]
"""a job's record, op and box"""


def judge(row: Row, draft: Draft) -> str:
    """Whether a draft is stale, unchanged or changed, compared with the row. Updates the row."""
    if draft.if_seq is not None and (row.seq != draft.if_seq or row.has_waiting_debt):
        return "stale"
    overwrites = draft.merge is Merge.OVERWRITE
    if draft.merge is Merge.NEWER and not _is_older(row, draft):
        return "stale"
    if draft.version is not None:
        if row.version is not None and draft.version <= row.version:
            if draft.merge is Merge.REPLACE or not (overwrites or row.same_as(draft)):
                return "stale"
        else:
            row.version = draft.version
            row.quiet = True
    if row.draft is None and row.same_as(draft):
        created, updated = draft.created_at, draft.updated_at
        if created is not None and created != row.created_at:
            row.created_at, row.quiet = created, True
        if updated is not None and updated != row.updated_at:
            row.updated_at, row.quiet = updated, True
        if draft.data != row.data:
            row.data, row.quiet = draft.data, True
        if row.job_status in (Status.PENDING, Status.PROCESSING):
            row.given = draft.given
        return "unchanged"
    row.draft, row.given = draft, draft.given
    return "changed"


_ROUNDING = 1e-6
"""seconds: exported times are rounded to these"""


def _is_older(row: Row, draft: Draft) -> bool:
    """Whether a row may be replaced by a draft that has to be newer. One that is the same may be,
    too."""
    if not row.was_stored or row.same_as(draft):
        return True
    if row.version is not None and draft.version is not None:
        return True  # versions decide
    if row.boxed and row.state != "hidden":
        return False  # its newest content is in the box; a hidden row has the time of its box
    return draft.updated_at is None or row.updated_at + _ROUNDING < draft.updated_at


def compare(drafts: Iterable[Draft], rows: dict[str, Row]) -> list[tuple[Draft, Row, str]]:
    """What each draft does to its row, in order; a record without a row gets one."""
    steps = []
    for draft in drafts:
        row = rows.get(draft.id)
        if row is None:
            row = rows[draft.id] = Row(draft.id)
        steps.append((draft, row, judge(row, draft)))
    return steps


def number(
    kind: str,
    steps: Iterable[tuple[Draft, Row, str]],
    numbers: Iterator[int],
    targets: int,
) -> list[Ticket]:
    """Give each change its seq and its jobs' numbers, in order; returns the tickets of all
    drafts."""
    tickets = []
    for draft, row, verdict in steps:
        is_new = not row.record or row.state == "deleted"
        if verdict == "changed":
            row.take(numbers, targets)
            row.record = row.record or row.seq
            row.state = row.state if draft.boxed else "live"
        accepted, changed = verdict != "stale", verdict == "changed"
        tickets.append(_make_ticket(kind, draft.id, row.job_id, row.seq, accepted, is_new, changed))
    return tickets


@dataclass(slots=True)
class Writes:
    """The writes of a batch: each record once, with its last draft."""

    inserts: list[tuple[Row, Draft]] = field(default_factory=list)
    updates: list[tuple[Row, Draft]] = field(default_factory=list)
    stubs: list[Row] = field(default_factory=list)
    """hidden rows of records that appear later, when their box is opened"""
    quiet: list[tuple[Any, ...]] = field(default_factory=list)
    """parameters of `update_quietly`"""
    jobs: list[NewJob] = field(default_factory=list)

    @classmethod
    def of(cls, rows: Iterable[Row], now: float) -> Writes:
        writes = cls()
        for row in rows:
            draft = row.draft
            if draft is None:
                if row.quiet:
                    writes.quiet.append(row.quiet_values)
            elif draft.boxed:
                writes.jobs.append((row, Op.OPEN, pack_box(draft, *row.times(draft, now))))
                if not row.was_stored:
                    row.state = "hidden"
                    writes.stubs.append(row)
                elif row.version is not None:
                    writes.quiet.append(row.quiet_values)
            else:
                writes.jobs.append((row, Op.EMBED, None))
                (writes.updates if row.was_stored else writes.inserts).append((row, draft))
        return writes


@dataclass(slots=True)
class Deletes:
    """The writes of a batch of deletes."""

    gone: list[Row] = field(default_factory=list)
    quiet: list[tuple[Any, ...]] = field(default_factory=list)
    """parameters of `update_quietly`"""

    @classmethod
    def of(
        cls,
        rows: Iterable[Row],
        if_seq: Mapping[str, int] | None,
        versions: Mapping[str, int] | None,
        now: float,
        *,
        despite_debts: bool,
    ) -> Deletes:
        """What becomes of stored rows. A row is left alone if its seq is not that of `if_seq` or,
        unless `despite_debts`, newer content of it waits to be read, or if its version is not
        older than that of `versions`. A row that is deleted already only takes
        the newer version."""
        deletes = cls()
        for row in rows:
            seq = row.seq if if_seq is None else if_seq[row.id]
            waits = if_seq is not None and not despite_debts and row.has_waiting_debt
            if row.seq != seq or waits:
                continue
            if versions is not None:
                if row.version is not None and versions[row.id] <= row.version:
                    continue
                row.version = versions[row.id]
                if not row.can_be_deleted:
                    row.updated_at = now  # a deleted row is purged at some time after this
                deletes.quiet.append(row.quiet_values)
            if row.can_be_deleted:
                deletes.gone.append(row)
        return deletes


def unknown_versions(
    ids: Iterable[str], if_seq: Mapping[str, int] | None, versions: Mapping[str, int] | None
) -> dict[str, int]:
    """The versions that deletes of unknown records keep. `if_seq` holds for these only if it says
    that there is no record."""
    if versions is None:
        return {}
    return {id: versions[id] for id in ids if if_seq is None or if_seq[id] == Row(id).seq}


def tickets_of_deletes(
    kind: str, ids: Iterable[str], rows: Mapping[str, Row], accepted: set[str]
) -> list[Ticket]:
    """The tickets of deletes. Of several deletes of one id, the first is the accepted one."""
    tickets = []
    for id in ids:
        found = rows.get(id) or Row(id)
        first = id in accepted
        accepted.discard(id)
        tickets.append(Ticket(kind, id, found.job_id, found.seq, first, False, first))
    return tickets


_BOX = ("text", "title", "metadata", "weight", "data")


def pack_box(draft: Draft, created_at: float | None, updated_at: float | None) -> str:
    """Serialize a boxed record with its times: those of the add, not of its appearance."""
    content = {name: getattr(draft, name) for name in _BOX}
    times = {"created_at": created_at, "updated_at": updated_at}
    return json.dumps(content | times, ensure_ascii=False)
