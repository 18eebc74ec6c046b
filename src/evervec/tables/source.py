"""Turns the log of changed keys, and the rows that existed before, into jobs.

The same for every engine. A job is made in the transaction that removes its log rows, and the row
is read when the job is done. So of many changes only the latest is embedded, and none is missed,
whichever worker processes the log and wherever it dies.
"""

from __future__ import annotations

import json
import logging
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from evervec.errors import InvalidArgument, InvalidRecord, ValueRefused
from evervec.stores.slices import records_of
from evervec.stores.sql.engine import Connection
from evervec.stores.sql.retries import retried_whole
from evervec.stores.values import Expected
from evervec.tables.attached import AttachedTables, Found, loaded
from evervec.tables.base import Attachment, Row, TableChanged, Unfit

log = logging.getLogger("evervec")
_AT_ONCE = 5000


class TableSource(AttachedTables[Found]):
    """The application's own tables in a store's database, which are followed."""

    @retried_whole
    def fold(self, limit: int) -> int:
        """Turn logged changes into jobs; returns how many log rows were processed. A row whose key
        or tenant cannot be a record's is set aside."""
        if not self._exists(self.sql.any_changes):
            return 0
        changes = _Changes()
        emptied = set()
        with self._writing() as conn:
            logged = conn.execute(self.sql.take_changes, (limit,)).fetchall()
            # a detach that waits for this lock then sees all jobs made from its log
            attached = loaded(conn.execute(self.sql.attached + self.to_share))
            known = {a.attachment.kind: a.attachment for a in attached}
            for kind, tenant, id in logged:  # without an id: the table was truncated
                attachment = known.get(kind)
                if attachment is None:
                    continue
                if id is None:
                    emptied.add(kind)
                else:
                    changes.add(attachment, tenant, id)
            self._enqueue(conn, changes, 0)
            for kind in sorted(emptied):
                for records in records_of(self._store, kind, _AT_ONCE):
                    # also records that a worker may be about to make visible
                    self._enqueue(conn, _by_owner(r for r in records if r.live or r.busy), 0)
            found = self._put_aside(conn, changes.unfit)
        _report(known, found)
        return len(logged)

    # rows that cannot be records
    def waiting(self) -> bool:
        """Whether changes or existing rows wait to become jobs."""
        return self._exists(self.sql.any_changes) or self._exists(self.sql.any_unfinished)

    def set_aside(self, attachment: Attachment) -> Unfit | None:
        """An example of the rows that cannot be records, if any are known. Cheap as long as the
        last example still exists, or none is known."""
        marked = self._marked(attachment.kind)
        if marked is None:
            return None
        example, times = marked
        for row in self.rows(attachment, [example]).values():
            owner = attachment.tenant_of(row)
            if found := unfit(attachment, row):
                return found
            if not self._store.records.digests(owner, attachment.kind, [row.id]):
                return Unfit(owner, row.id, "the store rejected it")
        found = next(self.unfit(attachment), None)
        if found is None:
            self._clear_mark(attachment.kind, times)
        return found

    def unfit(self, attachment: Attachment) -> Iterator[Unfit]:
        """All rows that cannot be records, found by reading all keys; may raise `TableChanged`."""
        behind: Sequence[Any] = ()
        while rows := self.keys(attachment, behind, _AT_ONCE):
            behind = rows[-1].key
            yield from filter(None, (unfit(attachment, row) for row in rows))

    def _put_aside(self, conn: Connection, found: Mapping[str, Unfit]) -> dict[str, Unfit]:
        """Remember an example by kind; returns those of kinds that had none before."""
        return {kind: example for kind, example in found.items() if self._mark(conn, kind, example)}

    @retried_whole
    def backfill(self, limit: int, priority: int) -> int:
        """Enqueue a slice of the rows that existed before, in order of their keys, and then of the
        records whose row no longer exists; returns how many were checked."""
        if not self._exists(self.sql.any_unfinished):
            return 0
        with self._writing() as conn:
            # those that no other process is backfilling
            unfinished = conn.execute(self.sql.unfinished + self.to_own).fetchall()
            for definition, position in unfinished:
                attachment = Attachment.load(definition)
                if self.trouble(attachment) is None:
                    place = json.loads(position)
                    count, found = self._go_on(conn, attachment, place, limit, priority)
                    break
            else:
                return 0
        _report({attachment.kind: attachment}, found)
        return count

    def _go_on(
        self, conn: Connection, attachment: Attachment, position: Any, limit: int, priority: int
    ) -> tuple[int, dict[str, Unfit]]:
        """Continue a backfill: rows after a key first; when there are no more, records after a
        number."""
        if isinstance(position, dict):
            return self._sweep(conn, attachment, position["record"], limit, priority), {}
        behind = [_unpacked(part) for part in position]
        rows = self._page(conn, self._check(conn, attachment), (), behind, limit)
        if not rows:
            return self._sweep(conn, attachment, 0, limit, priority), {}
        changes = _Changes()
        for row in rows:
            changes.add(attachment, row.tenant, row.id)
        self._enqueue(conn, changes, priority)
        more = [_packed(part) for part in rows[-1].key] if len(rows) == limit else {"record": 0}
        self._set_position(conn, attachment.kind, json.dumps(more))
        return len(rows), self._put_aside(conn, changes.unfit)

    def _sweep(
        self, conn: Connection, attachment: Attachment, after: int, limit: int, priority: int
    ) -> int:
        """Enqueue records whose rows are gone: deleted while no trigger existed, or of a table that
        the kind was attached to before."""
        found = next(records_of(self._store, attachment.kind, limit, after), [])
        live = [record for record in found if record.live]
        try:
            rows = self.rows(attachment, [record.id for record in live])
        except TableChanged:
            return 0
        gone = (r for r in live if r.id not in rows or attachment.tenant_of(rows[r.id]) != r.tenant)
        self._enqueue(conn, _by_owner(gone), priority)
        more = json.dumps({"record": found[-1].record}) if len(found) == limit else None
        self._set_position(conn, attachment.kind, more)
        return len(found)

    def _enqueue(self, conn: Connection, changes: _Changes, priority: int) -> None:
        for (tenant, kind), ids in sorted(changes.ids.items()):
            for id, error in self._enqueue_each(conn, tenant, kind, list(ids), priority):
                changes.unfit[kind] = Unfit(tenant, id, str(error))

    def _enqueue_each(
        self, conn: Connection, tenant: str, kind: str, ids: list[str], priority: int
    ) -> list[tuple[str, ValueRefused]]:
        """Enqueue ids; those that the store refuses are found by bisection."""
        try:
            self._store.changes.enqueue(
                tenant, kind, ids, loaded=True, priority=priority, conn=self._raw(conn)
            )
        except ValueRefused as error:
            if len(ids) == 1:
                return [(ids[0], error)]
        else:
            return []
        half = len(ids) // 2
        return [
            refused
            for some in (ids[:half], ids[half:])
            for refused in self._enqueue_each(conn, tenant, kind, some, priority)
        ]

    @abstractmethod
    def _writing(self) -> AbstractContextManager[Connection]:
        """A transaction that need not be durable at once, because a lost fold is repeated; it
        returns keys as the triggers write them."""

    @abstractmethod
    def _raw(self, conn: Any) -> Any:
        """The driver's connection."""


