"""Turns callers' input into drafts and saves them, many in one transaction."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, NamedTuple

from evervec.embedding.registry import EmbedderRegistry
from evervec.errors import (
    EvervecError,
    InvalidArgument,
    InvalidRecord,
    QuotaExceeded,
    StoreError,
    ValueRefused,
)
from evervec.model.bounds import check_seq
from evervec.model.filters import Conditions, fits_all, read_filter
from evervec.model.jobs import Ticket
from evervec.model.records import Record
from evervec.records.drafts import (
    check_given,
    check_name,
    check_version,
    existing_id,
    make_draft,
    read_envelope,
)
from evervec.records.frames import ArrowStream, read_records
from evervec.records.kinds import Kind
from evervec.records.vectors import Target, fit_vectors, read_vectors
from evervec.settings import Settings
from evervec.stores.base import Changes, Store
from evervec.stores.values import Draft
from evervec.tables.tables import Tables
from evervec.telemetry.traces import current as current_trace

_DELETED_AT_ONCE = 500


def save_each(
    changes: Changes, tenant: str, kind: str, drafts: Sequence[Draft], conn: Any = None
) -> Iterator[Ticket | EvervecError]:
    """Save drafts in order, as many as possible in one transaction; yields for each its ticket, or
    the error that refused it. The store refuses a whole transaction for one bad value; bisection
    finds the draft that has it. Drafts that are not iterated are not saved, except those saved
    together with earlier ones."""
    try:
        yield from changes.save(tenant, kind, drafts, conn)
    except QuotaExceeded as error:
        yield from _save_what_fits(changes, tenant, kind, drafts, error, conn)
        return
    except _OF_A_DRAFT as error:
        if len(drafts) == 1:
            yield error if isinstance(error, EvervecError) else ValueRefused(_REFUSED.format(error))
            return
    else:
        return
    half = len(drafts) // 2
    yield from save_each(changes, tenant, kind, drafts[:half], conn)
    yield from save_each(changes, tenant, kind, drafts[half:], conn)


def _save_what_fits(
    changes: Changes,
    tenant: str,
    kind: str,
    drafts: Sequence[Draft],
    error: QuotaExceeded,
    conn: Any,
) -> Iterator[Ticket | EvervecError]:
    """Save the drafts that fit the tenant's quota: those before the first refused draft, then the
    other accepted ones. If `error.refused` is empty, none fits."""
    refused = set(error.refused) or set(range(len(drafts)))
    first = min(refused)
    if first:
        yield from save_each(changes, tenant, kind, drafts[:first], conn)
    fitting = [
        draft for place, draft in enumerate(drafts) if place > first and place not in refused
    ]
    others = save_each(changes, tenant, kind, fitting, conn) if fitting else iter(())
    for place in range(first, len(drafts)):
        yield error if place in refused else next(others)


class Save(NamedTuple):
    """A record to save together with others."""

    tenant: str
    kind: str
    draft: Draft


def save_together(
    asked: Sequence[Save],
    changes: Changes,
    save: Callable[[str, str, Sequence[Draft], Any], Iterable[Ticket | EvervecError]],
) -> list[Ticket | Exception]:
    """The ticket or error of each record. `save` is called once per tenant and kind, in one
    transaction for all of them where the store has that; its last argument is the `conn` to save
    with. A draft with a condition is saved by itself, after the drafts before it."""
    groups: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for place, (tenant, kind, draft) in enumerate(asked):
        alone = place if draft.if_seq is not None else -1
        groups[tenant, kind, alone].append(place)
    answers: dict[int, Ticket | Exception] = {}
    try:
        with changes.together() if len(groups) > 1 else nullcontext() as conn:
            for (tenant, kind, _), places in groups.items():
                try:
                    saved = save(tenant, kind, [asked[place].draft for place in places], conn)
                    answers.update(zip(places, saved, strict=True))
                except Exception as error:  # noqa: BLE001 - fails only this group
                    answers.update((place, error) for place in places if place not in answers)
    except Exception as error:  # noqa: BLE001 - the transaction that they share was not committed
        errors = [answer for answer in answers.values() if isinstance(answer, StoreError)]
        cause = errors[0] if errors else error
        return [
            answer if isinstance(answer := answers.get(place), Exception) else cause
            for place in range(len(asked))
        ]
    return [answers[place] for place in range(len(asked))]


_REFUSED = "the store rejected a value of the record; it was not saved: {}"
_OF_A_DRAFT = (ValueRefused, ValueError, TypeError, ArithmeticError)
"""what a store or its driver raises for a value that it does not accept"""


@dataclass(eq=False, repr=False)
class RecordWriter:
    """The writes of one tenant."""

    _store: Store
    _settings: Settings
    _tenant: str
    _kinds: Mapping[str, Kind]
    _models: EmbedderRegistry
    _tables: Tables
    _target: Callable[[str], Target]
    """what vectors of a kind must fit"""

    def draft(self, kind: str, data: Any, options: Mapping[str, Any]) -> Draft:
        """A checked and rendered draft; `options`: the record's other parts by name."""
        check_name("kind", kind)
        return self._draft(kind, data, options)

    def chunks(self, kind: str, data: Any, options: Mapping[str, Any]) -> list[str]:
        """The texts that are embedded for a record, in order."""
        draft = self.draft(kind, data, options)
        _, texts = self._target(kind).cutter.cut(draft.title, draft.text)
        return texts

    def save(self, kind: str, draft: Draft, conn: Any) -> Ticket:
        self._tables.check_writable(kind)
        return self._store.changes.save(self._tenant, kind, [draft], conn)[0]

    def delete(
        self, kind: str, id: Any, conn: Any = None, *, version: Any = None, if_seq: Any = None
    ) -> Ticket:
        """Delete a record, only if `version` is newer than its own and `if_seq` is its seq."""
        check_name("kind", kind)
        id = existing_id(id)
        newer = None if version is None else {id: check_version(version)}
        only = None if check_seq(if_seq) is None else {id: if_seq}
        self._tables.check_writable(kind)
        return self._store.changes.delete(self._tenant, kind, [id], conn, only, newer)[0]

    def delete_where(self, filter: Mapping[str, Any], kind: str | None, *, dry_run: bool) -> int:
        """Delete the records that fit, or only count them. A record that changes between being read
        and being deleted is read again. What waits in a box for a record that fits goes with it."""
        conditions = read_filter(filter, self._settings)
        if fits_all(conditions):
            raise InvalidArgument(
                "delete_where needs a filter that says which records: this one would delete every "
                "record"
            )
        check_given(kind=kind)
        if dry_run or kind is None:  # before records of other kinds are deleted
            self._check_writable(kind, conditions)
        if dry_run:
            return self._store.records.count(self._tenant, kind, conditions)
        deleted, after, changed = 0, None, True
        while changed:
            changed, after = False, None
            while page := self._page(kind, conditions, after):
                after = (page[-1].kind, page[-1].id)
                for name, group in groupby(page, lambda record: record.kind):
                    self._tables.check_writable(name)
                    seqs = {record.id: record.seq for record in group}
                    tickets = self._store.changes.delete(
                        self._tenant, name, list(seqs), if_seq=seqs, despite_debts=True
                    )
                    accepted = sum(ticket.accepted for ticket in tickets)
                    deleted += accepted
                    changed = changed or accepted < len(seqs)
        return deleted

    def _check_writable(self, kind: str | None, conditions: Conditions) -> None:
        """Refuse to delete rows of attached tables."""
        for name in self._tables.by_kind() if kind is None else [kind]:
            if self._store.records.count(self._tenant, name, conditions):
                self._tables.check_writable(name)

    def _page(
        self, kind: str | None, conditions: Conditions, after: tuple[str, str] | None
    ) -> list[Record]:
        return self._store.records.page(
            self._tenant, kind=kind, filter=conditions, after=after, limit=_DELETED_AT_ONCE
        )

    def many(self, kind: str, records: Iterable[Any] | ArrowStream, conn: Any) -> Iterator[Ticket]:
        """Save records lazily, while the result is iterated."""
        check_name("kind", kind)
        return _Tickets(self._many(kind, records, conn), kind)

    def _many(self, kind: str, records: Iterable[Any] | ArrowStream, conn: Any) -> Iterator[Ticket]:
        position, source = 0, iter(read_records(records, self._kinds.get(kind)))
        while batch := list(islice(source, self._settings.add_batch)):
            drafts: list[Draft] = []
            refused: InvalidRecord | None = None
            for item in batch:
                try:
                    drafts.append(self._one_of_many(kind, item))
                except InvalidRecord as error:
                    place = position + len(drafts)
                    refused = InvalidRecord(str(error), position=place)
                    break
            if drafts:
                self._tables.check_writable(kind)
                yield from self._saved(kind, drafts, position, conn)
            if refused is not None:
                raise refused
            position += len(batch)

    def _saved(self, kind: str, drafts: list[Draft], position: int, conn: Any) -> Iterator[Ticket]:
        if conn is not None:  # the caller decides about its own transaction
            yield from self._store.changes.save(self._tenant, kind, drafts, conn)
            return
        saved = save_each(self._store.changes, self._tenant, kind, drafts)
        for place, ticket in enumerate(saved, position):
            if isinstance(ticket, EvervecError):
                kind_of_error = (
                    QuotaExceeded if isinstance(ticket, QuotaExceeded) else InvalidRecord
                )
                raise kind_of_error(str(ticket), position=place) from ticket
            yield ticket

    def _one_of_many(self, kind: str, item: Any) -> Draft:
        known = self._kinds.get(kind)
        if known is not None and known.reads_fields:
            return self._draft(kind, item, {})
        return self._draft(kind, *read_envelope(item))

    def _draft(self, kind: str, data: Any, options: Mapping[str, Any]) -> Draft:
        known, vectors = self._kinds.get(kind), options.get("vectors")
        if known is None:
            draft = make_draft(data, options, self._settings)
        else:
            draft = known.draft(data, options, self._settings)
        if vectors is not None:
            draft.given = fit_vectors(read_vectors(vectors), draft, self._target(kind))
        draft.trace = current_trace()
        if draft.boxed and self._models.main is None:
            raise InvalidArgument(
                "a boxed record stays hidden until it is embedded, but this store was opened "
                "without an embedder: give one, or add the record without boxed"
            )
        return draft


class _Tickets(Iterator[Ticket]):
    """A lazy iterator of tickets; warns if it was never iterated."""

    def __init__(self, tickets: Iterator[Ticket], kind: str) -> None:
        self._tickets = tickets
        self._kind = kind
        self._begun = False

    def __next__(self) -> Ticket:
        self._begun = True
        return next(self._tickets)

    def __del__(self) -> None:
        if not self._begun:
            warnings.warn(
                f"add_many({self._kind!r}, …) was never iterated, so nothing was saved: "
                "use list(ev.add_many(…)) or a for loop",
                RuntimeWarning,
                stacklevel=2,
            )
