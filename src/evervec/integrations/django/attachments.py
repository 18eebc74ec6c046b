"""Attaches and detaches tables as the applied migrations say, when `migrate` ends.

So a table that a migration rebuilt, as Django does on SQLite, is attached again; and a
`migrate` that was interrupted is completed by the next.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from django.apps import apps as current_apps
from django.core.exceptions import FieldDoesNotExist
from django.core.management.base import CommandError, OutputWrapper
from django.db import connections, router
from django.db.migrations.loader import MigrationLoader

from evervec.errors import EvervecError, InvalidArgument
from evervec.facade import Evervec
from evervec.integrations.django.conf import Configuration
from evervec.integrations.django.declaration import Declaration, searched_models, table_name
from evervec.integrations.django.operations import KEY, AttachTable
from evervec.integrations.django.stores import is_in_memory, open_own_store
from evervec.tables.base import Attachment

_STORE_TABLE = {"sqlite": "evervec_attached", "postgresql": "evervec.attached"}


def attach_as_migrated(using: str, verbosity: int = 1, **sent: Any) -> None:
    """Receives `post_migrate`; `flush` sends it too, but without a plan."""
    if "plan" not in sent:
        return
    out = sent.get("stdout") or OutputWrapper(sys.stdout)
    try:
        for line in Attachments(using, sent.get("apps")).make():
            if verbosity:
                out.write(f"  {line}")
    except EvervecError as error:
        raise CommandError(
            f"the migrations are applied, but not all tables are attached: {error}"
        ) from error


class Attachments:
    """The attachments that one database should have, by its applied migrations."""

    def __init__(self, alias: str, apps: Any = None) -> None:
        """`apps`: the models of the migrations' state, if they are known."""
        self._alias = alias
        self._connection = connections[alias]
        self._loader = MigrationLoader(self._connection)
        self._state = self._loader.project_state(
            [key for key in self._loader.applied_migrations if key in self._loader.graph.nodes]
        )
        self._apps = apps or self._state.apps

    def make(self) -> Iterator[str]:
        """Attach and detach; yields what was done. Raises `EvervecError` at the end if some tables
        could not be attached."""
        if not self._can_attach():
            return
        wanted, failed = dict(self._wanted()), []
        if not wanted and not self._has_store():
            return
        with open_own_store(self._alias, embedder="noop") as ev:
            for kind in self._no_longer(ev, wanted):
                ev.detach(kind)
                yield f"Detached {kind}"
            for attachment in wanted.values():
                try:
                    if not _is_attached(ev, attachment):
                        attach(ev, attachment)
                        yield f"Attached {attachment.table} as {attachment.kind}"
                except InvalidArgument as error:
                    failed.append(f"{attachment.table} was not attached: {error}")
        if failed:
            raise EvervecError("; ".join(failed))

    def missing(self) -> Iterator[str]:
        """Why tables are not attached as they should be; changes nothing."""
        if not self._can_attach():
            return
        wanted = dict(self._wanted())
        if wanted and not self._has_store():
            yield from (f"{a.table} is not attached" for a in wanted.values())
        elif wanted:
            with open_own_store(self._alias, embedder="noop") as ev:
                for attachment in wanted.values():
                    try:
                        if not _is_attached(ev, attachment):
                            yield _trouble(ev, attachment)
                    except InvalidArgument as error:
                        yield str(error)

    def _can_attach(self) -> bool:
        """Not in memory, or on other engines."""
        return self._connection.vendor in _STORE_TABLE and not is_in_memory(self._connection)

    def _has_store(self) -> bool:
        name = _STORE_TABLE[self._connection.vendor]
        with self._connection.cursor() as cursor:
            if self._connection.vendor == "postgresql":
                cursor.execute("select to_regclass(%s) is not null", [name])
                return bool(cursor.fetchone()[0])
            return name in self._connection.introspection.table_names(cursor)

    def _wanted(self) -> Iterator[tuple[str, Attachment]]:
        """By kind; without tables that do not exist, which are not Django's to create. None with a
        separate store: what the triggers log would never be read."""
        if Configuration.read().store:
            return
        owner = Configuration.read().tenant
        for model, declaration in self._declared():
            try:
                attachment = declaration.attachment(model, owner)
            except FieldDoesNotExist:
                continue  # an older state: the declaration came with the field's new name
            if model._meta.managed or self._exists(model):
                yield attachment.kind, attachment

    def _declared(self) -> Iterator[tuple[Any, Declaration]]:
        """What the migrations say; for apps without migrations, what the models say."""
        for (app_label, name), state in self._state.models.items():
            if (found := state.options.get(KEY)) and self._is_here(app_label, name):
                yield self._apps.get_model(app_label, name), found
        for model, declaration in searched_models(current_apps).items():
            app_label, name = model._meta.app_label, model._meta.model_name
            if app_label not in self._loader.unmigrated_apps:
                continue
            if self._is_here(app_label, name) and self._exists(model):
                yield model, declaration

    def _is_here(self, app_label: str, name: str) -> bool:
        return bool(router.allow_migrate(self._alias, app_label, model_name=name))

    def _exists(self, model: Any) -> bool:
        with self._connection.cursor() as cursor:
            return table_name(model) in self._connection.introspection.table_names(cursor)

    def _no_longer(self, ev: Evervec, wanted: Mapping[str, Attachment]) -> list[str]:
        """Kinds that a migration attached, and that the state no longer has. Others were attached
        by hand, and are left alone."""
        ours = {
            operation.declaration.kind
            for migration in self._loader.disk_migrations.values()
            for operation in migration.operations
            if isinstance(operation, AttachTable)
        }
        return [kind for kind in ev.attachments.by_kind() if kind in ours and kind not in wanted]


def attach(ev: Evervec, wanted: Attachment) -> None:
    """Attach a table as planned, through the facade."""
    ev.of(wanted.owner).attach(
        wanted.table, kind=wanted.kind, id=wanted.key, text=wanted.template or wanted.text,
        metadata=wanted.metadata, title=wanted.title, weight=wanted.weight,
        updated_at=wanted.updated_at, tenant=wanted.tenant,
    )  # fmt: skip


def _is_attached(ev: Evervec, wanted: Attachment) -> bool:
    found = ev.attachments.by_kind().get(wanted.kind)
    source = ev.attachments.source
    if found is None or source is None:
        return False
    return source.plan(wanted) == found and source.trouble(found) is None


def _trouble(ev: Evervec, wanted: Attachment) -> str:
    found = ev.attachments.by_kind().get(wanted.kind)
    if found is None:
        return f"{wanted.table} is not attached"
    return (
        ev.attachments.trouble(found) or f"{wanted.table} is attached in another way than migrated"
    )
