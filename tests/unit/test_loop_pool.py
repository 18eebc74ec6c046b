"""The threads of an event loop: which call is next, and what happens while the loop is busy."""

import asyncio
import itertools
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from evervec.runtime.loops import LoopPool

TIMEOUT = 30


def in_loop(threads: int, test: Callable[[LoopPool], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        pool = LoopPool("test", threads)
        try:
            await test(pool)
        finally:
            pool.close(TIMEOUT)

    asyncio.run(main())


def test_threads_go_on_while_the_loop_is_busy() -> None:
    """A thread takes the next call itself: waiting for the loop would leave it idle."""

    async def test(pool: LoopPool) -> None:
        last = threading.Event()
        calls = [pool.submit("a", lambda: None) for _ in range(100)]
        end = pool.submit("a", last.set)
        assert last.wait(TIMEOUT)  # blocks the loop
        await asyncio.gather(*(call.future for call in (*calls, end)))

    in_loop(2, test)


def test_owners_take_turns_whatever_they_have_asked_for() -> None:
    async def test(pool: LoopPool) -> None:
        held, go = threading.Event(), threading.Event()

        def hold() -> None:
            held.set()
            assert go.wait(TIMEOUT)

        order: list[str] = []
        calls = [pool.submit("first", hold)]
        assert held.wait(TIMEOUT)
        calls += [pool.submit("many", lambda: order.append("many")) for _ in range(50)]
        calls += [pool.submit("few", lambda: order.append("few")) for _ in range(3)]
        go.set()
        await asyncio.gather(*(call.future for call in calls))
        assert order[:7] == ["many", "few"] * 3 + ["many"]
        assert len(order) == 53

    in_loop(1, test)


def test_a_call_that_is_withdrawn_never_runs_and_one_that_has_begun_cannot_be() -> None:
    async def test(pool: LoopPool) -> None:
        held, go = threading.Event(), threading.Event()
        ran: list[int] = []

        def hold() -> None:
            held.set()
            assert go.wait(TIMEOUT)

        begun = pool.submit("a", hold)
        assert held.wait(TIMEOUT)
        calls = [pool.submit("a", lambda n=n: ran.append(n)) for n in range(4)]  # type: ignore[misc]
        assert calls[1].withdraw()
        assert not begun.withdraw()
        go.set()
        await asyncio.gather(*(call.future for call in (begun, calls[0], calls[2], calls[3])))
        assert ran == [0, 2, 3]

    in_loop(1, test)


def test_other_tasks_have_their_turn_among_many_results() -> None:
    """A thousand results at once must not keep the loop from anything else."""

    async def test(pool: LoopPool) -> None:
        ended = 0

        async def use() -> None:
            nonlocal ended
            await pool.submit("a", lambda: None).future
            ended += 1

        last = threading.Event()
        tasks = [asyncio.create_task(use()) for _ in range(1000)]
        await asyncio.sleep(0)
        pool.submit("a", last.set)
        assert last.wait(TIMEOUT)  # every result is there now
        seen = [ended]
        while ended < len(tasks):
            await asyncio.sleep(0)
            seen.append(ended)
        assert max(after - before for before, after in itertools.pairwise(seen)) < 300

    in_loop(1, test)
