"""Kinds: named types of records, and how a caller's object becomes a record.

A record is validated, rendered and weighed when it is added, so that a worker in another process
needs none of the caller's code. Invalid input is rejected before anything is written, and the error
names the field.
"""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from datetime import datetime
from functools import cached_property
from types import CodeType
from typing import Any

from evervec.chunking import Chunker, hash_text, parse_chunker
from evervec.errors import InvalidArgument, InvalidRecord
from evervec.model.ranking import Rescore, read_rescore
from evervec.model.records import Record
from evervec.records.drafts import OPTIONS, check_name, make_draft, to_json
from evervec.records.fields import field_types
from evervec.settings import Settings
from evervec.stores.notes import FieldType
from evervec.stores.values import Draft, KindSpec

_OWN = OPTIONS - {"vectors"}
"""the options that a kind without a model takes from the fields of a dict"""


@dataclass(frozen=True)
class Kind:
    """A named type of record.

    `model`: a pydantic model (or dataclass, or TypedDict) that validates it.
    `text`: a template over its fields, or a function of it; by default its field `text`.
    `metadata`: the names of the fields to filter by, or a function that returns a dict.
    `weight`: the name of a field, a number, or a function that returns 0 to 1.
    `rescore`: how weight and age change the relevance of its records: "recent" (new records rank
    higher), "plain" (age does not count), or a `Rescore`. It is saved for all processes; a kind
    that gives none leaves it as it is saved, at first "plain".
    `load`: the loader, for rows that evervec does not own: `id -> text | dict | None` (None:
    deleted).
    `index_fields`: metadata fields that indexes keep ready for filters: names, or names with their
    types (`{"agent": str, "confidence": float}`). A type not given is the model's, else text.
    """

    name: str
    model: Any = None
    text: str | Callable[[Any], str] | None = None
    metadata: Iterable[str] | Callable[[Any], Mapping[str, Any]] | None = None
    weight: str | float | Callable[[Any], float] | None = None
    chunker: Chunker | None = None
    rescore: Rescore | str | None = None
    load: Callable[[str], Any] | None = None
    index_fields: Iterable[str] | Mapping[str, type] | None = None

    def __post_init__(self) -> None:
        check_name("kind", self.name)
        _ = self.field_types, self.rescoring
        names = _field_names(self.model)
        if names is None:
            return
        used = _template_fields(self.text) if isinstance(self.text, str) else set()
        if self.text is None:
            used.add("text")
        if isinstance(self.metadata, (list, tuple, set, frozenset)):
            used.update(self.metadata)
        if isinstance(self.weight, str):
            used.add(self.weight)
        for name in sorted(used - names):
            raise InvalidArgument(
                f"kind {self.name!r} uses a field {name!r} that its model lacks; "
                f"it has {', '.join(sorted(names)) or 'none'}"
            )

    @cached_property
    def field_types(self) -> dict[str, FieldType] | None:
        """The types of `index_fields`; None: it has none."""
        return None if self.index_fields is None else field_types(self.index_fields, self.model)

    @property
    def reads_fields(self) -> bool:
        """Whether its records are objects with fields of their own; else they have a text and the
        other arguments of `add`."""
        return self.model is not None or self.text is not None

    @cached_property
    def required_fields(self) -> frozenset[str]:
        """The fields that its model requires."""
        return _required_names(self.model)

    @property
    def rescoring(self) -> Rescore | None:
        """Its `rescore` by value; None: it gives none."""
        return None if self.rescore is None else read_rescore(self.rescore)

    def spec(self, default: Chunker) -> KindSpec:
        chunker = self.chunker or default
        known = parse_chunker(chunker.spec, default)
        own = known is None or type(known) is not type(chunker)
        return KindSpec(chunker.spec, app=own or self.load is not None)

    def fingerprint(self) -> str:
        """A hash that changes when the text is rendered differently."""
        if self.text is None or isinstance(self.text, str):
            said = f"template {self.text}"
        else:
            said = f"function {_code(getattr(self.text, '__code__', self.text))}"
        return hash_text(said).hex()

    def draft(self, given: Any, options: Mapping[str, Any], settings: Settings) -> Draft:
        """A draft of this kind from a caller's object, within the limits of the settings;
        `InvalidRecord` names the field."""
        value, fields = self._validated(given)
        plain = {name: v for name, v in options.items() if v is not None}
        for name in _OWN & fields.keys() if self.model is None else ():
            plain.setdefault(name, fields[name])
        metadata = self._metadata(value, fields, plain.get("metadata"))
        return make_draft(
            self._text(value, fields),
            {
                **plain,
                "id": plain.get("id", fields.get("id")),
                "metadata": metadata,
                "weight": plain.get("weight", self._weight(value, fields)),
            },
            settings,
            data=self._data(value),
        )

    def read(self, data: str) -> Any:
        """The object that a record was made of, from its JSON: of the model if the data fits it,
        else as JSON gives it."""
        if self.model is not None:
            with suppress(Exception):  # the model changed since, or its own code fails
                return self._adapter.validate_json(data)
        return json.loads(data)

    def _validated(self, given: Any) -> tuple[Any, dict[str, Any]]:
        if self.model is None:
            if isinstance(given, Mapping):
                return dict(given), dict(given)
            return given, {"text": given}
        from pydantic import ValidationError

        names = _field_names(self.model) or set()
        extra = {}
        if isinstance(given, Mapping) and "id" in given and "id" not in names:
            extra = {"id": given["id"]}
            given = {k: v for k, v in given.items() if k != "id"}
        try:
            value = self._adapter.validate_python(given)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the record"
            raise InvalidRecord(f"{self.name}: {where}: {first['msg']}") from None
        if isinstance(value, Mapping):
            return value, extra | {name: value.get(name) for name in names}
        return value, extra | {name: getattr(value, name, None) for name in names}

    def _text(self, value: Any, fields: Mapping[str, Any]) -> Any:
        if self.text is None:
            if "text" not in fields:
                raise InvalidRecord(f"{self.name}: text: is missing")
            return fields["text"]
        if callable(self.text):
            return self.text(value)
        try:
            return self.text.format_map(fields)
        except (KeyError, AttributeError, IndexError) as error:
            raise InvalidRecord(
                f"{self.name}: the record lacks the field {error} of the template"
            ) from None

    def _metadata(
        self, value: Any, fields: Mapping[str, Any], given: Mapping[str, Any] | None
    ) -> Mapping[str, Any] | None:
        if self.metadata is None or not isinstance(given, Mapping | None):
            return given
        if callable(self.metadata):
            own = dict(self.metadata(value))
        else:
            own = {name: _plain(fields.get(name)) for name in self.metadata}
        return {**own, **(given or {})}

    def _weight(self, value: Any, fields: Mapping[str, Any]) -> Any:
        if callable(self.weight):
            return self.weight(value)
        return fields.get(self.weight) if isinstance(self.weight, str) else self.weight

    def _data(self, value: Any) -> str | None:
        if self.model is None:
            return None if isinstance(value, str) or self.text is None else to_json("data", value)
        # so that it can be validated again: with aliases, without computed fields
        dumped: bytes = self._adapter.dump_json(value, by_alias=True, round_trip=True)
        return dumped.decode()

    @cached_property
    def _adapter(self) -> Any:
        from pydantic import TypeAdapter

        return TypeAdapter(self.model)


