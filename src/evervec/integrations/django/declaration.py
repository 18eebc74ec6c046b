"""What a model declares: which of its fields are searched, and how."""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from evervec.errors import InvalidArgument
from evervec.tables.base import Attachment, attachment

if TYPE_CHECKING:
    from evervec.integrations.django.search import ModelSearch


@dataclass(frozen=True)
class Declaration:
    """How the rows of a model become records, by names of fields. Migrations keep it."""

    kind: str
    text: str | tuple[str, ...]
    """fields, each a paragraph; or a template, or a single field"""
    title: str | None = None
    metadata: tuple[str, ...] = ()
    weight: str | None = None
    updated_at: str | None = None
    tenant: str | None = None

    @classmethod
    def of(cls, kind: str, text: str | Iterable[str], **given: Any) -> Declaration:
        given["metadata"] = tuple(given.get("metadata") or ())
        return cls(kind, text if isinstance(text, str) else tuple(text), **given)

    def options(self) -> dict[str, Any]:
        """The arguments that are not left at their defaults, as a migration writes them."""
        named = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, (value, default) in named.items()
            if value != default
        }

    @property
    def field_names(self) -> list[str]:
        single = (self.title, self.weight, self.updated_at, self.tenant)
        return [*self._texts, *self.metadata, *(name for name in single if name)]

    @property
    def is_template(self) -> bool:
        return isinstance(self.text, str) and bool(_names(self.text))

    @property
    def _texts(self) -> Sequence[str]:
        if not isinstance(self.text, str):
            return self.text
        return _names(self.text) or [self.text]

    def attachment(self, model: Any, owner: str) -> Attachment:
        """How the model's table is attached: the same with columns for fields. The model may be one
        of a migration's state. Raises Django's `FieldDoesNotExist`."""
        column = {name: column_of(model, name) for name in self.field_names}

        def named(name: str | None) -> str | None:
            return None if name is None else column[name]

        text: str | list[str] = [column[name] for name in self._texts]
        if isinstance(self.text, str) and self.is_template:
            text = _renamed(self.text, column)
        return attachment(
            table_name(model), self.kind, [field.column for field in model._meta.pk_fields], text,
            [column[name] for name in self.metadata], title=named(self.title),
            weight=named(self.weight), updated_at=named(self.updated_at),
            tenant=named(self.tenant), owner=owner,
        )  # fmt: skip


class SearchIndex:
    """Declares on a model that it is searched: `evervec = SearchIndex(text=["title", "body"])`.

    Then `Article.evervec.search("…")` finds instances. `text`: fields, each a paragraph, or a
    template such as `"{title}: {body}"`. `metadata`: fields to filter by. `title`, `weight` (0 to 1),
    `updated_at` and `tenant` are fields too. `kind`: the name of the records in the store, the
    model's label unless given. All fields must be columns of the model's own table. A model that
    inherits the declaration from an abstract model has a table of its own; a child of a concrete
    model is searched by its parent's rows.
    """

    def __init__(
        self,
        text: str | Iterable[str],
        *,
        title: str | None = None,
        metadata: Iterable[str] = (),
        weight: str | None = None,
        updated_at: str | None = None,
        tenant: str | None = None,
        kind: str | None = None,
    ) -> None:
        self.text = text if isinstance(text, str) else tuple(text)
        self._kind = kind
        self._rest = {
            "title": title, "metadata": tuple(metadata), "weight": weight,
            "updated_at": updated_at, "tenant": tenant,
        }  # fmt: skip
        if not self.text:
            raise InvalidArgument("SearchIndex needs at least one field for text")

    def __get__(self, instance: Any, model: Any) -> ModelSearch:
        if instance is not None:
            raise AttributeError(f"a SearchIndex is not for instances: use it on {model.__name__}")
        from evervec.integrations.django.search import ModelSearch

        return ModelSearch(self, model)

    def declaration(self, model: Any) -> Declaration:
        return Declaration.of(self._kind or model._meta.label_lower, self.text, **self._rest)


def declared(model: Any) -> Iterator[tuple[str, SearchIndex]]:
    """The declarations that a model has itself or inherits, by attribute."""
    seen = set()
    for base in model.__mro__:
        for name, value in vars(base).items():
            if name not in seen and isinstance(value, SearchIndex):
                seen.add(name)
                yield name, value


def searched_model(model: Any, index: SearchIndex) -> Any:
    """The model whose table is attached for a declaration that `model` has or inherits: the most
    basic model with a table that has it."""
    holders = [
        base
        for base in model.__mro__
        if hasattr(base, "_meta")
        and not base._meta.abstract
        and any(index is found for _, found in declared(base))
    ]
    return holders[-1]


def searched_models(apps: Any) -> dict[Any, Declaration]:
    """All models whose tables are to be attached, with the first declaration of each."""
    found: dict[Any, Declaration] = {}
    for model in apps.get_models():
        for _, index in declared(model):
            if not model._meta.swapped and searched_model(model, index) is model:
                found.setdefault(model, index.declaration(model))
    return found


def column_of(model: Any, name: str) -> str:
    column: str = model._meta.get_field(name).column
    return column


def table_name(model: Any) -> str:
    """Its table's name as `attach` finds it: exact, or in SQL if it is quoted in part, as some do
    to name a schema (`schema"."table`)."""
    name: str = model._meta.db_table
    inner = name.strip('"')
    return f'"{inner}"' if '"' in inner else inner


def _names(template: str) -> list[str]:
    return [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]


def _renamed(template: str, column: Mapping[str, str]) -> str:
    """A template with other names."""
    parts = []
    for literal, name, form, conversion in string.Formatter().parse(template):
        parts.append(literal.replace("{", "{{").replace("}", "}}"))
        if name is not None:
            how = f"!{conversion}" if conversion else ""
            parts.append(f"{{{column[name]}{how}{f':{form}' if form else ''}}}")
    return "".join(parts)
