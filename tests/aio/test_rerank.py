"""Rerankers beside an event loop: slow ones delay nothing else, and they may be coroutines."""

import asyncio
import threading
from collections.abc import Sequence

from aio.conftest import Run
from evervec import AsyncEvervec
from support.processes import until
from support.world import KIND


class Waiting:
    """Answers when the test lets it."""

    name = "waiting"

    def __init__(self) -> None:
        self.calls = 0
        self.may_end = threading.Event()

    def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        self.calls += 1
        self.may_end.wait(30)
        return [0.5] * len(texts)


class Awaited:
    name = "awaited"

    def __init__(self) -> None:
        self.loops: set[asyncio.AbstractEventLoop] = set()

    async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        self.loops.add(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return [len(text) / 100 for text in texts]


async def _fill(ev: AsyncEvervec) -> None:
    for n in range(3):
        await ev.add(KIND, "alpha " * (n + 1), id=n)
    await ev.process_all()


def test_calls_do_not_wait_for_searches_with_slow_rerankers(run: Run) -> None:
    async def test(ev: AsyncEvervec) -> None:
        await _fill(ev)
        slow = Waiting()
        searches = [asyncio.create_task(ev.search("alpha", rerank=slow)) for _ in range(4)]
        await asyncio.to_thread(until, lambda: slow.calls == 4)
        assert (await ev.get(KIND, "1")) is not None
        assert len(await ev.search("alpha")) == 3
        assert not any(task.done() for task in searches)
        slow.may_end.set()
        assert [hits.reranked for hits in await asyncio.gather(*searches)] == [True] * 4

    run(test, rerank_seconds=60)


def test_a_reranker_may_be_asynchronous(run: Run) -> None:
    async def test(ev: AsyncEvervec) -> None:
        await _fill(ev)
        reranker = Awaited()
        for hits in (
            await ev.search("alpha", rerank=reranker),
            await asyncio.to_thread(ev.sync.search, "alpha", rerank=reranker),
        ):
            assert (hits.reranked, hits.rerank_error) == (True, None)
            assert [hit.id for hit in hits] == ["2", "1", "0"]
        assert len(reranker.loops) == 1

    run(test)
