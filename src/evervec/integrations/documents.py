"""The records of one kind as frameworks use them: lists of documents in, the best documents out.

Each operation is written once, as a generator of calls (`Plan`): `run` makes the calls, `arun` awaits
them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

from evervec.errors import InvalidArgument, JobFailed
from evervec.model.jobs import Ticket
from evervec.model.records import Hit, Record

T = TypeVar("T")
Call = Callable[[Any], Any]
"""a call of a store with blocking methods, or of one whose methods are awaited"""
Plan: TypeAlias = Generator[Call, Any, T]
"""calls to make in order; each is answered with its result, a stream of results with their list"""
_PAGE = 1000
_FEW = 100
"""changes for each of which a search waits by a call of its own"""
_MANY = 10_000
"""changes that are remembered without a search between them, before those in the index are left out"""
_ANY: dict[str, Any] = {"or": [{"any": {"exists": True}}, {"any": {"exists": False}}]}
"""a filter that every record fits, whether it has the field or not"""


class Documents:
    """The records of one kind, or of several for searches, in a store or a service.

    `ev`: what `evervec.open` or `evervec.aopen` returned, or a client; with `aopen` and
    `AsyncClient` the calls of `arun` are native. `embed`: process changes at once, in this process;
    otherwise workers do. A search waits up to `wait` seconds until the changes made here are in the
    index.
    """

    def __init__(self, ev: Any, kind: Any, *, embed: bool = True, wait: float = 30.0) -> None:
        is_async = hasattr(ev, "__aenter__")
        self._async = ev if is_async else None
        self._sync = getattr(ev, "sync", None) if is_async else ev
        self.kind = kind
        self._embeds = embed and hasattr(ev, "process_all")
        self._wait = wait
        self._waiting: dict[str, Ticket] = {}
        """of changes that may not be in the index yet, by id"""
        self._most_waiting = _MANY

    @property
    def ev(self) -> Any:
        """The store with blocking methods."""
        if self._sync is None:
            raise InvalidArgument(
                "this client is asynchronous: use the methods for asyncio, or an evervec.Client"
            )
        return self._sync

    @property
    def local(self) -> Any:
        """The store, if it is opened in this process; None for a client."""
        return self._sync if hasattr(self._sync, "embedder") else None

    def run(self, plan: Plan[T]) -> T:
        """Make the calls of a plan; returns its result."""
        ev, step, given = self.ev, plan.send, None
        while True:
            try:
                call = step(given)
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                step, given = plan.send, call(ev)
                if isinstance(given, Iterator):
                    given = list(given)
            except Exception as error:  # noqa: BLE001 - the plan decides
                step, given = plan.throw, error

    async def arun(self, plan: Plan[T]) -> T:
        """`run`, awaited; a store with blocking methods is called in a thread."""
        if self._async is None:
            return await asyncio.to_thread(self.run, plan)
        step, given = plan.send, None
        while True:
            try:
                call = step(given)
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                step, given = plan.send, call(self._async)
                if isinstance(given, Awaitable):
                    given = await given
                elif isinstance(given, AsyncIterator):
                    given = [item async for item in given]
            except Exception as error:  # noqa: BLE001 - the plan decides
                step, given = plan.throw, error

    # writing
    def add(self, records: Iterable[Mapping[str, Any]]) -> Plan[list[Ticket]]:
        """Add or replace records, as `add_many` takes them."""
        tickets: list[Ticket] = yield lambda ev: ev.add_many(self.kind, records)
        yield from self.process()
        self._expect(tickets)
        if len(self._waiting) > self._most_waiting:
            yield from self._skip_embedded()
            self._most_waiting = max(_MANY, 2 * len(self._waiting))
        return tickets

    def change(self, record: Record, metadata: Mapping[str, Any]) -> Plan[bool]:
        """Replace the metadata of a record, then `process`; returns False if the record changed
        since it was read."""
        data = record.text if record.data is None else record.data
        add = partial(
            _add, kind=record.kind, data=data, id=record.id, title=record.title,
            weight=record.weight, created_at=record.created_at, metadata=metadata,
            if_seq=record.seq,
        )  # fmt: skip
        ticket: Ticket = yield add
        self._expect([ticket])
        return ticket.accepted

    def delete(self, ids: Iterable[str]) -> Plan[None]:
        """Delete records by id."""
        for id in ids:
            yield partial(_delete, kind=self.kind, id=id)
            self._waiting.pop(id, None)
        yield from self.process()

    def delete_where(self, filter: Mapping[str, Any]) -> Plan[int]:
        """Delete the records that fit a filter; returns how many."""
        count: int = yield lambda ev: ev.delete_where(filter, self.kind)
        yield from self.process()
        return count

    def clear(self) -> Plan[int]:
        """Delete all records of the kind; returns how many."""
        return (yield from self.delete_where(_ANY))

    def process(self) -> Plan[None]:
        """Process the changes, unless workers do."""
        if self._embeds:
            yield lambda ev: ev.process_all()

    def _expect(self, tickets: Iterable[Ticket]) -> None:
        """Let the next search wait for these changes."""
        self._waiting.update((ticket.id, ticket) for ticket in tickets if ticket.enqueued)

    # reading
    def get(self, ids: Iterable[str]) -> Plan[list[Record]]:
        """Those of the records that exist, in the order of the ids."""
        found = []
        for id in ids:
            record: Record | None = yield partial(_get, kind=self.kind, id=id)
            if record is not None:
                found.append(record)
        return found

    def all(self, filter: Mapping[str, Any] | None = None) -> Plan[list[Record]]:
        """All records that fit a filter, ordered by id."""
        found: list[Record] = []
        after: Record | None = None
        while page := (yield partial(_records, kind=self.kind, filter=filter, after=after)):
            found += page
            after = page[-1]
        return found

    def count(self, filter: Mapping[str, Any] | None = None) -> Plan[int]:
        count: int = yield lambda ev: ev.count(self.kind, filter)
        return count

    def search(
        self, query: str | None, k: int, *, whole: bool = False, **options: Any
    ) -> Plan[list[Hit]]:
        """The best records; `options`: further arguments of `Evervec.search`. `whole`: with the
        texts of their records instead of their best chunks."""
        yield from self._settle()
        options.setdefault("kind", self.kind)
        hits: list[Hit] = yield lambda ev: ev.search(query, k, **options)
        if not whole:
            return list(hits)
        found = []
        for hit in hits:
            record: Record | None = yield partial(_get, kind=hit.kind, id=hit.id)
            if record is not None:  # otherwise it was deleted meanwhile
                found.append(replace(hit, text=record.text))
        return found

    def _settle(self) -> Plan[None]:
        """Wait for the changes made here."""
        until = time.monotonic() + self._wait
        if len(self._waiting) > _FEW:
            yield from self._skip_embedded()
        for id, ticket in list(self._waiting.items()):
            try:
                yield partial(_wait, ticket=ticket, until=until)
            except JobFailed:
                self._settled(id, ticket)  # it is reported once
                raise
            self._settled(id, ticket)

    def _skip_embedded(self) -> Plan[None]:
        """Wait no longer for what is in the index: a call for each of very many changes takes
        longer than a list of those that are not."""
        made, left = list(self._waiting.items()), set[str]()
        after: Record | None = None
        while page := (yield partial(_records, kind=self.kind, embedded=False, after=after)):
            left.update(record.id for record in page)
            after = page[-1]
        for id, ticket in made:
            if id not in left:
                self._settled(id, ticket)

    def _settled(self, id: str, ticket: Ticket) -> None:
        if self._waiting.get(id) is ticket:  # not a later change
            self._waiting.pop(id, None)


def _add(ev: Any, kind: str, data: Any, **options: Any) -> Any:
    return ev.add(kind, data, **options)


def _delete(ev: Any, kind: str, id: str) -> Any:
    return ev.delete(kind, id)


def _get(ev: Any, kind: str, id: str) -> Any:
    return ev.get(kind, id)


def _records(ev: Any, **options: Any) -> Any:
    return ev.records(**options, limit=_PAGE)


def _wait(ev: Any, ticket: Ticket, until: float) -> Any:
    return ev.wait(ticket, max(0.0, until - time.monotonic()))
