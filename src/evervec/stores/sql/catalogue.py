"""The kinds and embedding versions of a store, cached until they change.

Clients choose the names of kinds, so there may be many: no work per claim or per search may loop
over all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection as Some
from collections.abc import Hashable, Iterable, Set
from typing import Any

from evervec.model.ranking import PLAIN, Rescore
from evervec.model.records import ModelSpec
from evervec.stores.values import Collection


class VersionNames(dict[int, str]):
    """The names of embedding versions by number. A dropped version is named by its number: one of
    its jobs may exist until the next purge."""

    def __missing__(self, version: int) -> str:
        return str(version)


class Catalogue:
    """A snapshot of all collections; `stamp` differs after any change."""

    def __init__(self, stamp: Hashable, rows: Iterable[tuple[Any, ...]]) -> None:
        self.stamp = stamp
        self.collections = [
            Collection(
                version, kind, state, chunker, bool(app), cut_since,
                ModelSpec(name, provider, model, dimensions) if name else None,
                PLAIN if base is None else Rescore(base, gain, days),
            )
            for version, kind, state, chunker, app, cut_since, name, provider, model, dimensions,
                base, gain, days
            in rows
        ]  # fmt: skip
        self.names = VersionNames(
            (c.version, c.spec.name if c.spec else "") for c in self.collections
        )
        self._of_kind: dict[str, list[Collection]] = defaultdict(list)
        for collection in self.collections:
            self._of_kind[collection.kind].append(collection)
        self._barred: tuple[Some[int], list[int]] = ((), list(self.names))

    def of(self, kinds: Iterable[str]) -> list[Collection]:
        """The collections of some kinds, the oldest first."""
        found = [c for kind in kinds for c in self._of_kind.get(kind, ())]
        found.sort(key=lambda c: c.version)
        return found

    def barred(self, versions: Some[int]) -> list[int]:
        """All versions except the given ones. This list is usually the shorter one: most processes
        serve every version. The last answer is cached, because a process asks for the same
        versions every time."""
        asked, barred = self._barred
        if asked is not versions:
            wanted = versions if isinstance(versions, Set) else set(versions)
            barred = [number for number in self.names if number not in wanted]
            self._barred = (versions, barred)
        return barred
