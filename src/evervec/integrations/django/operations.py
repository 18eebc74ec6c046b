"""Operations of migrations: `AttachTable` and `DetachTable`, which `makemigrations` writes.

They change the state of the migrations only. When `migrate` ends, `attachments` attaches and detaches
tables as the state then says: triggers cannot be made for a table before it is committed, and a
table that a later migration creates again has lost them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.migrations.operations.models import DeleteModel, ModelOptionOperation

from evervec.integrations.django.declaration import Declaration

KEY = "_evervec"
"""where a model's state keeps its declaration; Django ignores options with an underscore"""


class _TableOperation(ModelOptionOperation):
    """What both have in common: no SQL within the migration, and the last one counts."""

    reduces_to_sql = False

    def database_forwards(self, app_label: str, *_: Any) -> None: ...

    def database_backwards(self, app_label: str, *_: Any) -> None: ...

    def reduce(self, operation: Any, app_label: str) -> Any:
        replaces = isinstance(operation, _TableOperation | DeleteModel)
        if replaces and operation.name_lower == self.name_lower:
            return [operation]
        return super().reduce(operation, app_label)


class AttachTable(_TableOperation):
    """Keep the model's table indexed, as declared by these fields."""

    def __init__(
        self,
        name: str,
        kind: str,
        text: str | Iterable[str],
        title: str | None = None,
        metadata: Iterable[str] = (),
        weight: str | None = None,
        updated_at: str | None = None,
        tenant: str | None = None,
    ) -> None:
        super().__init__(name)
        self.declaration = Declaration.of(
            kind, text, title=title, metadata=metadata, weight=weight, updated_at=updated_at,
            tenant=tenant,
        )  # fmt: skip

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        return type(self).__qualname__, [], {"name": self.name, **self.declaration.options()}

    def state_forwards(self, app_label: str, state: Any) -> None:
        state.models[app_label, self.name_lower].options[KEY] = self.declaration

    def describe(self) -> str:
        return f"Attach the table of {self.name} to its search index"

    @property
    def migration_name_fragment(self) -> str:
        return f"attach_{self.name_lower}"


class DetachTable(_TableOperation):
    """Index the model's table no longer; its records are deleted."""

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        return type(self).__qualname__, [], {"name": self.name}

    def state_forwards(self, app_label: str, state: Any) -> None:
        state.models[app_label, self.name_lower].options.pop(KEY, None)

    def describe(self) -> str:
        return f"Detach the table of {self.name} from its search index"

    @property
    def migration_name_fragment(self) -> str:
        return f"detach_{self.name_lower}"
