"""Common parts of indexes outside the store's database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from evervec.model.records import Change
from evervec.stores.base import Store
from evervec.stores.values import Collection


class Collections:
    """The store's collections by number: such an index names its tables after them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[int, Collection] = {}

    def get(self, version: int) -> Collection | None:
        """None while no embedder has made vectors for it."""
        found = self._known.get(version)
        if found is None:
            self._known = {c.version: c for c in self._store.versions.collections() if c.spec}
            found = self._known.get(version)
        return found

    def all(self) -> list[Collection]:
        return [c for c in self._store.versions.collections() if c.spec]


def folded(changes: Sequence[Change]) -> list[Change]:
    """One change for each record, the latest, with those points of earlier changes that it
    keeps."""
    latest: dict[int, Change] = {}
    for change in sorted(changes, key=lambda c: c.seq):
        before = latest.get(change.record)
        latest[change.record] = _following(before, change) if before else change
    return list(latest.values())


def _following(before: Change, change: Change) -> Change:
    given = {p.hash for p in change.points}
    carried = [
        p._replace(position=change.kept[p.hash])
        for p in before.points
        if p.hash in change.kept and p.hash not in given
    ]
    return replace(change, points=[*change.points, *carried])
