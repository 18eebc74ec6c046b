"""Which calls of tasks are made together."""

import asyncio
import threading
from collections.abc import Sequence
from itertools import count

from evervec.runtime.batcher import Batcher

LARGE = 1000


def test_small_items_pass_large_ones_which_have_a_quarter_of_the_time() -> None:
    """Each call lasts a second here."""
    calls: list[list[int]] = []
    begun, may_go_on = threading.Event(), threading.Event()

    def do(asked: Sequence[int]) -> Sequence[int]:
        calls.append(list(asked))
        begun.set()
        may_go_on.wait(30)
        return asked

    waiting = [2 * LARGE, LARGE, 3, 4 * LARGE, 995, 600, 601, 602, 603]

    async def ask() -> list[int]:
        batcher = Batcher(
            "test", do, size_of=lambda item: item, most_size=LARGE - 1, clock=count().__next__
        )
        first = asyncio.create_task(batcher(1))
        await asyncio.to_thread(begun.wait, 30)
        rest = [asyncio.create_task(batcher(n)) for n in waiting]
        await asyncio.sleep(0)
        may_go_on.set()
        found = [await task for task in (first, *rest)]
        batcher.close()
        return found

    assert asyncio.run(ask()) == [1, *waiting]
    assert calls[1:] == [
        [2 * LARGE], [3, 995], [600], [601], [LARGE], [602], [603], [4 * LARGE],
    ]  # fmt: skip
