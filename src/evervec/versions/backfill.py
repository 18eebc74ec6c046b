"""Backfill: enqueues records that lack current vectors, a slice at a time, behind all live work.

Records lack current vectors when their kind's chunker or template has changed, or when their job
was cancelled, or purged as a dead letter. A worker checks at its start: the kinds whose chunker or
template changed, and the whole store if a note says that dead letters were purged. The command
checks everything. Records with an unfinished job are left to that job, and dead letters to a retry.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from evervec.errors import InvalidRecord
from evervec.model.jobs import Status
from evervec.model.reports import Backfill
from evervec.records.kinds import Kind
from evervec.settings import Settings
from evervec.stores import notes
from evervec.stores.base import Store
from evervec.stores.slices import expected_slices
from evervec.stores.values import Collection, Draft, Expected, KindSpec, Typed
from evervec.worker.pipeline import Pipeline

log = logging.getLogger("evervec")

_SLICE = 1000
_LOCK_SECONDS = 60.0


@dataclass(eq=False, repr=False)
class Backfiller:
    """The backfills of one process over its store, for all tenants."""

    _store: Store
    _pipeline: Pipeline
    _kinds: Mapping[str, Kind]
    _settings: Settings

    # by command
    def run(
        self, kind: str | None, *, dry_run: bool, progress: Callable[[int], object] | None
    ) -> Backfill:
        """Enqueue all records that lack current vectors; `progress` is called with the number
        checked."""
        self._pipeline.served.refresh()
        recut = self._changed_chunkers(kind)
        if recut and not dry_run:
            self._store.versions.describe(recut)
            recut = {}  # the ledger entries are now older than the change of chunker
        records = rendered = size = enqueued = 0
        for slice_ in self._render(kind, dry_run=dry_run):
            rendered += len(slice_)
            size += sum(len(draft.text) for draft in slice_)
        for collection in self._serving(kind):
            for looked_at, lacking in self._lacking(collection, recut=collection.version in recut):
                records += len(lacking)
                size += self._store.records.sizes(lacking)
                if not dry_run:
                    enqueued += self._enqueue(collection, lacking)
                if progress is not None:
                    progress(looked_at)
            if not dry_run:
                self._note_done(collection)
        tokens = round(size / 4)
        return Backfill(
            records, rendered, tokens, self._pipeline.models.spending.money(tokens),
            enqueued + (0 if dry_run else rendered),
        )  # fmt: skip

    # at a worker's start
    def at_start(self) -> Iterator[int]:
        """Enqueue, slice by slice, records of kinds whose chunker or template changed since a
        worker last checked, and records that lost their jobs. Yields how many were enqueued."""
        self._pipeline.served.refresh()
        changed = [c for c in self._serving(None) if self._backfilled(c) != c.cut_since]
        kinds = [name for name, kind in self._kinds.items() if self._template_changed(kind)]
        jobless, revision = notes.JOBLESS.read(self._store.shared)
        if not changed and not kinds and jobless is None:
            return
        lock = self._store.shared.lock("backfill", self._pipeline.queue.worker, _LOCK_SECONDS)
        if lock is None:
            return
        for name in kinds:
            for drafts in self._render(name, dry_run=False):
                yield len(drafts)
        for collection in changed:
            for _, lacking in self._lacking(collection, recut=False):
                yield self._enqueue(collection, lacking)
            self._note_done(collection)
        if jobless is not None:
            before = jobless - 1
            for collection in self._serving(None):
                if collection not in changed:
                    for _, lacking in self._lacking(collection, recut=False, after=before):
                        yield self._enqueue(collection, lacking)
            notes.JOBLESS.swap(self._store.shared, None, revision)
        self._store.shared.unlock("backfill", lock)

    # for a version that is being built
    def fill(self, collection: Collection, after: int) -> tuple[int, int | None]:
        """Enqueue the next slice of records after number `after` that the version lacks. Returns
        how many, and the last record checked: None at the end."""
        for found in expected_slices(self._store, collection.version, _SLICE, after):
            if lacking := [e.record for e in found if _lacks(e, False)]:
                return self._enqueue(collection, lacking), found[-1].record
        return 0, None

    # parts
    def _serving(self, kind: str | None) -> list[Collection]:
        return [
            c
            for c in self._store.versions.collections()
            if c.state != "retired" and c.spec is not None and kind in (None, c.kind)
        ]

    def _changed_chunkers(self, kind: str | None) -> dict[int, KindSpec]:
        """The chunkers of this process that differ from the store's, by version; kinds that need
        another program's code are left out."""
        return {
            c.version: way
            for c in self._serving(kind)
            if (c.kind in self._kinds or not c.app)
            and (way := self._pipeline.served.way_of(c))
            and way.chunker != c.chunker
        }

    def _lacking(
        self, collection: Collection, *, recut: bool, after: int = 0
    ) -> Iterator[tuple[int, list[int]]]:
        """Slices: the number of records checked, and those of them that lack current vectors."""
        for found in expected_slices(self._store, collection.version, _SLICE, after):
            yield len(found), [e.record for e in found if _lacks(e, recut)]

    def _enqueue(self, collection: Collection, records: list[int]) -> int:
        if not records:
            return 0
        priority = self._settings.backfill_priority
        return self._store.changes.reopen(
            collection.version, records, forget=False, priority=priority
        )

    def _backfilled(self, collection: Collection) -> int:
        return notes.BACKFILLED.of(collection.version).get(self._store.shared) or 0

    def _note_done(self, collection: Collection) -> None:
        notes.BACKFILLED.of(collection.version).put(self._store.shared, collection.cut_since)

    # templates
    def _template_changed(self, kind: Kind) -> bool:
        rendered = kind.model is not None or kind.text is not None
        return (
            rendered and notes.TEMPLATE.of(kind.name).get(self._store.shared) != kind.fingerprint()
        )

    def _render(self, name: str | None, *, dry_run: bool) -> Iterator[list[Draft]]:
        """Render typed records again, slice by slice; yields those whose text has changed. A record
        with newer content that waits to be read is left as it is, and so is that content: the kind
        counts as done only if there was none, so that the next start finds it."""
        for kind in self._kinds.values():
            if name not in (None, kind.name) or (kind.model is None and kind.text is None):
                continue
            owes = self._store.records.any_unread(kind.name)
            after = 0
            while found := self._store.records.typed(kind.name, after, _SLICE):
                after = found[-1].record
                by_tenant: dict[str, list[Draft]] = {}
                for typed in found:
                    if draft := self._rendered(kind, typed):
                        by_tenant.setdefault(typed.tenant, []).append(draft)
                changed = []
                for tenant, drafts in by_tenant.items():
                    if not dry_run:
                        self._save(tenant, kind, drafts)
                    changed += drafts
                yield changed
            if not dry_run and not owes:
                notes.TEMPLATE.of(kind.name).put(self._store.shared, kind.fingerprint())

    def _save(self, tenant: str, kind: Kind, drafts: Sequence[Draft]) -> None:
        """Save rendered records. Those with a row that waits to be read are read again for all
        versions: one of them may have read it before, with the old template."""
        tickets = self._store.changes.save(tenant, kind.name, drafts)
        left = [ticket.id for ticket in tickets if not ticket.accepted]
        if left and kind.load:
            priority = self._settings.backfill_priority
            self._store.changes.enqueue(tenant, kind.name, left, loaded=False, priority=priority)

    def _rendered(self, kind: Kind, typed: Typed) -> Draft | None:
        """The record with its newly rendered text; None if that is unchanged or cannot be
        rendered."""
        options = {
            "id": typed.id, "title": typed.title, "metadata": json.loads(typed.metadata),
            "weight": typed.weight, "priority": self._settings.backfill_priority,
            "created_at": datetime.fromtimestamp(typed.created_at, UTC),
            "updated_at": datetime.fromtimestamp(typed.updated_at, UTC),
        }  # fmt: skip
        try:
            draft = kind.draft(json.loads(typed.data), options, self._settings)
        except InvalidRecord as error:
            log.warning("backfill: %s %r cannot be rendered: %s", kind.name, typed.id, error)
            return None
        draft.if_seq = typed.seq
        return None if draft.hash == typed.hash else draft


def _lacks(record: Expected, recut: bool) -> bool:
    if not record.live or record.busy or record.job is Status.FAILED:
        return False
    return recut or not (record.current and record.cut and record.hashes)
