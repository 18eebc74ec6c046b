"""A large store for the dashboard: records, jobs that are done, that failed and that wait."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import gettempdir
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

import evervec
from evervec.embedders.hashing import HashingEmbedder
from evervec.errors import InvalidInput

_DIMENSIONS = 32
KINDS = ("note", "article", "ticket")
_REASONS = ("has more than 8192 tokens", "is not in a language of this model", "is empty")
WAITING = 0.02
"""share of the records that nobody has embedded yet"""


class Picky(HashingEmbedder):
    """Refuses a few texts, each for one of three reasons."""

    def __init__(self) -> None:
        super().__init__(_DIMENSIONS)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        refused = [place for place, text in enumerate(texts) if "refused" in text]
        if refused:
            reason = _REASONS[crc32(texts[refused[0]].encode()) % len(_REASONS)]
            raise InvalidInput(refused, f"the text {reason}")
        return super().embed(texts)


def large_store(size: int) -> Path:
    """A store of so many records and as many jobs; it is kept, as it takes minutes to make."""
    folder = Path(gettempdir(), f"evervec-dashboard-{size}")
    path = folder / "store.db"
    if (folder / "made").exists():
        return path
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    # each of the many refused texts would be a line among the results
    logging.getLogger("evervec").setLevel(logging.CRITICAL)
    with evervec.open(path, embedder=Picky()) as ev:
        waiting = int(size * WAITING)
        for kind in KINDS:
            _add(ev, kind, 0, (size - waiting) // len(KINDS))
        ev.process_all()
        _add(ev, "note", size, waiting)
    (folder / "made").touch()
    return path


def _add(ev: evervec.Evervec, kind: str, first: int, count: int) -> None:
    for _ in ev.add_many(kind, _records(first, count)):
        pass


def _records(first: int, count: int) -> Iterator[dict[str, Any]]:
    for number in range(first, first + count):
        refused = " refused" if number % 50 == 7 else ""
        yield {
            "id": f"r{number}",
            "text": f"record {number} about subject {number % 997}{refused}",
            "title": f"Record {number}",
            "metadata": {"shelf": number % 100, "author": f"author {number % 37}"},
        }
