"""How the log of changed keys, and the rows that were there before, become jobs.

The same for every engine. A job is made in the transaction that takes its log rows away, and
the row is read when the job is done: so of many changes only the latest is embedded, and none
is missed, whoever folds and whoever dies on the way.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

from evervec.sources.base import Attached, Attachment, Row, TableChanged
from evervec.stores.base import Store
from evervec.stores.values import Expected

Conn = TypeVar("Conn")
Changed = dict[tuple[str, str], dict[str, None]]
"""ids by tenant and kind, each once"""
START = "[]"
"""the position of a backfill that has not begun"""
_AT_ONCE = 5000


class Following(ABC, Generic[Conn]):
    """The part of a source that is not in its engine's own words."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def fold(self, limit: int) -> int:
        if not self._any_changes():
            return 0
        changed: Changed = defaultdict(dict)
        emptied = set()
        with self._writing() as conn:
            logged = self._take_changes(conn, limit)
            known = {a.attachment.kind: a.attachment for a in self._attached(conn)}
            for kind, tenant, id in logged:
                attachment = known.get(kind)
                if attachment is None:
                    continue
                if id is None:
                    emptied.add(kind)
                else:
                    # engines may write JSON each in its own way
                    same = attachment.id_of(attachment.key_of(id))
                    changed[tenant or attachment.owner, kind][same] = None
            self._enqueue(conn, changed, 0)
            for kind in sorted(emptied):
                for records in self._records(kind):
                    # what a worker may just be about to reveal must be looked at again as well
                    self._enqueue(conn, _by_owner(r for r in records if r.live or r.busy), 0)
        return len(logged)

    def backfill(self, limit: int, priority: int) -> int:
        if not self._any_unfinished():
            return 0
        with self._writing() as conn:
            for attachment, position in self._unfinished(conn):
                if self.trouble(attachment) is None:
                    return self._go_on(conn, attachment, json.loads(position), limit, priority)
        return 0

    def _go_on(
        self, conn: Conn, attachment: Attachment, position: Any, limit: int, priority: int
    ) -> int:
        """Rows first, behind a key; then, once there are no more, records behind a number."""
        if isinstance(position, dict):
            return self._sweep(conn, attachment, position["record"], limit, priority)
        rows = self._page(conn, attachment, (), [_unpacked(part) for part in position], limit)
        if not rows:
            return self._sweep(conn, attachment, 0, limit, priority)
        changed: Changed = defaultdict(dict)
        for row in rows:
            changed[attachment.tenant_of(row), attachment.kind][row.id] = None
        self._enqueue(conn, changed, priority)
        more = [_packed(part) for part in rows[-1].key] if len(rows) == limit else {"record": 0}
        self._set_position(conn, attachment.kind, json.dumps(more))
        return len(rows)

    def _sweep(
        self, conn: Conn, attachment: Attachment, after: int, limit: int, priority: int
    ) -> int:
        """Enqueue records whose rows are gone: deleted while nobody watched, or of a table that
        the kind was attached to before."""
        found = next(self._records(attachment.kind, after, limit), [])
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

    def _records(
        self, kind: str, after: int = 0, limit: int = _AT_ONCE
    ) -> Iterator[list[Expected]]:
        for collection in self._store.collections():
            if collection.kind == kind and collection.state == "serving":
                while found := self._store.expected(None, collection.version, after, limit):
                    yield found
                    after = found[-1].record

    def _enqueue(self, conn: Conn, changed: Mapping[tuple[str, str], Any], priority: int) -> None:
        for (tenant, kind), ids in sorted(changed.items()):
            self._store.enqueue(
                tenant, kind, list(ids), loaded=True, priority=priority, conn=self._raw(conn)
            )

    # in the engine's own words
    @abstractmethod
    def _writing(self) -> AbstractContextManager[Conn]:
        """A transaction that need not be on disk at once: a fold that is lost is done again."""

    @abstractmethod
    def _raw(self, conn: Conn) -> Any: ...

    @abstractmethod
    def _any_changes(self) -> bool: ...

    @abstractmethod
    def _take_changes(self, conn: Conn, limit: int) -> Sequence[tuple[str, str | None, str | None]]:
        """Kind, tenant and id; no id: the table was emptied."""

    @abstractmethod
    def _attached(self, conn: Conn) -> list[Attached]: ...

    @abstractmethod
    def _any_unfinished(self) -> bool: ...

    @abstractmethod
    def _unfinished(self, conn: Conn) -> Sequence[tuple[Attachment, str]]:
        """Attachments that nobody else is backfilling, each with its position."""

    @abstractmethod
    def _set_position(self, conn: Conn, kind: str, position: str | None) -> None: ...

    @abstractmethod
    def _page(
        self,
        conn: Conn,
        attachment: Attachment,
        columns: Sequence[str],
        behind: Sequence[Any],
        limit: int,
    ) -> list[Row]: ...

    @abstractmethod
    def trouble(self, attachment: Attachment) -> str | None: ...

    @abstractmethod
    def rows(self, attachment: Attachment, ids: Sequence[str]) -> dict[str, Row]: ...


def _by_owner(records: Iterable[Expected]) -> Changed:
    changed: Changed = defaultdict(dict)
    for record in records:
        changed[record.tenant, record.kind][record.id] = None
    return changed


def _packed(part: Any) -> Any:
    return {"hex": part.hex()} if isinstance(part, bytes) else part


def _unpacked(part: Any) -> Any:
    return bytes.fromhex(part["hex"]) if isinstance(part, dict) else part
