"""What it means to attach a table, and the contract that every engine's triggers keep.

Triggers in the writer's own transaction append the keys of changed rows to a narrow log.
Workers fold the log into jobs, and read the rows when they do the jobs: so a job never
embeds less than was committed when it was made, and what comes later makes another pass.
"""

from __future__ import annotations

import json
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date, datetime
from datetime import time as clock_time
from decimal import Decimal
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from evervec.drafts import make_draft
from evervec.errors import InvalidArgument
from evervec.stores.base import Draft


@dataclass(frozen=True)
class Attachment:
    """How rows of a table are records of a kind."""

    table: str
    kind: str
    key: tuple[str, ...]
    text: tuple[str, ...]
    """columns, each a paragraph; of a template, those that it uses"""
    template: str | None = None
    title: str | None = None
    metadata: tuple[str, ...] = ()
    weight: str | None = None
    tenant: str | None = None
    """the column that says whose a row is; None: all are the owner's"""
    owner: str = "default"
    sql: tuple[str, ...] = field(default=(), compare=False)
    """what attaching does to the database"""

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that matter, each once: the key first."""
        single = [c for c in (self.title, self.weight, self.tenant) if c is not None]
        return tuple(dict.fromkeys([*self.key, *self.text, *self.metadata, *single]))

    def dump(self) -> str:
        return json.dumps({k: v for k, v in asdict(self).items() if k != "sql"})

    @classmethod
    def load(cls, text: str) -> Attachment:
        read: dict[str, Any] = json.loads(text)
        for name in ("key", "text", "metadata"):
            read[name] = tuple(read[name])
        return cls(**read)

    def id_of(self, values: Sequence[Any]) -> str:
        """A row's key as a record's id: as it stands, or of several columns a JSON list."""
        texts = [str(value) for value in values]
        if len(texts) == 1:
            return texts[0]
        return json.dumps(texts, ensure_ascii=False, separators=(",", ":"))

    def key_of(self, id: str) -> list[str]:
        if len(self.key) == 1:
            return [id]
        try:
            read = json.loads(id)
        except ValueError:
            read = None
        return [str(v) for v in read] if isinstance(read, list) else []

    def tenant_of(self, row: Mapping[str, Any]) -> str:
        value = row[self.tenant] if self.tenant else None
        return self.owner if value is None else str(value)

    def draft(self, row: Mapping[str, Any]) -> Draft | None:
        """The record that a row is; None for one without any text."""
        words = {column: _words(row[column]) for column in self.text}
        if self.template is not None:
            text = self.template.format_map(words) if any(words.values()) else ""
        else:
            text = "\n\n".join(word for word in words.values() if word)
        if not text.strip():
            return None
        weight = row[self.weight] if self.weight else None
        return make_draft(
            text,
            {
                "id": self.id_of([row[column] for column in self.key]),
                "title": _words(row[self.title]) if self.title else None,
                "metadata": {column: _plain(row[column]) for column in self.metadata},
                "weight": None if weight is None else min(1.0, max(0.0, float(weight))),
            },
        )


def attachment(
    table: str,
    kind: str,
    id: str | Iterable[str],
    text: str | Iterable[str],
    metadata: Iterable[str] = (),
    *,
    title: str | None = None,
    weight: str | None = None,
    tenant: str | None = None,
    owner: str = "default",
) -> Attachment:
    """An attachment as a caller says it: `text` is a column, several, or a template."""
    key = (id,) if isinstance(id, str) else tuple(id)
    template = None
    if isinstance(text, str):
        used = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
        template, text = (text, used) if used else (None, [text])
    columns = tuple(dict.fromkeys(text))
    if not key or not columns:
        raise InvalidArgument("attach needs at least one column for id and one for text")
    return Attachment(
        table, kind, key, columns, template, title, tuple(metadata), weight, tenant, owner
    )


class Attached(NamedTuple):
    """An attachment as the store keeps it."""

    attachment: Attachment
    backfilled: bool
    """the rows that were there before have been enqueued"""


class Source(Protocol):
    """The application's own tables in a store's database."""

    def plan(self, attachment: Attachment) -> Attachment:
        """The attachment with the SQL that attaching runs; `InvalidArgument` names what the
        table does not have."""
        ...

    def attach(self, attachment: Attachment) -> None:
        """Make the triggers, and take note of it; attached before, it is done anew."""

    def detach(self, kind: str) -> bool:
        """Drop the triggers and all that is noted of it; False when there was nothing."""
        ...

    def attached(self) -> list[Attached]: ...

    def trouble(self, attachment: Attachment) -> str | None:
        """What is no longer as it was attached, if anything."""
        ...

    def fold(self, limit: int) -> int:
        """Make jobs of what the triggers logged; how many log rows were folded."""
        ...

    def backfill(self, limit: int, priority: int) -> int:
        """Enqueue a slice of rows that were there before, in order of their keys; how many."""
        ...

    def count(self, attachment: Attachment) -> int:
        """About how many rows the table has."""
        ...

    def page(
        self, attachment: Attachment, position: Sequence[Any], limit: int
    ) -> list[Mapping[str, Any]]:
        """Rows in order of their keys, from the one behind `position`."""
        ...

    def rows(
        self, attachment: Attachment, ids: Sequence[str], *, whole: bool = False
    ) -> dict[str, Mapping[str, Any]]:
        """The rows that there are now, by record id, with the columns that matter, or all."""
        ...


def _words(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes | memoryview):
        return bytes(value).decode("utf-8", "replace").replace("\0", " ")
    return str(value).replace("\0", " ")


def _plain(value: Any) -> Any:
    """A column's value as JSON can hold it."""
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, datetime | date | clock_time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(v) for v in value]
    return str(value)
