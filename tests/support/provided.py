"""Workers in processes of their own that embed by a provider in another, and what they made."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evervec
from evervec import Evervec
from support.leaps import Leaps
from support.places import Place, query, vector_of
from support.processes import Child, Start
from support.provider import vectors
from support.provider_process import ProviderProcess

DIMENSIONS = 8
NOTES = [3_000, pytest.param(10_000, marks=pytest.mark.long)]
"""how many wait for the provider: parameters of a fixture"""


class Provided:
    """A store with notes that wait, its provider, and the workers that a test starts."""

    def __init__(
        self,
        place: Place,
        provider: ProviderProcess,
        start: Start,
        folder: Path,
        count: int,
        **settings: Any,
    ) -> None:
        self.place = place
        self._count = count
        self.provider = provider
        self.clock = Leaps(place, folder)
        self._start = start
        self._settings = {
            "openai_url": provider.openai_url, "openai_key": "sk-any", "dimensions": DIMENSIONS,
            "provider_batch": 64, **settings,
        }  # fmt: skip
        self.ev = evervec.open(place, embedder="openai", clock=self.clock, **self._settings)

    def add_notes(self) -> dict[str, str]:
        """The notes that wait."""
        notes = {str(n): f"note {n} about the orchard and the barn" for n in range(self._count)}
        self.add(notes)
        return notes

    def add(self, notes: Mapping[str, str]) -> None:
        list(self.ev.add_many("note", ({"id": id, "text": text} for id, text in notes.items())))

    def worker(self, **settings: Any) -> Child:
        """In a process of its own."""
        return self._start(
            "work",
            self.place,
            embedder="openai",
            settings={**self._settings, **settings},
            leaps=str(self.clock.file),
        )

    @property
    def done(self) -> int:
        return self.ev.queue.stats().done

    def close(self) -> None:
        self.ev.close()
        getattr(self.ev.embedder, "close", int)()


@contextmanager
def provided(
    place: Place, provider: ProviderProcess, start: Start, folder: Path, count: int, **settings: Any
) -> Iterator[Provided]:
    made = Provided(place, provider, start, folder, count, **settings)
    try:
        yield made
    finally:
        made.close()


def attempts(place: Place) -> Counter[tuple[int, str]]:
    """How many attempts there were of each number and outcome."""
    return Counter(query(place, "select attempt, outcome from evervec_attempts"))


def assert_indexed(ev: Evervec, place: Place, notes: Mapping[str, str], *, failed: int = 0) -> None:
    """The index holds the right vector of each of these notes, and nothing else; only those
    that failed are missing."""
    held = """select r.id, p.vector from evervec_points as p
              join evervec_records as r on r.record = p.record where p.vector is not null"""
    found = query(place, held)
    assert len(found) == len(notes)
    stored = {id: vector_of(vector) for id, vector in found}
    assert stored.keys() == notes.keys()
    rows = np.stack([stored[id] for id in notes])
    np.testing.assert_allclose(rows, vectors(list(notes.values()), DIMENSIONS), atol=1e-5)
    report = ev.verify()
    assert report.missing == failed
    assert (report.stale, report.orphaned, report.doubled) == (0, 0, 0)
