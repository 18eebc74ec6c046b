"""Copies the rows of models to a store outside of their database, where triggers cannot reach.

Unchanged rows cost a comparison, not an embedding. Tests use it for rows of a transaction that no
other connection sees.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from django.db import connections

from evervec.facade import Evervec
from evervec.integrations.django.declaration import Declaration
from evervec.integrations.django.keys import primary_key, stored_key, stored_value
from evervec.stores.slices import records_of
from evervec.tables.base import UNFIT, Attachment, Row
from evervec.tables.values import as_words

log = logging.getLogger("evervec")

_AT_ONCE = 500


def copy_rows(ev: Evervec, model: Any, declaration: Declaration, using: str) -> Copied:
    """Make the records of a model what its rows are now. A row that cannot be a record is skipped
    with a warning."""
    copier = _Copier(ev, model, declaration.attachment(model, ev.tenant), using)
    return Copied(copier.save(), copier.delete())


class Copied(NamedTuple):
    """How many rows were compared, and how many records had no row any more."""

    rows: int
    deleted: int


class _Copier:
    def __init__(self, ev: Evervec, model: Any, attachment: Attachment, using: str) -> None:
        self._ev = ev
        self._model = model
        self._attachment = attachment
        self._connection = connections[using]
        self._rows = model._base_manager.using(using)
        fields = {field.column: field for field in model._meta.local_concrete_fields}
        self._fields = [fields[column] for column in attachment.columns]

    def save(self) -> int:
        """Add the rows that are new or changed; the others make no job."""
        count = 0
        rows = self._read(self._rows.order_by("pk")).iterator(chunk_size=_AT_ONCE)
        records = (record for values in rows if (record := self._record(values)) is not None)
        for tenant, mine in groupby(records, key=itemgetter(0)):
            kept = (record for _, record in mine)
            tickets = self._ev.of(tenant).add_many(self._attachment.kind, kept)
            count += sum(1 for _ in tickets)
        return count

    def delete(self) -> int:
        """Delete the records whose row is gone, has no text, or has another tenant now."""
        kind, gone = self._attachment.kind, 0
        for found in records_of(self._ev.store, kind, _AT_ONCE):
            live = [record for record in found if record.live]
            keys = [primary_key(self._model, record.id) for record in live]
            rows = self._read(self._rows.filter(pk__in=[key for key in keys if key is not None]))
            made = {
                (tenant, record["id"]) for tenant, record in filter(None, map(self._record, rows))
            }
            for record in live:
                if (record.tenant, record.id) not in made:
                    gone += self._ev.of(record.tenant).delete(kind, record.id).accepted
        return gone

    def _read(self, rows: Any) -> Any:
        return rows.values_list(*(field.attname for field in self._fields))

    def _record(self, values: Sequence[Any]) -> tuple[str, dict[str, Any]] | None:
        """The tenant and the record of a row; None if it is not to be one."""
        attachment, connection = self._attachment, self._connection
        named = {
            field.column: stored_value(field, value, connection)
            for field, value in zip(self._fields, values, strict=True)
        }
        key = stored_key(self._model, values[: len(attachment.key)], connection)
        tenant = as_words(named[attachment.tenant]) if attachment.tenant else ""
        row = Row(attachment.id_of(key), tenant or None, named, key)
        try:
            draft = attachment.draft(row, self._ev.settings)
        except UNFIT as error:
            log.warning("row %s of %s is skipped: %s", row.id, attachment.table, error)
            return None
        if draft is None:
            return None
        return attachment.tenant_of(row), {
            "id": draft.id, "text": draft.text, "title": draft.title,
            "metadata": json.loads(draft.metadata), "weight": draft.weight,
            "updated_at": draft.updated_at,
        }  # fmt: skip
