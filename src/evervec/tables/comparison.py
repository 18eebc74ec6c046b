"""Compares the records of attached tables with their rows, for `verify`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from evervec.errors import InvalidArgument, StoreError
from evervec.model.findings import Findings
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.stores.slices import records_of
from evervec.stores.values import Draft, Expected
from evervec.tables.base import UNFIT, Attachment, Row, TableChanged
from evervec.tables.source import Source
from evervec.tables.tables import Tables

_AT_ONCE = 2000


def compare_tables(
    tables: Tables,
    tenant: str | None,
    findings: Findings,
    *,
    repair: bool,
    kind: str | None = None,
    faults: Container[str] | None = None,
) -> None:
    """Find records that are missing, stale or orphaned compared with the rows of their tables, and
    tables that are not followed. `repair` enqueues the former and attaches the latter again, or
    with `faults` only enqueues the records with these. Records with an unfinished job are left
    out."""
    while tables.follow():
        pass
    for attachment, backfilled in tables.attached():
        if kind not in (None, attachment.kind):
            continue
        assert tables.source is not None
        comparison = _Comparison(tables.source, tables.store, tables.settings, attachment)
        troubles = list(tables.troubles_of(attachment, tenant))
        repairs = repair  # not if the table is no longer as it was attached
        if repair and tables.trouble(attachment) is not None:
            repairs = faults is None and _attach_again(tables.source, attachment, troubles)
            findings.repaired += repairs
        try:
            if backfilled:
                comparison.compare(tenant, findings, repair=repairs, faults=faults)
        except TableChanged as error:
            if str(error) not in troubles:
                troubles.append(str(error))
        where = f"{attachment.table} as {attachment.kind}"
        findings.troubles += [f"{where}: {trouble}" for trouble in troubles]
        if not backfilled:
            findings.unchecked.append(f"{where}: existing rows are still being enqueued")


def _attach_again(source: Source, attachment: Attachment, troubles: list[str]) -> bool:
    """Create the triggers again for a table as it is now, and have workers check all of its rows;
    False if that is not possible. Adds to `troubles` what was done, or why not."""
    try:
        source.attach(attachment)
    except (InvalidArgument, StoreError) as error:
        troubles.append(f"it cannot be attached again: {error}")
        return False
    troubles.append("it was attached again, and workers check all of its rows")
    return True


class _Comparison:
    """The rows of one table, and the records of its kind."""

    def __init__(
        self, source: Source, store: Store, settings: Settings, attachment: Attachment
    ) -> None:
        self._source = source
        self._store = store
        self._settings = settings
        self._attachment = attachment
        self._kind = attachment.kind

    def compare(
        self,
        tenant: str | None,
        findings: Findings,
        *,
        repair: bool,
        faults: Container[str] | None,
    ) -> None:
        for owner, fault, ids in self._wrong():
            if not ids or tenant not in (None, owner):
                continue
            findings.counts[owner, self._kind, fault] += len(ids)
            if repair and (faults is None or fault in faults):
                self._store.changes.enqueue(owner, self._kind, ids, loaded=True)
                findings.repaired += len(ids)

    def _wrong(self) -> Iterator[tuple[str, str, list[str]]]:
        """The faulty ids, by tenant and fault."""
        for tenant, lost, old in self._off():
            yield tenant, "missing", lost
            yield tenant, "stale", old
        for tenant, ids in self._without_rows():
            yield tenant, "orphaned", ids

    def _off(self) -> Iterator[tuple[str, list[str], list[str]]]:
        """By tenant, the ids of rows that have no record, and of rows whose record differs."""
        behind: Sequence[Any] = ()
        while rows := self._source.page(self._attachment, behind, _AT_ONCE):
            behind = rows[-1].key
            for tenant, drafts in self._drafts(rows).items():
                lost, old = self._differing(tenant, drafts)
                if suspects := [*lost, *old]:
                    still = self._drafts(self._look_again(suspects).values())
                    lost, old = self._differing(tenant, still.get(tenant, {}))
                yield tenant, lost, old

    def _without_rows(self) -> Iterator[tuple[str, list[str]]]:
        """By tenant, the ids of live records whose rows are gone or have no text."""
        for found in records_of(self._store, self._kind, _AT_ONCE):
            live = [record for record in found if record.live and not record.busy]
            rows = self._source.rows(self._attachment, [r.id for r in live])
            for tenant, ids in self._gone(live, rows).items():
                again = self._look_again(ids)
                suspects = [r for r in live if r.tenant == tenant and r.id in again]
                still = self._gone(suspects, again).get(tenant, [])
                known = self._store.records.digests(tenant, self._kind, still)
                yield tenant, [id for id in still if id in known and not known[id].busy]

    def _look_again(self, ids: Sequence[str]) -> dict[str, Row | None]:
        """Read the rows of some records again, without those that have a logged change with no job
        yet: a writer or a worker may have been active between two reads. A change that is no longer
        in the log has its job by now, so the next read of the records shows it."""
        rows = self._source.rows(self._attachment, ids)
        self._source.fold(_AT_ONCE)
        logged = self._source.logged(self._kind, ids)
        return {id: rows.get(id) for id in ids if id not in logged}

    def _drafts(self, rows: Iterable[Row | None]) -> dict[str, dict[str, Draft]]:
        """The records that the rows should be, by tenant and id. The job of a row that cannot be
        one failed with the reason."""
        drafts: dict[str, dict[str, Draft]] = defaultdict(dict)
        for row in rows:
            draft = self._draft(row) if row is not None else None
            if row is not None and isinstance(draft, Draft):
                drafts[self._attachment.tenant_of(row)][draft.id] = draft
        return drafts

    def _draft(self, row: Row) -> Draft | Exception | None:
        try:
            return self._attachment.draft(row, self._settings)
        except UNFIT as error:
            return error

    def _gone(
        self, records: Iterable[Expected], rows: Mapping[str, Row | None]
    ) -> dict[str, list[str]]:
        """By tenant, the ids of records whose row is gone or has no text."""
        gone: dict[str, list[str]] = defaultdict(list)
        for record in records:
            row = rows.get(record.id)
            if (
                row is None
                or self._attachment.tenant_of(row) != record.tenant
                or self._draft(row) is None
            ):
                gone[record.tenant].append(record.id)
        return gone

    def _differing(self, tenant: str, drafts: Mapping[str, Draft]) -> tuple[list[str], list[str]]:
        """The ids of drafts that have no record, and of those whose record differs."""
        known = self._store.records.digests(tenant, self._kind, list(drafts))
        lost = [id for id in drafts if id not in known]
        old = [
            id
            for id, d in drafts.items()
            if id in known
            and not known[id].busy
            and known[id] != (d.hash, d.metadata, d.weight, d.updated_at or known[id].updated_at, 0)
        ]
        return lost, old
