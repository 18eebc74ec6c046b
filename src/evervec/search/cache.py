"""Caches the versions and records that searches read, until the next write.

Every search reads the store's mark, which changes with every write of any process. While the mark
is unchanged the cache is valid, so a search whose hits are cached reads nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from evervec.chunking import Chunker
from evervec.embedding.registry import Model
from evervec.model.filters import Conditions, matches
from evervec.model.ranking import PLAIN, Rescore
from evervec.stores.base import Store
from evervec.stores.values import Candidate, Found

Factors = tuple[float, float, float, float]
"""the factor of a record's weight, the age in seconds that halves it, the weight, and when it was
updated"""
_MOST_FACTORS = 100_000
_MOST_CHARACTERS = 16_000_000
_FIRST_PORTION = 16
_LONG_PORTION = 1_000_000
"""characters above which the next portion has fewer records"""


class ServingVersion(NamedTuple):
    """The version by which a kind is searched."""

    kind: str
    version: int
    name: str
    model: Model
    chunker: Chunker | None
    """None: this process lacks its code"""

    @property
    def whole(self) -> int:
        """Number of bytes up to which a text is certainly one chunk."""
        return getattr(self.chunker, "whole", 0)

    @property
    def dimensions(self) -> int:
        return self.model.spec.dimensions


class Scope(NamedTuple):
    """The versions that a search covers."""

    serving: list[ServingVersion]
    models: list[Model]
    names: str | None


class Read(NamedTuple):
    """A live record as it was read."""

    kind: str
    id: str
    title: str | None
    whole: str | None
    """its text, if that is certainly one chunk"""
    flat: dict[str, Any] | None
    """its metadata, if a shallow copy shares no values with it"""
    found: Found

    def metadata(self) -> dict[str, Any]:
        """A fresh copy, so that changes to it do not affect the cache."""
        metadata: dict[str, Any] = json.loads(self.found.metadata)
        return metadata

    def fits(self, conditions: Conditions) -> bool:
        return matches(self.metadata() if self.flat is None else self.flat, conditions)


class SearchCache:
    """What is cached for one mark of the store."""

    def __init__(
        self,
        store: Store,
        tenant: str,
        rescores: Mapping[str, Rescore],
        mark: int,
        all: list[ServingVersion],
    ) -> None:
        self.mark = mark
        self._store = store
        self._tenant = tenant
        self._rescores = rescores
        self._whole = {s.kind: s.whole for s in all}
        self._all = _scope(all)
        self._factors: dict[int, Factors | None] = {}
        self._alike: dict[tuple[str, float], tuple[float, float, float]] = {}
        self._read: dict[int, Read | None] = {}
        self._characters = 0

    @property
    def is_full(self) -> bool:
        return len(self._factors) > _MOST_FACTORS or self._characters > _MOST_CHARACTERS

    def scope(self, kinds: Sequence[str] | None) -> Scope:
        if kinds is None:
            return self._all
        return _scope([s for s in self._all.serving if s.kind in kinds])

    @property
    def most_strength(self) -> float:
        """The highest factor that weight gives a record."""
        return max(rescore.strength(1.0) for rescore in (PLAIN, *self._rescores.values()))

    def rescore_of(self, kind: str) -> Rescore:
        return self._rescores.get(kind, PLAIN)

    def factors(self, records: Iterable[int]) -> list[Factors | None]:
        """The parts of the records' relevance that do not depend on the query; None for a record
        that is not live."""
        known = self._factors
        try:
            return list(map(known.__getitem__, records))
        except KeyError:
            unknown = [record for record in records if record not in known]
        alive = self._store.records.candidates(self._tenant, unknown)
        known.update((record, self._factors_of(alive.get(record))) for record in unknown)
        return [known[record] for record in records]

    def _factors_of(self, candidate: Candidate | None) -> Factors | None:
        if candidate is None:
            return None
        alike = (candidate.kind, candidate.weight)
        # most records share these numbers: reading one shared object is faster
        if alike not in self._alike:
            rescore = self.rescore_of(candidate.kind)
            self._alike[alike] = (
                rescore.strength(candidate.weight), rescore.decay, candidate.weight,
            )  # fmt: skip
        return (*self._alike[alike], candidate.updated_at)

    def read(self, records: Sequence[int]) -> Iterator[Read | None]:
        """Records as they are shown; None for a record that is not live.

        They are read in portions, which become smaller where texts are long: at most the cached
        records and one more portion are held in memory.
        """
        start, portion = 0, _FIRST_PORTION
        while start < len(records):
            before = self._characters
            yield from self._portion(records[start : start + portion])
            start += portion
            is_long = self._characters - before > _LONG_PORTION
            portion = max(1, portion // 8) if is_long else 2 * portion

    def _portion(self, records: Sequence[int]) -> list[Read | None]:
        known = self._read
        try:
            return list(map(known.__getitem__, records))
        except KeyError:
            unknown = [record for record in records if record not in known]
        alive = self._store.records.found(unknown)
        shown = {record: self._shown(alive.get(record)) for record in unknown}
        if not self.is_full:
            known.update(shown)
        return [shown[record] if record in shown else known[record] for record in records]

    def _shown(self, found: Found | None) -> Read | None:
        if found is None:
            return None
        size = len(found.text) if found.text.isascii() else 4 * len(found.text)
        self._characters += size + len(found.metadata) + len(found.data or "")
        whole = found.text.strip() if size <= self._whole.get(found.kind, 0) else None
        flat = _flat(json.loads(found.metadata))
        return Read(found.kind, found.id, found.title, whole, flat, found)


def _scope(serving: list[ServingVersion]) -> Scope:
    names = ", ".join(sorted({s.name for s in serving}))
    return Scope(serving, list(dict.fromkeys(s.model for s in serving)), names or None)


def _flat(metadata: dict[str, Any]) -> dict[str, Any] | None:
    return None if any(isinstance(v, list | dict) for v in metadata.values()) else metadata
