"""What tools use of a store or a service: a few methods of the library, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from evervec.client import Client
from evervec.errors import InvalidArgument
from evervec.facade import Evervec
from evervec.model.deadlines import Deadline, bounded
from evervec.model.jobs import Ticket
from evervec.model.records import Hits, Record
from evervec.model.reports import Stats
from evervec.runtime.threads import submit

T = TypeVar("T")

_MOST_CALLS = 32
"""calls in threads at once, and as many that wait for a change; more wait for their turn"""
_GONE = "the assistant no longer waits for this call"


class Records(Protocol):
    """The records of a tenant. The methods are those of `Evervec`."""

    async def search(
        self,
        query: str,
        k: int,
        *,
        kind: Sequence[str] | None,
        filter: Mapping[str, Any] | None,
        min_relevance: float | None,
    ) -> Hits: ...

    async def add(
        self,
        kind: str,
        text: str,
        *,
        id: str | None,
        title: str | None,
        metadata: Mapping[str, Any] | None,
    ) -> Ticket: ...

    async def wait(self, ticket: Ticket, seconds: float) -> None: ...

    async def get(self, kind: str, id: str) -> Record | None: ...

    async def page(
        self,
        kind: str | None,
        *,
        filter: Mapping[str, Any] | None,
        after: tuple[str, str] | None,
        limit: int,
    ) -> tuple[list[Record], bool]:
        """Records by kind and id, and whether there may be more. There may be fewer than `limit`
        before the end, if their texts are long."""

    async def delete(self, kind: str, id: str) -> Ticket: ...

    async def counts(self, kinds: Sequence[str] | None, most: int) -> tuple[dict[str, int], int]:
        """The numbers of records of these kinds, or of all, by kind: of `most` of them at most, and
        how many there are."""

    async def stats(self) -> Stats | None:
        """None: the caller may not see them."""


@dataclass(frozen=True, slots=True)
class Access:
    """What one assistant may do, and with which records."""

    records: Records
    writes: bool
    kinds: tuple[str, ...] | None = None
    """the kinds that it may use; None: all"""

    @property
    def usual_kind(self) -> str:
        """The kind of a record that is remembered without one."""
        return "note" if self.kinds is None or "note" in self.kinds else self.kinds[0]

    def check(self, kind: str | None) -> None:
        if kind is not None and self.kinds is not None and kind not in self.kinds:
            raise InvalidArgument(
                f"the kind {kind[:80]!r} is not offered here: use {' or '.join(self.kinds)}"
            )


class LibraryRecords:
    """An open store or a client of a service. Its calls block, so each runs in a thread, under a
    deadline of `seconds`. Threads do not keep the process from exiting. `embeds`: False if nothing
    makes vectors, so that there is nothing to wait for."""

    def __init__(self, library: Evervec | Client, seconds: float, *, embeds: bool = True) -> None:
        self._library = library
        self._seconds = seconds
        self._embeds = embeds
        self._turns = asyncio.Semaphore(_MOST_CALLS)
        self._waits = asyncio.Semaphore(_MOST_CALLS)

    async def search(
        self,
        query: str,
        k: int,
        *,
        kind: Sequence[str] | None,
        filter: Mapping[str, Any] | None,
        min_relevance: float | None,
    ) -> Hits:
        return await self._run(
            lambda: self._library.search(
                query,
                k,
                kind=kind,
                filter=filter,
                min_relevance=min_relevance,
                fields=("title", "text", "metadata"),
            )
        )

    async def add(
        self,
        kind: str,
        text: str,
        *,
        id: str | None,
        title: str | None,
        metadata: Mapping[str, Any] | None,
    ) -> Ticket:
        return await self._run(
            lambda: self._library.add(kind, text, id=id, title=title, metadata=metadata)
        )

    async def wait(self, ticket: Ticket, seconds: float) -> None:
        longest = seconds if self._embeds else 0.0
        await self._run(lambda: self._library.wait(ticket, longest), longest, self._waits)

    async def get(self, kind: str, id: str) -> Record | None:
        return await self._run(lambda: self._library.get(kind, id))

    async def page(
        self,
        kind: str | None,
        *,
        filter: Mapping[str, Any] | None,
        after: tuple[str, str] | None,
        limit: int,
    ) -> tuple[list[Record], bool]:
        found = await self._run(
            lambda: self._library.records(kind, filter=filter, after=after, limit=limit + 1)
        )
        return found[:limit], len(found) > limit

    async def delete(self, kind: str, id: str) -> Ticket:
        return await self._run(lambda: self._library.delete(kind, id))

    async def counts(self, kinds: Sequence[str] | None, most: int) -> tuple[dict[str, int], int]:
        library = self._library
        if kinds is None:
            kinds = sorted({v.kind for v in await self._run(library.versions)})
            if isinstance(library, Evervec):
                found = await self._run(lambda: library.store.records.count_kinds(library.tenant))
                return {kind: found.get(kind, 0) for kind in kinds[:most]}, len(kinds)
        return {kind: await self._count(kind) for kind in kinds[:most]}, len(kinds)

    async def _count(self, kind: str) -> int:
        return await self._run(lambda: self._library.count(kind))

    async def stats(self) -> Stats:
        return await self._run(self._library.queue.stats)

    async def _run(
        self, do: Callable[[], T], longer: float = 0.0, turns: asyncio.Semaphore | None = None
    ) -> T:
        async with turns or self._turns:
            deadline = Deadline(self._seconds + longer)

            def work() -> T:
                with bounded(deadline):
                    return do()

            context = copy_context()
            call = submit("evervec-mcp-call", lambda: context.run(work))
            try:
                return await asyncio.wrap_future(call)
            except asyncio.CancelledError:
                deadline.cancel(_GONE)
                raise
