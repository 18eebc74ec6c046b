"""Attached tables, as workers and searches use them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evervec.errors import InvalidRecord
from evervec.model import Job
from evervec.sources.base import Attached, Attachment, Source
from evervec.stores.base import Draft, Store

_FOLDED_AT_ONCE = 5000
_COMPARED_AT_ONCE = 2000
_FILLED_AT_ONCE = 1000


class Tables:
    """What is attached to a store, read anew whenever something is folded or asked for."""

    def __init__(self, source: Source | None) -> None:
        self.source = source

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
        return self.source.rows(attachment, ids, whole=True)

    def compare(self, store: Store, *, repair: bool) -> tuple[int, int, int]:
        """Records that are missing, stale, and orphaned beside the rows of their tables; `repair`
        enqueues them. What a job is about to settle is left out."""
        while self.follow():
            pass
        missing = stale = orphaned = 0
        for attachment, backfilled in self.attached():
            if not backfilled or self.trouble(attachment) is not None:
                continue
            for tenant, lost, old in self._off(store, attachment):
                missing, stale = missing + len(lost), stale + len(old)
                if repair and lost + old:
                    store.enqueue(tenant, attachment.kind, lost + old, loaded=True)
            for tenant, ids in self._without_rows(store, attachment):
                orphaned += len(ids)
                if repair:
                    store.enqueue(tenant, attachment.kind, ids, loaded=True)
        return missing, stale, orphaned

    def _off(
        self, store: Store, attachment: Attachment
    ) -> Iterator[tuple[str, list[str], list[str]]]:
        """By tenant, ids of rows that have no record, and of those whose record differs."""
        assert self.source is not None
        position: Sequence[Any] = ()
        while rows := self.source.page(attachment, position, _COMPARED_AT_ONCE):
            position = [rows[-1][column] for column in attachment.key]
            drafts: dict[str, dict[str, Draft]] = defaultdict(dict)
            for row in rows:
                if all(row[column] is not None for column in attachment.key):
                    try:
                        draft = attachment.draft(row)
                    except (InvalidRecord, ValueError, LookupError):
                        continue  # its job failed, and says why
                    if draft is not None:
                        drafts[attachment.tenant_of(row)][draft.id] = draft
            for tenant, mine in drafts.items():
                off = self._differing(store, attachment, tenant, mine)
                if any(off):  # a writer or worker may have been between the two looks
                    self.follow()
                    again = self.source.rows(attachment, [*off[0], *off[1]])
                    still = {id: d for id, row in again.items() if (d := attachment.draft(row))}
                    off = self._differing(store, attachment, tenant, still)
                yield tenant, *off

    def _differing(
        self, store: Store, attachment: Attachment, tenant: str, drafts: Mapping[str, Draft]
    ) -> tuple[list[str], list[str]]:
        known = store.digests(tenant, attachment.kind, list(drafts))
        lost = [id for id in drafts if id not in known]
        old = [
            id
            for id, d in drafts.items()
            if id in known and not known[id].busy
            and known[id][:3] != (d.hash, d.metadata, d.weight)
        ]  # fmt: skip
        return lost, old

    def _without_rows(
        self, store: Store, attachment: Attachment
    ) -> Iterator[tuple[str, list[str]]]:
        """By tenant, ids of live records whose rows are gone."""
        assert self.source is not None
        for collection in store.collections(None, {}):
            after = 0
            while collection.kind == attachment.kind and (
                found := store.expected(None, collection.version, after, _COMPARED_AT_ONCE)
            ):
                after = found[-1].record
                live = [record for record in found if record.live and not record.busy]
                rows = self.source.rows(attachment, [record.id for record in live])
                gone: dict[str, list[str]] = defaultdict(list)
                for record in live:
                    row = rows.get(record.id)
                    if row is None or attachment.tenant_of(row) != record.tenant:
                        gone[record.tenant].append(record.id)
                yield from gone.items()

    def rows_of(
        self, jobs: Sequence[Job]
    ) -> dict[int, tuple[Attachment, Mapping[str, Any] | None]]:
        """By job, its attachment and its row as it is now; None for a row that is gone, or is
        another tenant's. Jobs of kinds that are not attached are left out."""
        if self.source is None or not jobs:
            return {}
        wanted: dict[str, list[Job]] = defaultdict(list)
        for job in jobs:
            wanted[job.kind].append(job)
        found: dict[int, tuple[Attachment, Mapping[str, Any] | None]] = {}
        for kind, attachment in self.by_kind().items():
            mine = wanted.get(kind, [])
            rows = self.source.rows(attachment, [job.record_id for job in mine]) if mine else {}
            for job in mine:
                row = rows.get(job.record_id)
                if row is not None and attachment.tenant_of(row) != job.tenant:
                    row = None
                found[job.job_id] = (attachment, row)
        return found
