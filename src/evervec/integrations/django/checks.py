"""System checks: the setting, what models declare, and with `check --database` what is attached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import apps as current_apps
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import FieldDoesNotExist
from django.db import connections, router

from evervec.errors import EvervecError
from evervec.integrations.django.attachments import Attachments
from evervec.integrations.django.conf import Configuration
from evervec.integrations.django.declaration import (
    Declaration,
    declared,
    searched_model,
    searched_models,
)
from evervec.integrations.django.keys import target_of

_SPECIAL = frozenset("{}[].!:")
"""characters that mean something in a template"""
_NOT_KEYS = frozenset(
    {"BinaryField", "BooleanField", "DateTimeField", "DurationField", "FloatField", "TimeField"}
)
"""primary keys whose text in the database is not what Django reads"""


def check_settings(**_: Any) -> list[CheckMessage]:
    """evervec.E001: the setting; E002: the embedder."""
    try:
        read = Configuration.read()
        read.check_options()
    except EvervecError as error:
        return [Error(str(error), hint="Correct the setting EVERVEC.", id="evervec.E001")]
    try:
        read.make_embedder()
    except Exception as error:  # noqa: BLE001 - the project's own code
        hint = "Give the dotted path of an embedder, or of what makes one."
        return [Error(f"EVERVEC['EMBEDDER']: {error}", hint=hint, id="evervec.E002")]
    return []


def check_models(app_configs: Sequence[Any] | None = None, **_: Any) -> list[CheckMessage]:
    """The declarations of models, without looking at a database."""
    chosen = None if app_configs is None else {config.label for config in app_configs}
    found: list[CheckMessage] = []
    kinds: dict[tuple[str, str], Any] = {}
    for model, declaration in searched_models(current_apps).items():
        place = router.db_for_write(model), declaration.kind
        other = kinds.setdefault(place, model)
        if chosen is not None and model._meta.app_label not in chosen:
            continue
        if other is not model:
            found.append(
                Error(
                    f"The kind {declaration.kind!r} is that of {other._meta.label} too.",
                    hint="Give one of them another kind=.", obj=model, id="evervec.E006",
                )
            )  # fmt: skip
        found += [*_wrong_fields(model, declaration), *_wrong_model(model)]
    return found


def _wrong_fields(model: Any, declaration: Declaration) -> Iterator[CheckMessage]:
    own = model._meta.local_concrete_fields
    for name in dict.fromkeys(declaration.field_names):
        try:
            field = model._meta.get_field(name)
        except FieldDoesNotExist:
            field = None
        if field is None or field.many_to_many or not field.concrete:
            names = ", ".join(one.name for one in own)
            yield Error(
                f"SearchIndex names {name!r}, which is not a field with a column.",
                hint=f"Choose from {names}.", obj=model, id="evervec.E003",
            )  # fmt: skip
        elif declaration.is_template and not set(field.column).isdisjoint(_SPECIAL):
            yield Error(
                f"The column {field.column!r} of {name!r} cannot be in a template.",
                hint="Give text= as a list of fields.", obj=model, id="evervec.E010",
            )  # fmt: skip
        elif field not in model._meta.concrete_model._meta.local_concrete_fields:
            yield Error(
                f"SearchIndex names {name!r}, a column of the table of {field.model._meta.label}.",
                hint="Declare it on the parent, or copy the value to a field of this model.",
                obj=model, id="evervec.E004",
            )  # fmt: skip


def _wrong_model(model: Any) -> Iterator[CheckMessage]:
    mine = [name for name, index in declared(model) if searched_model(model, index) is model]
    if model._meta.proxy:
        yield Error(
            "The model is a proxy, and has no table of its own to attach.",
            hint=f"Declare the SearchIndex on {model._meta.concrete_model._meta.label}.",
            obj=model, id="evervec.E009",
        )  # fmt: skip
    if len(mine) > 1:
        yield Error(
            f"The model has several SearchIndexes: {', '.join(mine)}.",
            hint="Keep one, and put all fields into it.", obj=model, id="evervec.E005",
        )  # fmt: skip
    connection = connections[router.db_for_write(model)]
    for field in map(target_of, model._meta.pk_fields):
        type = field.get_internal_type()
        # SQLite has no decimals: 1.50 is 1.5 there
        is_inexact = type == "DecimalField" and field.decimal_places
        if type in _NOT_KEYS or (is_inexact and connection.vendor == "sqlite"):
            yield Error(
                f"The primary key is a {type}, which cannot be a record's id.",
                hint="Use a key of whole numbers, texts, dates or UUIDs.", obj=model,
                id="evervec.E007",
            )  # fmt: skip
    if not _has_separate_store() and connection.vendor not in ("sqlite", "postgresql"):
        yield Error(
            f"Tables in {connection.display_name} cannot be attached.",
            hint="Set EVERVEC['STORE'] to a separate store, and run `manage.py evervec_sync`.",
            obj=model, id="evervec.E008",
        )  # fmt: skip


def _has_separate_store() -> bool:
    try:
        return Configuration.read().store is not None
    except EvervecError:  # E001 says so
        return True


def check_attached(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """evervec.W001: a table whose changes are not heard."""
    if not searched_models(current_apps):
        return []
    return [
        Warning(
            f"{trouble}, so its changes are missed.",
            hint=f"Run `manage.py migrate --database {alias}`.", id="evervec.W001",
        )
        for alias in databases or ()
        for trouble in _missing(alias)
    ]  # fmt: skip


def _missing(alias: str) -> list[str]:
    try:
        return list(Attachments(alias).missing())
    except EvervecError as error:
        return [f"the store of {alias} cannot be opened: {error}"]
