"""A thousand tasks that add and search at once through `aopen`, beside threads that do the same.

Each task searches a store of 1,000 records and adds one; so does each of as many calls in threads of
`open`, by turns, on a file of their own. Of several numbers of threads the best counts. While the tasks
run, a ticker in the same event loop sleeps for a millisecond at a time: its longest delay is how long
anything else in the loop would have waited. On a busy machine other processes delay it too, so the
target is for the part of a delay during which this process had a processor. What exists before the
measurement is exempt from garbage collection (`gc.freeze`), as in long-running services: a full
collection of the modules alone takes 20 ms.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import evervec
from benchmarks.made_up import NoCost, texts
from benchmarks.rounds import Measured, take_turns
from benchmarks.table import Line, at_least, at_most

_RECORDS = 1000
_THREADS = (4, 16)
_TICK = 0.001


def run(*, quick: bool) -> Sequence[Line]:
    tasks, rounds = (1000, 2) if quick else (1000, 7)
    contenders = {"aopen": _in_loop(tasks)} | {
        f"{count} threads": _in_threads(tasks, count) for count in _THREADS
    }
    found = take_turns(contenders, rounds)
    own = found.pop("aopen")
    lines = []
    for what in ("searches", "adds", "both"):
        name = max(found, key=lambda each: found[each][what])
        target = at_least(0.8)
        lines.append(Line(what, "/s", own[what], name, found[name][what], target))
    most = Line("longest delay of the ticker", "ms", own["most"], target=at_most(20), own=True)
    return [
        *lines,
        most,
        Line("the same, p99", "ms", own["p99"]),
        Line("longest, with other processes", "ms", own["wall"]),
    ]


def _load(folder: Path) -> tuple[Path, NoCost, list[str]]:
    path, made = folder / "records.db", texts(_RECORDS, 20)
    embedder = NoCost(made)
    with evervec.open(path, embedder=embedder) as ev:
        for _ in ev.add_many("note", ({"id": n, "text": text} for n, text in enumerate(made))):
            pass
        ev.process_all()
    return path, embedder, [" ".join(text.split()[:3]) for text in made]


def _in_threads(tasks: int, threads: int) -> Callable[[Path], Measured]:
    def measure(folder: Path) -> Measured:
        path, embedder, queries = _load(folder)
        with evervec.open(path, embedder=embedder) as ev, ThreadPoolExecutor(threads) as pool:

            def search(number: int) -> object:
                return ev.search(queries[number % len(queries)])

            def add(number: int) -> object:
                return ev.add("other", queries[number % len(queries)], id=number)

            def both(number: int) -> object:
                return search(number), add(tasks + number)

            for do in (search, add):
                list(pool.map(do, range(8)))
            found: Measured = {}
            for what, do in (("searches", search), ("adds", add), ("both", both)):
                began = time.perf_counter()
                list(pool.map(do, range(tasks)))
                found[what] = tasks / (time.perf_counter() - began)
            return found

    return measure


def _in_loop(tasks: int) -> Callable[[Path], Measured]:
    async def measure(folder: Path) -> Measured:
        path, embedder, queries = _load(folder)
        async with evervec.aopen(path, embedder=embedder) as ev:

            async def search(number: int) -> object:
                return await ev.search(queries[number % len(queries)])

            async def add(number: int) -> object:
                return await ev.add("other", queries[number % len(queries)], id=number)

            async def both(number: int) -> object:
                return await search(number), await add(tasks + number)

            for do in (search, add):
                await asyncio.gather(*map(do, range(8)))
            found: Measured = {}
            delays: list[tuple[float, float]] = []
            gc.collect()
            gc.freeze()
            ticker = asyncio.create_task(_tick(delays))
            await asyncio.sleep(0.05)
            for what, do in (("searches", search), ("adds", add), ("both", both)):
                began = time.perf_counter()
                await asyncio.gather(*map(do, range(tasks)))
                found[what] = tasks / (time.perf_counter() - began)
            ticker.cancel()
            with suppress(asyncio.CancelledError):
                await ticker
            mine = sorted(map(min, delays))
            found["most"] = 1000 * mine[-1]
            found["p99"] = 1000 * mine[int(0.99 * len(mine))]
            found["wall"] = 1000 * max(delays)[0]
            return found

    return lambda folder: asyncio.run(measure(folder))


async def _tick(delays: list[tuple[float, float]]) -> None:
    """Add delays in seconds of the clock and of the process's processor time."""
    while True:
        began, used = time.perf_counter(), time.process_time()
        await asyncio.sleep(_TICK)
        delays.append((time.perf_counter() - began - _TICK, time.process_time() - used))
