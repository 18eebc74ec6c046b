"""Records as asynchronous streams: tickets of `add_many`, and pages of `records`."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Generator, Iterable
from typing import Any

from evervec.model.jobs import Ticket
from evervec.model.records import Record

_TURN = 100
"""items of a synchronous iterable that are read before other tasks have a turn"""


class RecordPages:
    """Records in the order of their kinds and ids: `await` it for a list, or iterate over all
    pages with `async for`."""

    def __init__(
        self,
        whole: Callable[[], Awaitable[list[Record]]],
        page: Callable[[Any], Awaitable[tuple[list[Record], Any]]],
        after: Any = None,
    ) -> None:
        """`page` reads the page after a place; returns also the place after it, None at the
        end."""
        self._whole = whole
        self._page = page
        self._after = after

    def __await__(self) -> Generator[Any, None, list[Record]]:
        return self._whole().__await__()

    async def __aiter__(self) -> AsyncIterator[Record]:
        page, after = await self._page(self._after)
        while True:
            for record in page:
                yield record
            if after is None:
                return
            page, after = await self._page(after)


class AsyncTickets(AsyncIterator[Ticket]):
    """A lazy iterator of tickets; warns if it was never iterated."""

    def __init__(self, tickets: AsyncIterator[Ticket], kind: str) -> None:
        self._tickets = tickets
        self._kind = kind
        self._begun = False

    async def __anext__(self) -> Ticket:
        self._begun = True
        return await anext(self._tickets)

    def __del__(self) -> None:
        if not self._begun:
            warnings.warn(
                f"add_many({self._kind!r}, …) was never iterated, so nothing was saved: use "
                "[ticket async for ticket in ev.add_many(…)] or an async for loop",
                RuntimeWarning,
                stacklevel=2,
            )


async def each(items: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[Any]:
    """The items of any iterable."""
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
        return
    for number, item in enumerate(items, 1):
        if number % _TURN == 0:
            await asyncio.sleep(0)
        yield item