Source = TableSource[Any]


class _Changes:
    """The ids to enqueue, and the rows that cannot be records."""

    def __init__(self) -> None:
        self.ids: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        """by tenant and kind, each once"""
        self.unfit: dict[str, Unfit] = {}
        """an example by kind"""

    def add(self, attachment: Attachment, tenant: str | None, id: str) -> None:
        try:
            owner, same = attachment.identify(tenant, id)
        except (InvalidRecord, InvalidArgument) as error:
            owner = tenant or attachment.owner
            self.unfit[attachment.kind] = Unfit(owner, id, str(error))
        else:
            self.ids[owner, attachment.kind][same] = None


def unfit(attachment: Attachment, row: Row) -> Unfit | None:
    """Why a row cannot be a record, as far as its key and tenant show."""
    try:
        attachment.identify(row.tenant, row.id)
    except (InvalidRecord, InvalidArgument) as error:
        return Unfit(attachment.tenant_of(row), row.id, str(error))
    return None


def _by_owner(records: Iterable[Expected]) -> _Changes:
    changes = _Changes()
    for record in records:
        changes.ids[record.tenant, record.kind][record.id] = None
    return changes


def _report(known: Mapping[str, Attachment], found: Mapping[str, Unfit]) -> None:
    for kind, example in found.items():
        log.warning(
            "a changed row of %s cannot be indexed and is skipped: %s",
            known[kind].table, example, extra={"kind": kind},
        )  # fmt: skip


def _packed(part: Any) -> Any:
    return {"hex": part.hex()} if isinstance(part, bytes) else part


def _unpacked(part: Any) -> Any:
    return bytes.fromhex(part["hex"]) if isinstance(part, dict) else part
