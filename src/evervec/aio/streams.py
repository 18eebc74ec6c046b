"""Records as asynchronous streams: tickets of `add_many`, and pages of `records`."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Generator, Iterator
from itertools import islice
from typing import Any

from evervec.model.jobs import Ticket
from evervec.model.records import Record

Fetch = Callable[[Any], Awaitable[list[Record]]]


class RecordPages:
    """Records in the order of their kinds and ids: `await` it for one page, or iterate over all
    pages with `async for`; `limit` is then the size of a page."""

    def __init__(self, fetch: Fetch, after: Any, limit: int) -> None:
        self._fetch = fetch
        self._after = after
        self._limit = limit

    def __await__(self) -> Generator[Any, None, list[Record]]:
        return self._fetch(self._after).__await__()

    async def __aiter__(self) -> AsyncIterator[Record]:
        after = self._after
        while page := await self._fetch(after):
            for record in page:
                yield record
            if len(page) < self._limit:
                return
            after = page[-1]


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


class Portions:
    """Items of a synchronous or asynchronous iterable for a thread that reads them as an iterator, a
    portion at a time: `fill` reads the next portion of an asynchronous iterable in the event
    loop."""

    def __init__(self, source: Any, size: int) -> None:
        self._source = aiter(source) if isinstance(source, AsyncIterable) else None
        self._size = size
        self._read: deque[Any] = deque()
        self.items: Any = source if self._source is None else self._portion()

    async def fill(self) -> None:
        if self._source is None:
            return
        while len(self._read) < self._size:
            try:
                self._read.append(await anext(self._source))
            except StopAsyncIteration:
                return

    def _portion(self) -> Iterator[Any]:
        while self._read:
            yield self._read.popleft()


async def saved(
    add_many: Callable[[Any], Iterator[Ticket]],
    records: Any,
    size: int,
    call: Callable[[Callable[[], tuple[list[Ticket], Exception | None]]], Awaitable[Any]],
) -> AsyncIterator[Ticket]:
    """The tickets of records, saved a batch of this size at a time in a thread."""
    portions = Portions(records, size)
    tickets: Iterator[Ticket] | None = None

    def save() -> tuple[list[Ticket], Exception | None]:
        nonlocal tickets
        made: list[Ticket] = []
        try:
            if tickets is None:
                tickets = add_many(portions.items)
            made.extend(islice(tickets, size))
        except Exception as error:  # noqa: BLE001 - raised after the tickets before it
            return made, error
        return made, None

    while True:
        await portions.fill()
        made, error = await call(save)
        for ticket in made:
            yield ticket
        if error is not None:
            raise error
        if len(made) < size:
            return
