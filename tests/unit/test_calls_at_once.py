"""An embedder that gains nothing by more calls at once is not given more."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import evervec
from evervec.embedders.hashing import HashingEmbedder


class Counting(HashingEmbedder):
    """Counts the calls at once; each waits until as many are there as are expected."""

    max_batch = 4

    def __init__(self, expected: int) -> None:
        super().__init__(64)
        self._expected = expected
        self._changed = threading.Condition()
        self._now = self.most = 0

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        with self._changed:
            self._now += 1
            self.most = max(self.most, self._now)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.most >= self._expected, 60)
            self._now -= 1
        return super().embed(texts)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        return super().embed([text])


class Bounded(Counting):
    max_calls = 2


@pytest.mark.parametrize(("kind", "most"), [(Counting, 4), (Bounded, 2)])
def test_calls_at_once_are_bounded_by_the_worker_and_by_the_embedder(
    tmp_path: Path, kind: type[Counting], most: int
) -> None:
    embedder = kind(most)
    with evervec.open(tmp_path / "a.db", embedder=embedder, concurrency=4) as ev:
        list(ev.add_many("note", ({"id": n, "text": f"text {n}"} for n in range(64))))
        assert ev.process_all().succeeded == 64
    assert embedder.most == most


def test_a_query_does_not_wait_for_the_calls_of_workers(tmp_path: Path) -> None:
    embedder = Bounded(10)  # its calls end when ten are there, or never
    with evervec.open(tmp_path / "a.db", embedder=embedder) as ev, ThreadPoolExecutor(2) as pool:
        for n in range(2):
            pool.submit(ev.provider.embed, [f"text {n}"])
        with embedder._changed:
            embedder._changed.wait_for(lambda: embedder._now == 2, 60)
        assert ev.provider.embed_query("query", ev.tenant).shape == (64,)
        with embedder._changed:
            embedder.most = 10
            embedder._changed.notify_all()
