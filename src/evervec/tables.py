"""Attached tables, as workers and searches use them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from evervec.errors import InvalidArgument, InvalidRecord, StoreError
from evervec.model import Hit, Job
from evervec.reports import Findings
from evervec.sources.base import Attached, Attachment, Row, Source, TableChanged
from evervec.stores.base import Store
from evervec.stores.values import Draft, Expected

FoundRow = tuple[Attachment, Row | TableChanged | None]
"""the row of a job, or why it cannot be read"""
UNFIT = (InvalidRecord, ValueError, LookupError, AttributeError, ArithmeticError, TypeError)
"""what a row raises that cannot be a record"""

_FOLDED_AT_ONCE = 5000
_COMPARED_AT_ONCE = 2000
_FILLED_AT_ONCE = 1000


class Tables:
    """What is attached to a store, read anew whenever something is folded or asked for."""

    def __init__(self, source: Source | None) -> None:
        self.source = source

    def attach(self, wanted: Attachment, *, dry_run: bool) -> Attachment:
        """Follow a table; the attachment as its database has it."""
        source = self._required()
        planned = source.plan(wanted)
        if not dry_run:
            source.attach(planned)
        return planned

    def detach(self, store: Store, table: str, *, keep: bool) -> int:
        """Stop following a table or kind, and delete its records unless kept; how many those
        were."""
        mine = [a for a in self.by_kind().values() if table in (a.table, a.kind)]
        if not mine:
            raise InvalidArgument(f"{table!r} is not attached")
        gone = 0
        for one in mine:
            self._required().detach(one.kind)
            gone += self.let_go(store, one.kind, keep=keep)
        return gone

    def _required(self) -> Source:
        if self.source is None:
            raise InvalidArgument(
                "this store cannot attach tables: register Kind(load=...) and call "
                "ev.queue.enqueue in your own transaction"
            )
        return self.source

    def follow(self) -> int:
        """Make jobs of what changed in the tables since; how many changes there were."""
        return self.source.fold(_FOLDED_AT_ONCE) if self.source else 0

    def backfill(self, priority: int) -> int:
        """Enqueue a slice of the rows that were there before."""
        return self.source.backfill(_FILLED_AT_ONCE, priority) if self.source else 0

    def attached(self) -> list[Attached]:
        return self.source.attached() if self.source else []

    def trouble(self, attachment: Attachment) -> str | None:
        """What of a table is no longer as it was attached."""
        return self.source.trouble(attachment) if self.source else None

    def by_kind(self) -> dict[str, Attachment]:
        return {attached.attachment.kind: attached.attachment for attached in self.attached()}

    def rows(self, kind: str, ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """The rows behind some records of a kind, whole."""
        attachment = self.by_kind().get(kind)
        if self.source is None or attachment is None:
            return {}
        try:
            return self.source.whole(attachment, ids)
        except TableChanged:
            return {}

    def rows_of_hits(self, hits: Iterable[Hit]) -> dict[tuple[str, str], Mapping[str, Any]]:
        """By kind and id, the rows behind what a search found."""
        wanted: dict[str, list[str]] = defaultdict(list)
        for hit in hits:
            wanted[hit.kind].append(hit.id)
        return {
            (kind, id): row
            for kind, ids in wanted.items()
            for id, row in self.rows(kind, ids).items()
        }

    def rows_of(self, jobs: Sequence[Job]) -> dict[int, FoundRow]:
        """By job, its attachment and its row as it is now; None for a row that is gone, or is
        another tenant's. Jobs of kinds that are not attached are left out."""
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

    def let_go(self, store: Store, kind: str, *, keep: bool) -> int:
        """Delete the records of a kind that is no longer attached, or, to keep them, have those
        embedded as they stand whose rows were still to be read; how many were deleted."""
        gone = 0
        for collection in store.collections():
            after = 0
            while collection.kind == kind and (
                found := store.expected(None, collection.version, after, _FILLED_AT_ONCE)
            ):
                after = found[-1].record
                ids: dict[tuple[str, bool], list[str]] = defaultdict(list)
                for record in found:
                    if not keep or record.busy:
                        ids[record.tenant, keep and record.live].append(record.id)
                for (tenant, stays), mine in ids.items():
                    if stays:
                        store.enqueue(tenant, kind, mine, loaded=False)
                    else:
                        gone += sum(ticket.accepted for ticket in store.delete(tenant, kind, mine))
        return 0 if keep else gone

    # verify
    def troubles(self, attachment: Attachment) -> Iterator[str]:
        """What keeps an attached table from being followed whole, each in a sentence."""
        if (trouble := self.trouble(attachment)) is not None:
            yield trouble

    def compare(
        self, store: Store, tenant: str | None, findings: Findings, *, repair: bool
    ) -> None:
        """Find records that are missing, stale and orphaned beside the rows of their tables, and
        tables that are not followed; `repair` enqueues the former and attaches the latter again
        as they are now. What a job is about to settle is left out."""
        while self.follow():
            pass
        for attachment, backfilled in self.attached():
            troubles = list(self.troubles(attachment))
            mend = repair  # but no record by a table that is not what it was
            if repair and self.trouble(attachment) is not None:
                mend = self._attach_again(attachment, troubles)
                findings.repaired += mend
            try:
                if backfilled:
                    self._compare(store, attachment, tenant, findings, repair=mend)
            except TableChanged as error:
                if str(error) not in troubles:
                    troubles.append(str(error))
            where = f"{attachment.table} as {attachment.kind}"
            findings.troubles += [f"{where}: {trouble}" for trouble in troubles]
            if not backfilled:
                findings.unchecked.append(f"{where}: its old rows are still being enqueued")

    def _attach_again(self, attachment: Attachment, troubles: list[str]) -> bool:
        """Put the triggers on a table as it is now, and have workers look at all of its rows;
        False where that cannot be done. `troubles` says what was done, or why not."""
        try:
            self._required().attach(attachment)
        except (InvalidArgument, StoreError) as error:
            troubles.append(f"it cannot be attached again: {error}")
            return False
        troubles.append("it is attached again, and workers look at all of its rows")
        return True

    def _compare(
        self,
        store: Store,
        attachment: Attachment,
        tenant: str | None,
        findings: Findings,
        *,
        repair: bool,
    ) -> None:
        for owner, fault, ids in self._wrong(store, attachment):
            if not ids or tenant not in (None, owner):
                continue
            findings.counts[owner, attachment.kind, fault] += len(ids)
            if repair:
                store.enqueue(owner, attachment.kind, ids, loaded=True)
                findings.repaired += len(ids)

    def _wrong(self, store: Store, attachment: Attachment) -> Iterator[tuple[str, str, list[str]]]:
        """By tenant, what is wrong with which ids."""
        for tenant, lost, old in self._off(store, attachment):
            yield tenant, "missing", lost
            yield tenant, "stale", old
        for tenant, ids in self._without_rows(store, attachment):
            yield tenant, "orphaned", ids

    def _off(
        self, store: Store, attachment: Attachment
    ) -> Iterator[tuple[str, list[str], list[str]]]:
        """By tenant, ids of rows that have no record, and of those whose record differs."""
        assert self.source is not None
        behind: Sequence[Any] = ()
        while rows := self.source.page(attachment, behind, _COMPARED_AT_ONCE):
            behind = rows[-1].key
            for tenant, drafts in _drafts(attachment, rows).items():
                off = _differing(store, attachment.kind, tenant, drafts)
                if suspects := [*off[0], *off[1]]:
                    again = self._look_again(attachment, suspects)
                    still = _drafts(attachment, again.values()).get(tenant, {})
                    off = _differing(store, attachment.kind, tenant, still)
                yield tenant, *off

    def _without_rows(
        self, store: Store, attachment: Attachment
    ) -> Iterator[tuple[str, list[str]]]:
        """By tenant, ids of live records whose rows are gone, or have no text."""
        assert self.source is not None
        for collection in store.collections():
            after = 0
            while collection.kind == attachment.kind and (
                found := store.expected(None, collection.version, after, _COMPARED_AT_ONCE)
            ):
                after = found[-1].record
                live = [record for record in found if record.live and not record.busy]
                gone = _gone(attachment, live, self.source.rows(attachment, [r.id for r in live]))
                for tenant, ids in gone.items():
                    again = self._look_again(attachment, ids)
                    suspects = [r for r in live if r.tenant == tenant and r.id in again]
                    still = _gone(attachment, suspects, again).get(tenant, [])
                    known = store.digests(tenant, attachment.kind, still)
                    yield tenant, [id for id in still if id in known and not known[id].busy]

    def _look_again(self, attachment: Attachment, ids: Sequence[str]) -> dict[str, Row | None]:
        """The rows of some records, less those with a change that nobody has made a job of: a
        writer or a worker may have been between two looks. What is no longer in the log has its
        job by now, so it shows at the next look at the records."""
        assert self.source is not None
        rows = self.source.rows(attachment, ids)
        self.follow()
        logged = self.source.logged(attachment.kind, ids)
        return {id: rows.get(id) for id in ids if id not in logged}


