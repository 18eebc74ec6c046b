"""Attached tables, as workers and searches use them."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from evervec.errors import InvalidArgument, StoreClosed, StoreError
from evervec.model.jobs import Job
from evervec.model.records import Hits
from evervec.settings import Settings
from evervec.stores import notes
from evervec.stores.base import Store
from evervec.stores.slices import records_of
from evervec.tables.base import (
    UNFIT,
    Attached,
    AttachedTable,
    Attachment,
    Row,
    TableChanged,
    Unfit,
)
from evervec.tables.source import Source

log = logging.getLogger("evervec")

FoundRow = tuple[Attachment, Row | TableChanged | None]
"""the row of a job, or why it cannot be read"""

_KNOWN_SECONDS = 1.0
"""how long a writer may use the attachments that it has read"""
_FOLDED_AT_ONCE = 5000
_FILLED_AT_ONCE = 1000


class Tables:
    """The tables attached to a store, read again whenever changes are processed or a caller
    asks."""

    def __init__(self, source: Source | None, store: Store, settings: Settings) -> None:
        self.source = source
        self.store = store
        self.settings = settings
        self._failing: dict[str, StoreError] = {}
        """the last error of each step that failed"""
        self._known: dict[str, Attachment] = {}
        self._known_until = 0.0

    def attach(self, wanted: Attachment, *, dry_run: bool, replace: bool) -> Attachment:
        """Follow a table; returns the attachment as its database has it. A kind with records of
        another origin is refused, unless `replace` allows their deletion."""
        source = self._required()
        planned = source.plan(wanted)
        if not replace:
            self.check_free(wanted.kind)
        if not dry_run:
            self._forget()
            source.attach(planned)
            notes.KEPT.of(wanted.kind).put(self.store.shared, None)
        return planned

    def attach_again(
        self,
        table: str | Attachment | None = None,
        *,
        to: str | None = None,
        dry_run: bool = False,
    ) -> list[Attachment]:
        """Attach a table, a kind or one attachment with what was given before, or with None all
        tables that are no longer as they were attached. One that cannot be attached does not stop
        the others; then the first error is raised at the end."""
        if table is None:
            if to is not None:
                raise InvalidArgument("name the table that has a new name")
            mine = [a for a in self.by_kind().values() if self.trouble(a) is not None]
        elif isinstance(table, Attachment):
            mine = [table]
        else:
            mine = self.attachments_of(table)
            if to is not None and len(mine) > 1:
                kinds = ", ".join(a.kind for a in mine)
                raise InvalidArgument(
                    f"{table} is attached as {kinds}: give one of these kinds with the new name"
                )
        self._forget()
        made, errors = [], []
        for attachment in mine:
            try:
                planned = self._required().attach_again(attachment, to, dry_run=dry_run)
                made.append(planned)
            except (InvalidArgument, StoreError) as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return made

    def attachments_of(self, table: str) -> list[Attachment]:
        """The attachments of a table or kind."""
        mine = [a for a in self.by_kind().values() if table in (a.table, a.kind)]
        if not mine:
            raise InvalidArgument(f"{table!r} is not attached: `evervec tables` lists what is")
        return mine

    def check_free(self, kind: str) -> None:
        """Refuse a kind with records that were not made from a table: attaching deletes all records
        that are not rows of the table."""
        if kind in self.by_kind():
            return
        kept = notes.KEPT.of(kind).get(self.store.shared) or 0
        for found in records_of(self.store, kind, _FILLED_AT_ONCE, kept):
            if any(record.live for record in found):
                raise InvalidArgument(
                    f"the kind {kind!r} has records that are not rows of a table, and attaching "
                    "one would delete them: choose another kind, or give replace=True (--replace)"
                )

    def check_writable(self, kind: str) -> None:
        """Refuse a kind that follows a table, as far as this process knows: another one may have
        attached it a moment ago."""
        if self.source is None:
            return
        if (now := time.monotonic()) >= self._known_until:
            self._known, self._known_until = self.by_kind(), now + _KNOWN_SECONDS
        if attachment := self._known.get(kind):
            raise InvalidArgument(
                f"the records of kind {kind!r} are the rows of {attachment.table}: change the "
                "table, or choose another kind"
            )

    def _forget(self) -> None:
        self._known_until = 0.0

    def detach(self, table: str, *, keep: bool) -> int:
        """Stop following a table or kind, and delete its records unless `keep`; returns how many
        were deleted."""
        gone = 0
        for one in self.attachments_of(table):
            self._forget()
            self._required().detach(one.kind)
            deleted, last = self._let_go(one.kind, keep=keep)
            gone += deleted
            if keep:  # remember that they came from a table, so that one can be attached again
                notes.KEPT.of(one.kind).put(self.store.shared, last)
        return gone

    def _let_go(self, kind: str, *, keep: bool) -> tuple[int, int]:
        """Delete the records of a kind that is no longer attached. With `keep`, embed as they are
        the records whose rows were still to be read. Returns how many were deleted, and the last
        record's number."""
        gone = last = 0
        for found in records_of(self.store, kind, _FILLED_AT_ONCE):
            last = max(last, found[-1].record)
            ids: dict[tuple[str, bool], list[str]] = defaultdict(list)
            for record in found:
                if not keep or record.busy:
                    ids[record.tenant, keep and record.live].append(record.id)
            for (tenant, stays), mine in ids.items():
                if stays:
                    self.store.changes.enqueue(tenant, kind, mine, loaded=False, owing=False)
                else:
                    deleted = self.store.changes.delete(tenant, kind, mine)
                    gone += sum(ticket.accepted for ticket in deleted)
        return (0 if keep else gone), last

    def _required(self) -> Source:
        if self.source is None:
            raise InvalidArgument(
                "this store cannot attach tables: register Kind(load=...) and call "
                "ev.queue.enqueue in your own transaction"
            )
        return self.source

    def follow(self) -> int:
        """Turn the tables' logged changes into jobs; returns how many changes there were."""
        return self.source.fold(_FOLDED_AT_ONCE) if self.source else 0

    def backfill(self, priority: int) -> int:
        """Enqueue a slice of the rows that existed before."""
        return self.source.backfill(_FILLED_AT_ONCE, priority) if self.source else 0

    def waiting(self) -> bool:
        """Whether a worker has yet to read changes or existing rows of the tables."""
        return self.source is not None and self.source.waiting()

    def attempt(self, step: Callable[..., int], *given: Any) -> int:
        """Run `follow` or `backfill` for a worker. A failure is kept as `failing` until the step
        succeeds, because it must not stop the work on other records."""
        try:
            count = step(*given)
        except StoreClosed:
            raise
        except StoreError as error:
            if str(error) != str(self._failing.get(step.__name__)):
                log.error("attached tables cannot be synced: %s", error)
            self._failing[step.__name__] = error
            return 0
        self._failing.pop(step.__name__, None)
        return count

    @property
    def failing(self) -> StoreError | None:
        """Why the tables cannot be followed now."""
        return next(iter(self._failing.values()), None)

    def attached(self) -> list[Attached]:
        return self.source.attached() if self.source else []

    def trouble(self, attachment: Attachment) -> str | None:
        """What is no longer as it was attached."""
        return self.source.trouble(attachment) if self.source else None

    def set_aside(self, attachment: Attachment) -> str | None:
        """A message if some rows of a table cannot be indexed, as far as is known without reading
        the whole table."""
        if self.source is None:
            return None
        try:
            found = self.source.set_aside(attachment)
        except TableChanged as error:
            return str(error)
        return None if found is None else _cannot_be_indexed(attachment, found)

    def alarms(self) -> Iterator[tuple[str, str]]:
        """What each sweep reports about attached tables, by kind; costs a few look-ups."""
        for attached in self.attached():
            _, text = self._state(attached)
            if text is not None:
                yield attached.attachment.kind, text

    def tables(self, embedded: Mapping[str, int]) -> list[AttachedTable]:
        """All attached tables; `embedded`: the number of records with vectors, by kind."""
        found = []
        for attached in self.attached():
            attachment = attached.attachment
            state, trouble = self._state(attached)
            count = embedded.get(attachment.kind, 0)
            found.append(
                AttachedTable(
                    attachment.table, attachment.kind, state, trouble, self._count(attachment),
                    count, attachment,
                )
            )  # fmt: skip
        return found

    def _state(self, attached: Attached) -> tuple[str, str | None]:
        """The state of a table, and what is wrong with it. A table that cannot be read must not
        hide the state of the others."""
        attachment = attached.attachment
        try:
            if trouble := self.trouble(attachment):
                return "broken", trouble
            if trouble := self.set_aside(attachment):
                return "incomplete", trouble
        except StoreClosed:
            raise
        except StoreError as error:
            return "broken", f"{attachment.table} cannot be checked: {error}"
        return ("attached" if attached.backfilled else "backfilling"), None

    def _count(self, attachment: Attachment) -> int | None:
        try:
            return self._required().count(attachment)
        except StoreClosed:
            raise
        except StoreError:
            return None

    def troubles(self, tenant: str | None = None) -> Iterator[str]:
        """Why the records of one tenant, or (None) of all, may differ from the rows of their tables
        in ways that comparing the two does not show; one sentence each. Covers tables that are
        gone, renamed, or without their triggers, and rows that cannot be indexed, with their
        number. Reads the keys of all attached tables."""
        for attachment, _ in self.attached():
            yield from self.troubles_of(attachment, tenant)

    def troubles_of(self, attachment: Attachment, tenant: str | None) -> Iterator[str]:
        assert self.source is not None
        if attachment.tenant is None and tenant not in (None, attachment.owner):
            return  # it has no rows of that tenant
        if trouble := self.source.trouble(attachment):
            yield trouble
            return
        count, example = 0, None
        try:
            for found in self.source.unfit(attachment):
                if tenant in (None, found.tenant):
                    count, example = count + 1, example or found
        except TableChanged as error:
            yield str(error)
        if example is not None:
            yield _cannot_be_indexed(attachment, example, count)

    def by_kind(self) -> dict[str, Attachment]:
        return {attached.attachment.kind: attached.attachment for attached in self.attached()}

    def with_rows(self, tenant: str, hits: Hits) -> Hits:
        """Hits with their complete current rows. A hit is left out if its row is gone or belongs to
        another tenant now. A hit without an attached table, or whose row cannot be read, has no
        row."""
        wanted: dict[str, list[str]] = defaultdict(list)
        for hit in hits:
            wanted[hit.kind].append(hit.id)
        found: dict[tuple[str, str], Mapping[str, Any] | None] = {}
        left_out: set[tuple[str, str]] = set()
        for kind, attachment in self.by_kind().items():
            ids = wanted.get(kind, [])
            try:
                rows = self._whole(attachment, ids) if ids else {}
            except TableChanged:
                continue
            for id in ids:
                row = rows.get(id)
                if row is None or attachment.tenant_of(row) != tenant:
                    left_out.add((kind, id))
                else:
                    found[kind, id] = row.values or None
        shown = (
            replace(hit, row=found.get((hit.kind, hit.id)))
            for hit in hits
            if (hit.kind, hit.id) not in left_out
        )
        return hits.replaced(shown)

    def unchanged(self, tenant: str, kind: str, ids: Sequence[str]) -> set[str]:
        """Those of the ids whose row still has the text that the record has. All of them, if the
        kind has no attached table or the table cannot be read."""
        attachment = self.by_kind().get(kind)
        if self.source is None or attachment is None:
            return set(ids)
        known = self.store.records.digests(tenant, kind, ids)
        try:
            rows = self.source.rows(attachment, ids)
        except TableChanged:
            return set(ids)
        return {
            id
            for id, row in rows.items()
            if id in known and self._has_text(attachment, row, known[id].hash)
        }

    def _has_text(self, attachment: Attachment, row: Row, hash: bytes | None) -> bool:
        try:
            draft = attachment.draft(row, self.settings)
        except UNFIT:
            return False
        return draft is not None and draft.hash == hash

    def _whole(self, attachment: Attachment, ids: Sequence[str]) -> dict[str, Row]:
        """The rows of some records with all columns; without values if they cannot be read."""
        assert self.source is not None
        rows = self.source.whole(attachment, ids)
        if unread := [id for id in ids if id not in rows]:
            there = self.source.rows(attachment, unread)
            rows |= {id: row._replace(values={}) for id, row in there.items()}
        return rows

    def rows_of(self, jobs: Sequence[Job]) -> dict[int, FoundRow]:
        """For each job, its attachment and its current row; None for a row that is gone or belongs
        to another tenant. Jobs of kinds that are not attached are left out."""
        if self.source is None or not jobs:
            return {}
        wanted: dict[str, list[Job]] = defaultdict(list)
        for job in jobs:
            wanted[job.kind].append(job)
        found: dict[int, FoundRow] = {}
        for kind, attachment in self.by_kind().items():
            mine = wanted.get(kind, [])
            try:
                rows = self.source.rows(attachment, [job.record_id for job in mine]) if mine else {}
            except TableChanged as error:
                found.update((job.job_id, (attachment, error)) for job in mine)
                continue
            for job in mine:
                row = rows.get(job.record_id)
                if row is not None and attachment.tenant_of(row) != job.tenant:
                    row = None
                found[job.job_id] = (attachment, row)
        return found


def _cannot_be_indexed(attachment: Attachment, example: Unfit, count: int | None = None) -> str:
    """`count`: how many rows there are, if known."""
    rows = "some rows" if count is None else "1 row" if count == 1 else f"{count} rows"
    return (
        f"{rows} of {attachment.table} cannot be indexed because of the key or tenant, such as "
        f"{example}: change the row, or attach the table with another unique key"
    )
