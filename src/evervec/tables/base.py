"""What an attached table is, and how its rows become records.

Triggers in the writer's own transaction append the keys of changed rows to a narrow log. Workers
turn the log into jobs, and read the rows when they do the jobs. So a job never embeds less than was
committed when it was made, and a later change makes another pass.
"""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from evervec.errors import EvervecError, InvalidArgument, InvalidRecord
from evervec.model.bounds import shown
from evervec.model.reports import Estimate
from evervec.records.drafts import check_name, make_draft, record_id
from evervec.settings import Settings
from evervec.stores.values import Draft
from evervec.tables.values import as_json, as_moment, as_weight, as_words

UNFIT = (InvalidRecord, ValueError, LookupError, AttributeError, ArithmeticError, TypeError)
"""the errors of a row that cannot be a record"""
_OF_A_PLAN = ("sql", "estimate")
_SHOWN = 60
"""characters of a key in messages"""


class TableChanged(EvervecError):
    """A table is no longer as it was attached; the message says how, and what to do."""


class Row(NamedTuple):
    """A row of an attached table, as workers read it."""

    id: str
    """its key as a record id"""
    tenant: str | None
    values: Mapping[str, Any]
    key: Sequence[Any]
    """its key as the engine needs it to continue after this row"""


@dataclass(frozen=True)
class Attachment:
    """How the rows of a table become records of a kind."""

    table: str
    kind: str
    key: tuple[str, ...]
    text: tuple[str, ...]
    """columns, each a paragraph; with a template, the columns that it uses"""
    template: str | None = None
    title: str | None = None
    metadata: tuple[str, ...] = ()
    weight: str | None = None
    updated_at: str | None = None
    """the column with the time of a row's last change; None: when a worker reads the change"""
    tenant: str | None = None
    """the column with a row's tenant; None: all rows belong to `owner`"""
    owner: str = "default"
    place: tuple[str, ...] = ()
    """schema and name, where the same name may mean another table in another session"""
    types: tuple[str, ...] = ()
    """of the key's columns, where they must stay the same"""
    sql: tuple[str, ...] = field(default=(), compare=False)
    """the statements that attaching runs"""
    estimate: Estimate | None = field(default=None, compare=False)
    """what embedding the rows costs; of a dry run"""

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that are used, each once: the key first."""
        single = [
            c for c in (self.title, self.weight, self.updated_at, self.tenant) if c is not None
        ]
        return tuple(dict.fromkeys([*self.key, *self.text, *self.metadata, *single]))

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that say which record a row is."""
        return (*self.key, self.tenant) if self.tenant else self.key

    def use_of(self, column: str) -> str:
        """What a column is used for, as the arguments of `attach` name it."""
        uses = {
            "id": self.key,
            "template" if self.template else "text": self.text,
            "metadata": self.metadata,
            "title": (self.title,),
            "weight": (self.weight,),
            "updated_at": (self.updated_at,),
            "tenant": (self.tenant,),
        }
        return " and ".join(use for use, columns in uses.items() if column in columns)

    def dump(self) -> str:
        return json.dumps({k: v for k, v in asdict(self).items() if k not in _OF_A_PLAN})

    @classmethod
    def load(cls, text: str) -> Attachment:
        read: dict[str, Any] = json.loads(text)
        for name in ("key", "text", "metadata", "place", "types"):
            read[name] = tuple(read.get(name, ()))
        return cls(**read)

    def id_of(self, values: Sequence[Any]) -> str:
        """A row's key as a record id: the value itself, or a JSON list for several columns."""
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

    def keys_of(self, ids: Iterable[str]) -> list[list[str]]:
        """The keys of those ids that can be a row's."""
        keys = map(self.key_of, ids)
        return [key for key in keys if len(key) == len(self.key)]

    def tenant_of(self, row: Row) -> str:
        return row.tenant or self.owner

    def identify(self, tenant: str | None, id: str) -> tuple[str, str]:
        """Tenant and id of a row's record, given as its engine writes them; raises `InvalidRecord`
        or `InvalidArgument` if the values cannot be a tenant or an id."""
        key = self.key_of(id)
        if len(key) != len(self.key):
            raise InvalidRecord(f"id: must be a list of {len(self.key)} values")
        if any("\0" in part for part in key):
            raise InvalidRecord(
                "id: has a NUL character, or a value that cannot be written as text exactly"
            )
        # engines may format JSON differently
        return check_name("tenant", tenant or self.owner), record_id(self.id_of(key))

    def draft(self, row: Row, settings: Settings) -> Draft | None:
        """The record of a row; None for a row without text."""
        self.identify(row.tenant, row.id)
        if (content := self.content(row)) is None:
            return None
        return make_draft(content.pop("text"), content, settings)

    def content(self, row: Row) -> dict[str, Any] | None:
        """The record of a row as `add_many` takes it; None for a row without text."""
        values = row.values
        words = {column: as_words(values[column]) for column in self.text}
        if self.template is not None:
            text = self.template.format_map(words) if any(words.values()) else ""
        else:
            text = "\n\n".join(word for word in words.values() if word)
        if not text.strip():
            return None
        return {
            "id": row.id,
            "text": text,
            "title": as_words(values[self.title]) if self.title else None,
            "metadata": {column: as_json(values[column]) for column in self.metadata},
            "weight": _read(as_weight, values, self.weight, "a number"),
            "updated_at": _read(as_moment, values, self.updated_at, "a time"),
        }