def _drafts(attachment: Attachment, rows: Iterable[Row | None]) -> dict[str, dict[str, Draft]]:
    """The records that rows should be, by tenant and id."""
    drafts: dict[str, dict[str, Draft]] = defaultdict(dict)
    for row in rows:
        if row is not None and (draft := _draft(attachment, row)):
            drafts[attachment.tenant_of(row)][draft.id] = draft
    return drafts


def _draft(attachment: Attachment, row: Row) -> Draft | None:
    try:
        return attachment.draft(row)
    except UNFIT:
        return None  # its job failed, and says why


def _gone(
    attachment: Attachment, records: Iterable[Expected], rows: Mapping[str, Row | None]
) -> dict[str, list[str]]:
    """By tenant, the ids of those records that no row stands for."""
    gone: dict[str, list[str]] = defaultdict(list)
    for record in records:
        row = rows.get(record.id)
        if row is None or attachment.tenant_of(row) != record.tenant or _is_blank(attachment, row):
            gone[record.tenant].append(record.id)
    return gone


def _is_blank(attachment: Attachment, row: Row) -> bool:
    try:
        return attachment.draft(row) is None
    except UNFIT:
        return False


def _differing(
    store: Store, kind: str, tenant: str, drafts: Mapping[str, Draft]
) -> tuple[list[str], list[str]]:
    known = store.digests(tenant, kind, list(drafts))
    lost = [id for id in drafts if id not in known]
    old = [
        id
        for id, d in drafts.items()
        if id in known and not known[id].busy and known[id][:3] != (d.hash, d.metadata, d.weight)
    ]
    return lost, old
