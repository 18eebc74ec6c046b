"""Records of an asynchronous stream, saved by a thread."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator
from itertools import islice
from typing import Any

from evervec.model.jobs import Ticket


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