def _read(
    read: Callable[[Any], Any], values: Mapping[str, Any], column: str | None, what: str
) -> Any:
    """What a column's value is read as; raises `InvalidRecord` with the name of the column."""
    if column is None:
        return None
    try:
        return read(values[column])
    except (ValueError, TypeError, OverflowError):
        raise InvalidRecord(f"{column}: must be {what}, not {shown(values[column])}") from None


def attachment(
    table: str,
    kind: str | None,
    id: str | Iterable[str],
    text: str | Iterable[str],
    metadata: Iterable[str] = (),
    *,
    title: str | None = None,
    weight: str | None = None,
    updated_at: str | None = None,
    tenant: str | None = None,
    owner: str = "default",
) -> Attachment:
    """An attachment from a caller's arguments: `text` is a column, several, or a template; `kind`
    is the table's name without its schema if it is not given."""
    kind = check_name("kind", _bare(table) if kind is None else kind)
    key = (id,) if isinstance(id, str) else tuple(id)
    template = None
    if isinstance(text, str):
        used = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
        template, text = (text, used) if used else (None, [text])
    columns = tuple(dict.fromkeys(text))
    if not key or not columns:
        raise InvalidArgument("attach needs at least one column for id and one for text")
    return Attachment(
        table,
        kind,
        key,
        columns,
        template,
        title,
        tuple(metadata),
        weight,
        updated_at,
        tenant,
        owner,
    )


def _bare(table: str) -> str:
    """The name of a table without its schema and quotes."""
    if table.endswith('"'):
        return table[:-1].rpartition('"')[2]
    return table.rpartition(".")[2]


def trigger_prefix(kind: str) -> str:
    """The prefix of a kind's trigger names: a hash, because a kind may be any text and trigger
    names are short."""
    return f"attached_{blake2b(kind.encode(), digest_size=6).hexdigest()}"


class Attached(NamedTuple):
    """An attachment as the store keeps it."""

    attachment: Attachment
    backfilled: bool
    """the rows that existed before have been enqueued"""


@dataclass(frozen=True)
class AttachedTable:
    """An attached table, and whether it is still followed."""

    table: str
    kind: str
    state: str
    """attached; backfilling: rows that existed before are being enqueued; incomplete: some rows
    cannot be indexed; broken: it is no longer as it was attached, so changes are missed"""
    trouble: str | None
    """what is wrong, and what to do"""
    rows: int | None
    """approximately; None: unknown"""
    embedded: int
    """records of the kind that have vectors, of all tenants"""
    attachment: Attachment
    """what was given to `attach`, which `attach_again` uses"""


class Unfit(NamedTuple):
    """A row that cannot be a record because of its key or its tenant."""

    tenant: str
    id: str
    reason: str

    def __str__(self) -> str:
        shown = self.id if len(self.id) <= _SHOWN else f"{self.id[:_SHOWN]}…"
        return f"{shown!r} ({self.reason})"
