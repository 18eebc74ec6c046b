"""An embedder may be asynchronous: workers, searches and event loops use it alike."""

import asyncio
import threading
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from weakref import WeakSet

import numpy as np
import pytest
from numpy.typing import NDArray

import evervec
from evervec import InvalidInput
from evervec.embedders.hashing import HashingEmbedder
from evervec.runtime.coroutines import LOOP
from support.processes import until

Vectors = NDArray[np.float32]
asked: ContextVar[str] = ContextVar("asked", default="")


class Awaited:
    """The vectors of the hashing embedder, from coroutines."""

    name, model, dimensions, max_batch = "awaited", "awaited-64", 64, 16

    def __init__(self) -> None:
        self._inner = HashingEmbedder(64)
        self.loops: set[asyncio.AbstractEventLoop] = set()
        self.queries: list[str] = []
        self.hangs = False
        self.cancelled = 0

    async def embed(self, texts: Sequence[str]) -> Vectors:
        self.loops.add(asyncio.get_running_loop())
        await asyncio.sleep(0)
        bad = [place for place, text in enumerate(texts) if "bad" in text]
        if bad:
            raise InvalidInput(bad, "a bad text")
        return self._inner.embed(texts)

    async def embed_query(self, text: str) -> Vectors:
        self.loops.add(asyncio.get_running_loop())
        self.queries.append(asked.get())
        try:
            await asyncio.sleep(60 if self.hangs else 0)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        vector: Vectors = self._inner.embed([text])[0]
        return vector


@pytest.fixture(autouse=True)
def users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the loop: stores that other tests of this process left open do not count."""
    monkeypatch.setattr(LOOP, "_users", WeakSet())


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "evervec-coroutines"]


def test_workers_and_searches_await_it_in_one_loop(tmp_path: Path) -> None:
    embedder = Awaited()
    with evervec.open(tmp_path / "a.db", embedder=embedder, concurrency=4) as ev:
        for n in range(100):
            ev.add("note", f"text w{n}", id=n)
        assert ev.process_all().succeeded == 100
        token = asked.set("me")
        assert ev.search("text w7", k=3)[0].id == "7"
        asked.reset(token)
        assert embedder.queries == ["me"]
        assert ev.verify().complete
        assert len(embedder.loops) == len(threads()) == 1
    assert threads() == []


def test_its_errors_are_those_of_any_embedder(tmp_path: Path) -> None:
    with evervec.open(tmp_path / "a.db", embedder=Awaited()) as ev:
        for id, text in (("1", "good"), ("2", "bad"), ("3", "also good")):
            ev.add("note", text, id=id, max_attempts=1)
        result = ev.process_all()
        assert (result.succeeded, result.failed) == (2, 1)
        assert [job.record_id for job in ev.queue.failed()] == ["2"]


def test_the_loop_lives_as_long_as_a_store_needs_it(tmp_path: Path) -> None:
    one, other = Awaited(), Awaited()
    with evervec.open(tmp_path / "a.db", embedder=one) as first:
        first.add("note", "text", id="1")
        first.process_all()
        with evervec.open(tmp_path / "b.db", embedder=other) as second:
            second.add("note", "text", id="1")
            second.process_all()
        first.search("text")
        assert one.loops == other.loops
        assert len(threads()) == 1
    first.close()
    assert threads() == []
    with evervec.open(tmp_path / "a.db", embedder=one) as again:
        assert len(again.search("text")) == 1
        assert len(one.loops) == 2


def test_a_deadline_cancels_its_coroutine(tmp_path: Path) -> None:
    embedder = Awaited()
    with evervec.open(tmp_path / "a.db", embedder=embedder) as ev:
        ev.add("note", "text", id="1")
        ev.process_all()
        embedder.hangs = True
        with evervec.deadline(2.0):
            assert ev.search("text").via == "text"  # half of the time is left for it
        until(lambda: embedder.cancelled == 1)


def test_a_store_for_asyncio_uses_it_from_its_own_loop(tmp_path: Path) -> None:
    embedder = Awaited()

    async def main() -> None:
        async with evervec.aopen(tmp_path / "a.db", embedder=embedder) as ev:
            async with ev.worker():
                adds = (ev.add("note", 5 * chr(97 + n), id=n, wait=30) for n in range(20))
                await asyncio.gather(*adds)
                token = asked.set("me")
                found = await asyncio.gather(*(ev.search(5 * chr(97 + n), 1) for n in range(20)))
                asked.reset(token)
            assert [hit.id for (hit,) in found] == [str(n) for n in range(20)]
            assert set(embedder.queries) == {"me"}
            assert len(embedder.loops) == 1
            assert asyncio.get_running_loop() not in embedder.loops
            embedder.hangs = True
            search = asyncio.create_task(ev.search("text", mode="semantic"))
            until_asked = len(embedder.queries)
            while len(embedder.queries) == until_asked:
                await asyncio.sleep(0.001)
            search.cancel()
            with pytest.raises(asyncio.CancelledError):
                await search
            until(lambda: embedder.cancelled == 1)

    asyncio.run(main())
    assert threads() == []
