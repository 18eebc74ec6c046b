"""Has `makemigrations` notice what models declare."""

from __future__ import annotations

from functools import cache
from typing import Any

from django.apps import apps
from django.db.migrations.autodetector import OperationDependency

from evervec.integrations.django.declaration import Declaration, searched_models
from evervec.integrations.django.operations import KEY, AttachTable, DetachTable


@cache
def noticing(autodetector: Any) -> Any:
    """The autodetector, which may be another package's, with our operations too; the same for all
    commands, as Django demands."""
    if issubclass(autodetector, AttachmentMixin):
        return autodetector
    return type("Autodetector", (AttachmentMixin, autodetector), {})


class AttachmentMixin:
    """Compares the declarations of models with those that the migrations have."""

    from_state: Any
    to_state: Any
    renamed_models: dict[tuple[str, str], str]
    new_model_keys: set[tuple[str, str]]
    add_operation: Any

    def _sort_migrations(self) -> None:
        """Called when all other operations are there: a declaration may name new fields."""
        wanted = {
            (model._meta.app_label, model._meta.model_name): declaration
            for model, declaration in searched_models(apps).items()
        }
        for (app_label, name), state in sorted(self.to_state.models.items()):
            if (app_label, name) not in self.new_model_keys and (
                app_label in self.from_state.real_apps
            ):
                continue  # its app has no migrations, and is not to have any
            before, now = self._before(app_label, name), wanted.get((app_label, name))
            if now is not None and now != before:
                operation = AttachTable(state.name, **now.options())
            elif now is None and before is not None:
                operation = DetachTable(state.name)
            else:
                continue
            self.add_operation(app_label, operation, dependencies=_needed(app_label, name, now))
        super()._sort_migrations()  # type: ignore[misc]

    def _before(self, app_label: str, name: str) -> Declaration | None:
        name = self.renamed_models.get((app_label, name), name).lower()
        state = self.from_state.models.get((app_label, name))
        return None if state is None else state.options.get(KEY)


def _needed(app_label: str, name: str, declaration: Declaration | None) -> list[Any]:
    """What must be created first: the model, and the fields that the declaration names."""
    fields = declaration.field_names if declaration else []
    create = OperationDependency.Type.CREATE
    return [OperationDependency(app_label, name, field, create) for field in (None, *fields)]