def read_data(kinds: Mapping[str, Kind], kind: str, data: str | None) -> Any:
    """The object that a record of a kind was made of; None if it was made of plain text."""
    if data is None:
        return None
    known = kinds.get(kind)
    return json.loads(data) if known is None else known.read(data)


def typed_record(kinds: Mapping[str, Kind], stored: Record) -> Record:
    """A record with its object instead of that object's JSON."""
    if stored.data is None:
        return stored
    return replace(stored, data=read_data(kinds, stored.kind, stored.data))


def plain_data(value: Any) -> Any:
    """The object of a record as JSON gives it."""
    if value is None:
        return None
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, by_alias=True, round_trip=True)


def _code(code: Any) -> str:
    """The code of a function as text; code that it calls is not included."""
    if not isinstance(code, CodeType):
        return f"{type(code).__module__}.{type(code).__qualname__}"
    inner = [_code(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {inner}"


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _field_names(model: Any) -> set[str] | None:
    if model is None:
        return None
    found = getattr(model, "model_fields", None) or getattr(model, "__dataclass_fields__", None)
    return set(found or getattr(model, "__annotations__", {}))


def _required_names(model: Any) -> frozenset[str]:
    found = getattr(model, "model_fields", None)
    if found is not None:
        required = [(name, field.alias) for name, field in found.items() if field.is_required()]
        return frozenset(name for names in required for name in names if name)
    if is_dataclass(model):
        return frozenset(
            f.name for f in fields(model) if f.default is MISSING and f.default_factory is MISSING
        )
    return frozenset(getattr(model, "__required_keys__", ()))


def _template_fields(template: str) -> set[str]:
    names = (name for _, name, _, _ in string.Formatter().parse(template) if name is not None)
    return {name.split(".")[0].split("[")[0] for name in names}
