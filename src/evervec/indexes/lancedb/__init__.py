"""Vectors in a LanceDB folder: a table for each kind and embedding version, named after both.

`table` applies changes and refuses late ones, `writer` commits them one at a time, and `reader` reads
what was committed. The folder touches LanceDB, and the store's locks and notes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence, Set
from typing import Any

from evervec.errors import WrongCollection
from evervec.indexes.base import (
    Held,
    Matches,
    Query,
    StoredVector,
    Stray,
    by_version,
    similarities_of,
)
from evervec.indexes.lancedb.filters import numbers
from evervec.indexes.lancedb.head import Head
from evervec.indexes.lancedb.table import Table, table_names
from evervec.indexes.separate import Collections
from evervec.indexes.writer_lock import WriterLock
from evervec.model.records import Change, ModelSpec
from evervec.model.reports import IndexBuild
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.stores.values import Applied, Collection


class LanceIndex:
    """One writer of all processes at a time; searches do not wait."""

    shares_store = False
    generation = 0

    def __init__(self, folder: str, store: Store, settings: Settings) -> None:
        self.url = f"lancedb://{folder}"
        self._folder = folder
        self._store = store
        self._ann_rows = settings.lancedb_ann_rows
        self._collections = Collections(store)
        self._writer_lock = WriterLock(store, self.url, settings.writer_lock_seconds)
        self._tables: dict[int, Table] = {}

    def apply(self, changes: Sequence[Change], conn: Any = None) -> Applied:
        applied = Applied()
        if not changes:
            return applied
        with self._writer_lock.hold():
            now = self._store.now()
            for version, group in by_version(changes):
                table = self._table(version)
                if table is None:
                    continue  # no vectors were ever made for it, so there is nothing to remove
                if wrong := table.misfit():
                    raise WrongCollection(wrong, version=version)
                applied.add(table.write(group, now))
                table.writer.tidy_if_needed()
        return applied

    def refuses(self, kind: str, spec: ModelSpec) -> str | None:
        name = table_name(Collection(0, kind, "building", "", False, 0, spec))
        return Table(self._folder, name, self._head(name), spec.dimensions).misfit()

    def search(self, query: Query) -> Matches:
        table = self._table(query.version)
        return table.search(query) if table else Matches()

    def similarities(self, query: Query, records: Sequence[int]) -> dict[int, float]:
        return similarities_of(self.vectors(query.version, records), query.vector)

    def vectors(self, version: int, records: Sequence[int]) -> dict[int, list[StoredVector]]:
        table = self._table(version)
        return table.vectors(records) if table and records else {}

    def held(self, version: int, tenant: str | None, after: int, upto: int | None) -> list[Held]:
        table = self._table(version)
        return table.held(tenant, after, upto) if table else []

    def remove(self, version: int, points: Sequence[Held]) -> int:
        table = self._table(version)
        if table is None or not points:
            return 0
        with self._writer_lock.hold():
            return table.remove(points)

    def drop(self, version: int) -> None:
        table = self._table(version)
        if table is not None:
            with self._writer_lock.hold():
                table.writer.drop()
            self._tables.pop(version, None)

    def revive(self, version: int, records: Sequence[int]) -> None:
        table = self._table(version)
        if table is not None and records:
            with self._writer_lock.hold():
                table.delete(f"removed_at is not null and record in ({numbers(records)})")

    def strays(self, known: Set[int], tenant: str | None) -> list[Stray]:
        """Stray points, in tables that evervec made and that belong to no known version of its
        store."""
        versions = {table_name(c): c.version for c in self._collections.all()}
        return [
            Stray(versions.get(name), owner, records, name)
            for name in table_names(self._folder)
            if versions.get(name) not in known
            for owner, records in self._stray(name).tenants(tenant).items()
        ]

    def drop_strays(self, strays: Sequence[Stray]) -> None:
        for stray in strays:
            with self._writer_lock.hold():
                self._stray(stray.place).drop_tenant(stray.tenant)

    def maintain(self, before: float) -> None:
        for collection in self._collections.all():
            table = self._table(collection.version)
            if table is not None:
                with self._writer_lock.hold():
                    table.heal()
                    table.purge(before)
                    table.writer.maintain()

    def builds(self) -> list[IndexBuild]:
        return []

    def is_loaded(self, version: int, tenant: str) -> bool:
        return True

    def close(self) -> None:
        self._tables.clear()

    def table(self, collection: Collection) -> str:
        return table_name(collection)

    def _table(self, version: int) -> Table | None:
        table = self._tables.get(version)
        if table is None and (collection := self._collections.get(version)):
            assert collection.spec is not None
            name = table_name(collection)
            table = Table(
                self._folder, name, self._head(name), collection.spec.dimensions, self._ann_rows
            )
            table = self._tables.setdefault(version, table)
        return table

    def _stray(self, name: str) -> Table:
        return Table(self._folder, name, self._head(name))

    def _head(self, table: str) -> Head:
        return Head(self._store, f"{self.url}/{table}")


def table_name(collection: Collection) -> str:
    """Such as `note_vectors_minilm_v2`. If a name has to be changed for that, a short hash
    distinguishes it from similar names."""
    assert collection.spec is not None
    names = (collection.kind, collection.spec.name)
    kind, version = (re.sub(r"[^a-z0-9_]", "_", name.lower())[:80] for name in names)
    plain = (collection.kind, collection.spec.name.replace("-", "_"))
    name = f"{kind}_vectors_{version}"
    if (kind, version) == plain and "_" not in names[1] and "_vectors_" not in kind:
        return name
    return f"{name}_{hashlib.blake2s(repr(names).encode()).hexdigest()[:8]}"
