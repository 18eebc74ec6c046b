"""Records and queries that look like real ones, as many as wanted, the same in every process.

A record is a stretch of one SciFact abstract and a shorter one of another, so its words have the
frequencies of real English; its vector is a mixture of the MiniLM vectors of three abstracts' titles, so
the vectors are as clustered and as uneven in their directions as real ones. The queries are
SciFact's claims with their own MiniLM vectors. Record n depends on n alone: nothing is kept.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.retrieval import DATA
from evervec.embedders.local import local

Vectors = NDArray[np.float32]
BLOCK = 1000
SHELVES = 100
_SHARES = (4.0, 1.5, 0.8)
"""how much of its vector a record has of each of the three, on average"""
_LENGTHS = (30, 15)
"""words from the first and from the second abstract"""
_NUMBER = re.compile(r"record (\d+)$")


class Corpus:
    """The abstracts with their words and vectors, from which records are made."""

    def __init__(self) -> None:
        lines = (DATA / "corpus.jsonl").open(encoding="utf-8")
        found = [json.loads(line) for line in lines]
        self._words = [f"{one['title']}. {one['text']}".split() for one in found]
        self._base = _embedded([one["title"] for one in found])
        claims = (DATA / "queries.jsonl").open(encoding="utf-8")
        self.queries: list[str] = [json.loads(line)["text"] for line in claims]
        self.query_vectors = _embedded(self.queries)
        self.block = lru_cache(16)(self._block)

    def _block(self, place: int) -> tuple[list[str], Vectors]:
        """The texts and vectors of records `place * BLOCK` and on."""
        rng = np.random.default_rng(place)
        of = rng.integers(len(self._base), size=(BLOCK, len(_SHARES)))
        shares = rng.dirichlet(_SHARES, BLOCK).astype(np.float32)
        mixed = np.einsum("ij,ijk->ik", shares, self._base[of])
        mixed /= np.linalg.norm(mixed, axis=1, keepdims=True)
        starts = rng.random((BLOCK, len(_LENGTHS)))
        texts = []
        for row, ((first, second, _), begin) in enumerate(zip(of, starts, strict=True)):
            parts = [
                " ".join(_stretch(self._words[one], where, length))
                for one, where, length in zip((first, second), begin, _LENGTHS, strict=True)
            ]
            texts.append(f"{parts[0]} {parts[1]} record {place * BLOCK + row}")
        return texts, np.asarray(mixed, np.float32)

    def records(self, first: int, end: int) -> Iterator[dict[str, Any]]:
        for number in range(first, end):
            text = self.block(number // BLOCK)[0][number % BLOCK]
            yield {"id": str(number), "text": text, "metadata": {"shelf": shelf_of(number)}}

    def vectors(self, numbers: Sequence[int]) -> Vectors:
        return np.stack([self.block(n // BLOCK)[1][n % BLOCK] for n in numbers])

    def nearest(
        self, count: int, size: int, k: int, filters: Mapping[str, Sequence[str]]
    ) -> dict[str, list[set[str]]]:
        """The ids of the `k` nearest of the first `size` records, for the first `count` queries, of
        the records on each filter's shelves; without shelves, of all."""
        asked = self.query_vectors[:count]
        best = {name: _Best(count, k) for name in filters}
        for place in range(-(-size // BLOCK)):
            scores = asked @ self._block(place)[1][: size - place * BLOCK].T
            numbers = np.arange(scores.shape[1]) + place * BLOCK
            names = [shelf_of(n) for n in numbers.tolist()]
            for name, shelves in filters.items():
                on = np.isin(names, shelves) if shelves else np.ones(len(names), np.bool_)
                best[name].add(scores[:, on], numbers[on])
        return {name: [set(map(str, row)) for row in b.ids.tolist()] for name, b in best.items()}


class _Best:
    """The best records of each query."""

    def __init__(self, queries: int, k: int) -> None:
        self._scores = np.full((queries, k), -np.inf, np.float32)
        self.ids = np.zeros((queries, k), np.int64)

    def add(self, scores: Vectors, numbers: NDArray[np.int64]) -> None:
        k = self.ids.shape[1]
        scores = np.concatenate([self._scores, scores], axis=1)
        ids = np.concatenate([self.ids, np.broadcast_to(numbers, (len(scores), len(numbers)))], 1)
        top = np.argpartition(-scores, k - 1, axis=1)[:, :k]
        self._scores = np.take_along_axis(scores, top, axis=1)
        self.ids = np.take_along_axis(ids, top, axis=1)


class Prepared:
    """An embedder that knows the vectors of all records and queries, at no cost."""

    name = "prepared"
    model = "mixtures-of-minilm"
    max_batch = 256

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._queries = dict(zip(corpus.queries, corpus.query_vectors, strict=True))
        self.dimensions = corpus.query_vectors.shape[1]

    def embed(self, texts: Sequence[str]) -> Vectors:
        found = [_NUMBER.search(text) for text in texts]
        return self._corpus.vectors([int(one.group(1)) if one else 0 for one in found])

    def embed_query(self, text: str) -> Vectors:
        vector: Vectors = self._queries[text]
        return vector


def shelf_of(number: int) -> str:
    """The field to filter by."""
    return f"shelf-{number % SHELVES}"


FILTERS = {"filtered": [shelf_of(7)], "half": [shelf_of(n) for n in range(0, SHELVES, 2)]}
"""shelves that one record of a hundred is on, and one of two"""


def _stretch(words: list[str], where: float, length: int) -> list[str]:
    begin = int(where * max(1, len(words) - length))
    return words[begin : begin + length]


def _embedded(texts: list[str]) -> Vectors:
    """MiniLM's vectors, kept in the system's temporary folder: it takes a minute to make them."""
    known = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
    path = Path(gettempdir()) / f"evervec-bench-minilm-{known}.npy"
    if not path.exists():
        model = local()
        made = np.concatenate(
            [model.embed(texts[i : i + 256]) for i in range(0, len(texts), 256)]
        ).astype(np.float32)
        part = path.with_suffix(".part.npy")
        np.save(part, made / np.linalg.norm(made, axis=1, keepdims=True))
        part.replace(path)
    kept: Vectors = np.load(path)
    return kept
