"""How a message becomes a change of a record: its id, its version and its content.

The version decides which of two changes is newer, in whatever order and however often they come. A
stream has one rule for it, because versions of two rules cannot be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, NamedTuple

from evervec.errors import InvalidArgument, InvalidRecord
from evervec.facade import Evervec
from evervec.integrations.streams.debezium import UNAVAILABLE, place_of, read_event, unwrapped
from evervec.integrations.streams.message import Message, read_json
from evervec.model.bounds import shown
from evervec.records.drafts import check_version, read_envelope, record_id
from evervec.stores.values import Draft
from evervec.tables.base import Attachment, Row, attachment

RULES = ("auto", "offset", "lsn", "binlog")
_HEADER = "header:"
_DELETES = frozenset({"d", "delete", "deleted", "remove", "removed", "true", "t", "1"})
_POSITION_BITS = 48
"""of a version that is a position; the epoch has the bits above"""
_PARTS = ("text", "title", "metadata", "weight", "updated_at")


class Change(NamedTuple):
    """What a message says about a record."""

    id: str
    version: int
    values: Mapping[str, Any] | None
    """the record's fields; None: it was deleted"""


@dataclass(frozen=True)
class MessageMapping:
    """How the messages of a stream become records of a kind.

    Without `text`, a message is a record as `add_many` takes it, or an object of a registered kind.
    With it, `text`, `title`, `metadata`, `weight` and `updated_at` name fields of the message, as
    those of `attach` name columns. `id`: the fields of the id; default: `id`, or with `debezium`
    the row's key. `op`: the field that says `delete`. `version`: the field that orders the changes of
    a record, `header:NAME`, `offset` (the place in the stream), `lsn` or `binlog` (the place in the
    log of the database, from Debezium); `auto`: as the connector has it, else `offset`.
    """

    kind: str
    debezium: bool = False
    id: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    """fields, or one template such as `"{title}: {body}"`"""
    title: str | None = None
    metadata: tuple[str, ...] = ()
    weight: str | None = None
    updated_at: str | None = None
    version: str = "auto"
    op: str | None = None
    epoch: int = 0
    """follower's own: positions of a higher epoch are newer than all positions of a lower one"""

    def __post_init__(self) -> None:
        if not self.text and any((self.title, self.metadata, self.weight, self.updated_at)):
            raise InvalidArgument(
                "title, metadata, weight and updated_at name fields of a message only together "
                "with text"
            )
        if self.debezium and self.op:
            raise InvalidArgument("an event of Debezium has its own op: leave out one of both")
        if self.version in ("lsn", "binlog") and not self.debezium:
            raise InvalidArgument(f"version={self.version!r} needs the events of Debezium")
        if not self.version or self.version == _HEADER:
            raise InvalidArgument(f"version: name a field, or one of {', '.join(RULES)}")
        _ = self._fields  # checks the template

    @classmethod
    def of(
        cls,
        kind: str,
        *,
        id: str | Iterable[str] = (),
        text: str | Iterable[str] = (),
        metadata: str | Iterable[str] = (),
        **others: Any,
    ) -> MessageMapping:
        """A mapping from a caller's arguments: one field, or several."""
        return cls(
            kind, id=_several(id), text=_several(text), metadata=_several(metadata), **others
        )

    @property
    def may_use_positions(self) -> bool:
        """Whether the place of a message in the stream may order changes; with `auto`, only the
        events of Debezium say what does."""
        return self.version in ("auto", "offset")

    # reading
    def read(self, message: Message) -> Change | None:
        """The change that a message says; None if it says none. Raises `InvalidRecord`, or another
        error of a value, for a message that cannot be read."""
        return self._read_event(message) if self.debezium else self._read_plain(message)

    def _read_event(self, message: Message) -> Change | None:
        if message.value is None:  # it follows a delete, and has no place in the database's log
            return self._read_plain(message) if self.version == "offset" else None
        found = read_event(message.value)
        if found is None:
            return None
        row, known, event = found
        keys = _key_fields(message.key)
        names = self.id or tuple(keys)
        if not names:
            raise InvalidRecord(
                "id: the message has no key, or one that is not JSON with fields: name the "
                "fields of the id"
            )
        id = self._id({**known, **keys} if not self.id else {**keys, **known}, names)
        place = place_of(event, self.version) if self.version in RULES else None
        if place is None:
            place = self._version(message, event)
        return Change(id, check_version(place), row)

    def _read_plain(self, message: Message) -> Change:
        if message.value is None:
            return Change(self._id_of_key(message), self._version(message, {}), None)
        values = read_json(message.value)
        if not isinstance(values, Mapping):
            raise InvalidRecord(f"must be a JSON object, not {shown(values)}")
        version = self._version(message, values)
        names = self.id or ("id",)
        has_id = any(name in values for name in names)
        id = self._id(values, names) if has_id else self._id_of_key(message)
        if self.op and str(values.get(self.op)).lower() in _DELETES:
            return Change(id, version, None)
        return Change(id, version, values)

    def _id(self, values: Mapping[str, Any], names: tuple[str, ...]) -> str:
        """The id of some fields: the value itself, or a JSON list of several, as for a table."""
        parts = [values.get(name) for name in names]
        for name, part in zip(names, parts, strict=True):
            if part is None:
                raise InvalidRecord(f"id: the field {name!r} is missing")
            if isinstance(part, bool) or not isinstance(part, str | int):
                raise InvalidRecord(
                    f"id: the field {name!r} must be text or a whole number, not {shown(part)}"
                )
        id = parts[0] if len(parts) == 1 else Attachment("", "", names, ()).id_of(parts)
        return record_id(id)

    def _id_of_key(self, message: Message) -> str:
        """The id in a message's key, which is JSON or plain text."""
        if not message.key:
            raise InvalidRecord("id: the message has neither an id nor a key")
        fields = _key_fields(message.key)
        if fields:
            return self._id(fields, self.id or tuple(fields))
        return record_id(_key_text(message.key))

    def _version(self, message: Message, values: Mapping[str, Any]) -> int:
        rule = self.version
        if rule in RULES:
            return self.epoch << _POSITION_BITS | message.position
        if rule.startswith(_HEADER):
            given: Any = message.headers.get(rule.removeprefix(_HEADER))
        else:
            given = values
            for name in rule.split("."):
                given = given.get(name) if isinstance(given, Mapping) else None
        if given is None:
            raise InvalidRecord(f"version: {rule} is missing, which orders the changes of a record")
        return _as_version(given)

    # content
    def draft(self, ev: Evervec, change: Change) -> Draft | None:
        """The record of a change, checked; None if it is deleted, or has no text any more."""
        if change.values is None:
            return None
        options = {"id": change.id, "version": change.version}
        if ev.reads_fields(self.kind):
            return ev.draft(self.kind, dict(change.values), options)
        if self._fields is None:
            return ev.draft(self.kind, *self._envelope(change.values, options))
        draft = self._fields.draft(self._row(change, self._fields), ev.settings)
        if draft is not None:
            draft.version = change.version
        return draft

    def _envelope(
        self, values: Mapping[str, Any], options: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        if "version" in values and self.version in RULES:
            raise InvalidRecord(
                "version: the message has one, but the stream is followed by offsets: name the "
                "field as its version"
            )
        used = {*(self.id or ("id",)), self.op, self.version}
        rest = {name: value for name, value in values.items() if name not in used}
        text, others = read_envelope(rest)
        return text, {**others, **options}

    @cached_property
    def _fields(self) -> Attachment | None:
        """The fields as the columns of a table: both become records by the same rules."""
        if not self.text:
            return None
        return attachment(
            "", self.kind, "id", self.text[0] if len(self.text) == 1 else self.text, self.metadata,
            title=self.title, weight=self.weight, updated_at=self.updated_at,
        )  # fmt: skip

    def _row(self, change: Change, fields: Attachment) -> Row:
        values = change.values or {}
        if not any(name in values for name in fields.text):
            raise InvalidRecord(f"text: the message has no field {' or '.join(fields.text)}")
        row = {name: values.get(name) for name in fields.columns}
        for name, value in row.items():
            if value == UNAVAILABLE:
                raise InvalidRecord(
                    f"{name}: the database did not send this unchanged large column: set REPLICA "
                    "IDENTITY FULL on its table"
                )
        if self.updated_at:
            row[self.updated_at] = _in_seconds(row[self.updated_at])
        return Row(change.id, None, row, ())


def _several(given: str | Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _key_fields(key: bytes | None) -> dict[str, Any]:
    """The fields of a key that is a JSON object."""
    try:
        read = unwrapped(read_json(key)) if key else None
    except InvalidRecord:
        return {}
    return dict(read) if isinstance(read, Mapping) else {}


def _key_text(key: bytes) -> str:
    """A key that is a JSON text or whole number, else its own text."""
    try:
        read = unwrapped(read_json(key))
    except InvalidRecord:
        read = None
    if isinstance(read, str) or (isinstance(read, int) and not isinstance(read, bool)):
        return str(read)
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise InvalidRecord("id: the message's key is not valid UTF-8") from None


def _as_version(given: Any) -> int:
    """A version from a field: a whole number, or a time in microseconds."""
    if isinstance(given, str):
        text = given.strip()
        if text.removeprefix("-").isdecimal() and len(text) < 21:
            return check_version(int(text))
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            raise InvalidRecord(
                f"version: must be a whole number or a time, not {shown(given)}"
            ) from None
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
        since = time - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds
    return check_version(given)


def _in_seconds(value: Any) -> Any:
    """A time in seconds: connectors write milliseconds, microseconds or nanoseconds, which lie so
    far apart that the number tells its unit (for times after 1973)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    for unit in (1e9, 1e6, 1e3):
        if abs(value) >= 1e8 * unit:
            return value / unit
    return value
