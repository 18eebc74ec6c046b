"""Which calls of tasks are made together."""

import asyncio
import threading
from collections.abc import Sequence

from evervec.runtime.batcher import Batcher

LARGE = 1000


def test_small_items_pass_large_ones_which_go_one_by_one() -> None:
    """Nobody waits for more than one large item, and none of these waits for ever."""
    calls: list[list[int]] = []
    begun, may_go_on = threading.Event(), threading.Event()

    def do(asked: Sequence[int]) -> Sequence[int]:
        calls.append(list(asked))
        begun.set()
        may_go_on.wait(30)
        return asked

    async def ask() -> list[int]:
        batcher = Batcher("test", do, size_of=lambda item: item, most_size=LARGE - 1)
        first = asyncio.create_task(batcher(1))
        await asyncio.to_thread(begun.wait, 30)
        rest = [asyncio.create_task(batcher(n)) for n in (2 * LARGE, LARGE, 3, 4 * LARGE, 995, 6)]
        await asyncio.sleep(0)
        may_go_on.set()
        found = [await task for task in (first, *rest)]
        batcher.close()
        return found

    assert asyncio.run(ask()) == [1, 2 * LARGE, LARGE, 3, 4 * LARGE, 995, 6]
    assert calls[1:] == [[2 * LARGE], [3, 995], [LARGE], [6], [4 * LARGE]]
