"""What callers give becomes drafts, and drafts are saved, many in one transaction."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from evervec.drafts import check_name, make_draft, read_envelope
from evervec.errors import InvalidArgument, InvalidRecord, QuotaExceeded
from evervec.kinds import Kind
from evervec.model import Ticket
from evervec.models import Models
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.stores.values import Draft
from evervec.tables import Tables
from evervec.tracing import current as current_trace


class Writing:
    """The writes of one tenant."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        tenant: str,
        kinds: Mapping[str, Kind],
        models: Models,
        tables: Tables,
    ) -> None:
        self._store = store
        self._settings = settings
        self._tenant = tenant
        self._kinds = kinds
        self._models = models
        self._tables = tables

    def draft(self, kind: str, data: Any, options: Mapping[str, Any]) -> Draft:
        """A record, checked and rendered; `options`: its other parts by their names."""
        check_name("kind", kind)
        known = self._kinds.get(kind)
        return self._checked(known.draft(data, options) if known else make_draft(data, options))

    def save(self, kind: str, draft: Draft, conn: Any) -> Ticket:
        self._tables.check_writable(kind)
        return self._store.save(self._tenant, kind, [draft], conn)[0]

    def many(self, kind: str, records: Iterable[Any], conn: Any) -> Iterator[Ticket]:
        """Saves as it is iterated."""
        check_name("kind", kind)
        return _Tickets(self._many(kind, records, conn), kind)

    def _many(self, kind: str, records: Iterable[Any], conn: Any) -> Iterator[Ticket]:
        position, source = 0, iter(records)
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
                tickets, no_room = save_until_refused(self._store, self._tenant, kind, drafts, conn)
                yield from tickets
                if no_room is not None:
                    place = position + len(tickets)
                    refused = QuotaExceeded(str(no_room), position=place)
            if refused is not None:
                raise refused
            position += len(batch)

    def _one_of_many(self, kind: str, item: Any) -> Draft:
        known = self._kinds.get(kind)
        if known is not None and (known.model is not None or known.text is not None):
            return self._checked(known.draft(item, {}))
        text, options = read_envelope(item)
        return self._checked(known.draft(text, options) if known else make_draft(text, options))

    def _checked(self, draft: Draft) -> Draft:
        draft.trace = current_trace()
        if draft.boxed and self._models.main is None:
            raise InvalidArgument(
                "a boxed record appears only once embedded, and this store was opened without "
                "an embedder: give one, or add it without boxed"
            )
        return draft


def save_until_refused(
    store: Store, tenant: str, kind: str, drafts: Sequence[Draft], conn: Any = None
) -> tuple[list[Ticket], QuotaExceeded | None]:
    """Save drafts up to the first that the tenant has no room for; why there is none."""
    try:
        return store.save(tenant, kind, drafts, conn), None
    except QuotaExceeded as error:
        fitting = drafts[: min(error.refused, default=0)]
        return store.save(tenant, kind, fitting, conn) if fitting else [], error


class _Tickets(Iterator[Ticket]):
    """Lazy tickets; it warns when nobody ever asked for one."""

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
