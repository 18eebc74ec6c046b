"""Alembic: operations that attach and detach tables in schema migrations.

Importing this module in a project's `env.py` registers them:

    op.attach_evervec("articles", text=["title", "body"])
    op.detach_evervec("articles")
    op.attach_evervec_again("articles")     # after a migration that rebuilt it

They work within the transaction of the migration. `alembic revision --autogenerate` then compares
the models that are declared with `evervec.integrations.sqlalchemy.indexed` with the attached
tables, and leaves the tables of the store alone.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from evervec.errors import EvervecError
from evervec.integrations.sqlalchemy import DECLARED
from evervec.runtime.packages import install_command
from evervec.table_access import join_tables
from evervec.tables.base import Attachment, attachment

try:
    from alembic.autogenerate import comparators, renderers
    from alembic.autogenerate.api import AutogenContext
    from alembic.operations import MigrateOperation, Operations
    from alembic.operations.ops import DropTableOp, ModifyTableOps, UpgradeOps
    from alembic.util import DispatchPriority, PriorityDispatchResult
    from sqlalchemy import Connection, inspect
except ImportError as error:
    raise EvervecError(
        f"Alembic is not installed: {install_command('evervec[alembic]')}"
    ) from error

log = logging.getLogger("evervec")

_DEFAULTS: dict[str, Any] = {
    "kind": None, "id": "id", "metadata": (), "title": None, "weight": None, "updated_at": None,
    "tenant": None, "owner": "default",
}  # fmt: skip


@Operations.register_operation("attach_evervec")
class AttachOperation(MigrateOperation):
    """Attach a table; see `Evervec.attach`."""

    def __init__(
        self,
        table: str,
        given: Mapping[str, Any],
        *,
        replace: bool = False,
        before: Mapping[str, Any] | None = None,
    ) -> None:
        """`before`: what was given when it was attached before, to go back to."""
        self.table = table
        self.given = dict(given)
        self.replace = replace
        self.before = before

    @classmethod
    def attach_evervec(
        cls,
        operations: Operations,
        table: str,
        *,
        text: str | Iterable[str],
        kind: str | None = None,
        id: str | Iterable[str] = "id",
        metadata: Iterable[str] = (),
        title: str | None = None,
        weight: str | None = None,
        updated_at: str | None = None,
        tenant: str | None = None,
        owner: str = "default",
        replace: bool = False,
    ) -> Attachment | None:
        """Index a table and keep it in sync, from the commit of this migration on. The arguments
        are those of `Evervec.attach`; `owner`: the tenant of rows, unless a column says it. Returns
        nothing in offline mode, which writes a comment with the command to run."""
        given = {
            "text": text, "kind": kind, "id": id, "metadata": metadata, "title": title,
            "weight": weight, "updated_at": updated_at, "tenant": tenant, "owner": owner,
        }  # fmt: skip
        made: Attachment | None = operations.invoke(cls(table, given, replace=replace))
        return made

    def reverse(self) -> MigrateOperation:
        if self.before is None:
            return DetachOperation(self.given.get("kind") or self.table, before=self)
        return AttachOperation(self.table, self.before, before=self.given)

    def to_diff_tuple(self) -> tuple[Any, ...]:
        return ("attach_evervec", self.table, self.given)


@Operations.register_operation("detach_evervec")
class DetachOperation(MigrateOperation):
    """Detach a table or kind; see `Evervec.detach`."""

    def __init__(
        self, table: str, *, keep_records: bool = False, before: AttachOperation | None = None
    ) -> None:
        self.table = table
        self.keep_records = keep_records
        self.before = before

    @classmethod
    def detach_evervec(
        cls, operations: Operations, table: str, *, keep_records: bool = False
    ) -> int | None:
        """Stop indexing a table (or kind), and delete its records unless kept; returns how many
        were deleted."""
        gone: int | None = operations.invoke(cls(table, keep_records=keep_records))
        return gone

    def reverse(self) -> MigrateOperation:
        if self.before is None:
            raise NotImplementedError("what was given to attach is not known here")
        return self.before

    def to_diff_tuple(self) -> tuple[Any, ...]:
        return ("detach_evervec", self.table)


@Operations.register_operation("attach_evervec_again")
class AttachAgainOperation(MigrateOperation):
    """Attach a table with what was given before; see `Evervec.attach_again`."""

    def __init__(self, table: str | None, to: str | None) -> None:
        self.table = table
        self.to = to

    @classmethod
    def attach_evervec_again(
        cls, operations: Operations, table: str | None = None, *, to: str | None = None
    ) -> list[Attachment]:
        """Attach a table (or kind) as before, in a migration that rebuilt or renamed it; None: all
        tables that are no longer followed. `to`: its new name."""
        made: list[Attachment] | None = operations.invoke(cls(table, to))
        return made or []


@Operations.implementation_for(AttachOperation)
def _attach(operations: Operations, operation: AttachOperation) -> Attachment | None:
    wanted = attachment(operation.table, **{**_DEFAULTS, **operation.given})
    conn = _connection(operations, _attach_command(wanted))
    if conn is None:
        return None
    return join_tables(conn).attach(wanted, dry_run=False, replace=operation.replace)


@Operations.implementation_for(DetachOperation)
def _detach(operations: Operations, operation: DetachOperation) -> int | None:
    keep = ["--keep-records"] if operation.keep_records else []
    conn = _connection(operations, ["detach", operation.table, *keep])
    if conn is None:
        return None
    return join_tables(conn).detach(operation.table, keep=operation.keep_records)


@Operations.implementation_for(AttachAgainOperation)
def _attach_again(
    operations: Operations, operation: AttachAgainOperation
) -> list[Attachment] | None:
    table = [operation.table] if operation.table else []
    to = ["--to", operation.to] if operation.to else []
    conn = _connection(operations, ["attach", *table, "--again", *to])
    if conn is None:
        return None
    return join_tables(conn).attach_again(operation.table, to=operation.to)


def _connection(operations: Operations, command: list[str]) -> Connection | None:
    """The migration's connection; None in offline mode. What a table needs depends on its columns,
    which a script cannot read, so the script says which command to run."""
    context = operations.migration_context
    if not context.as_sql:
        return operations.get_bind()
    said = f"evervec --store URL {' '.join(map(_word, command))}"
    context.impl.static_output(f"-- evervec: not a part of this script; run now: {said}")
    log.warning("offline mode cannot attach or detach tables: at that place, run `%s`", said)
    return None


def _word(text: str) -> str:
    """A word of a shell's command line; a comment is one line, so line breaks are escaped."""
    if text.isprintable():
        return shlex.quote(text)
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    shown = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in escaped)
    return f"$'{shown}'"


def _attach_command(wanted: Attachment) -> list[str]:
    """The command line that does the same."""
    options = [
        ("kind", [wanted.kind]), ("id", wanted.key),
        ("text", [wanted.template] if wanted.template else wanted.text),
        ("metadata", wanted.metadata), ("title", [wanted.title]), ("weight", [wanted.weight]),
        ("updated-at", [wanted.updated_at]), ("tenant-column", [wanted.tenant]),
        ("tenant", [wanted.owner if wanted.owner != "default" else None]),
    ]  # fmt: skip
    given = [part for name, values in options for v in values if v for part in (f"--{name}", v)]
    return ["attach", wanted.table, *given]


# autogenerate
@renderers.dispatch_for(AttachOperation)
def _render_attach(context: AutogenContext, operation: AttachOperation) -> str:
    given = _given(attachment(operation.table, **{**_DEFAULTS, **operation.given}))
    context.imports.add("import evervec.integrations.alembic")
    arguments = [f"{operation.table!r}", *(f"{name}={value!r}" for name, value in given.items())]
    return f"op.attach_evervec({', '.join(arguments)})"


@renderers.dispatch_for(DetachOperation)
def _render_detach(context: AutogenContext, operation: DetachOperation) -> str:
    context.imports.add("import evervec.integrations.alembic")
    keep = ", keep_records=True" if operation.keep_records else ""
    return f"op.detach_evervec({operation.table!r}{keep})"


def _given(made: Attachment) -> dict[str, Any]:
    """The arguments that make an attachment, without defaults."""
    given = {
        "text": made.template or list(made.text), "kind": made.kind,
        "id": made.key[0] if len(made.key) == 1 else list(made.key),
        "metadata": list(made.metadata), "title": made.title, "weight": made.weight,
        "updated_at": made.updated_at, "tenant": made.tenant, "owner": made.owner,
    }  # fmt: skip
    return {
        name: value
        for name, value in given.items()
        if name == "text" or (value and value != _DEFAULTS[name])
    }


@comparators.dispatch_for("schema", priority=DispatchPriority.LAST)
def compare(
    context: AutogenContext, upgrade: UpgradeOps, schemas: set[str | None]
) -> PriorityDispatchResult:
    """Add operations for models that are declared and not attached so, and for attached tables
    that no model declares any more. Runs after the tables were compared."""
    assert context.connection is not None
    upgrade.ops[:] = [op for op in upgrade.ops if not _is_of_the_store(op)]
    attached = {made.kind: made for made in _attached(context.connection)}
    declared = {made.kind: made for made in _declared(context)}
    for kind, wanted in sorted(declared.items()):
        before = attached.get(kind)
        if before is None or (before.table, _given(before)) != (wanted.table, _given(wanted)):
            log.info("Detected that %s is not attached as %s", wanted.table, kind)
            then = _given(before) if before and before.table == wanted.table else None
            upgrade.ops.append(AttachOperation(wanted.table, _given(wanted), before=then))
    dropped = {op.table_name for op in upgrade.ops if isinstance(op, DropTableOp)}
    for kind, made in sorted(attached.items()):
        # a table that was attached by hand stays, unless the project declares what it attaches
        if kind not in declared and (declared or made.table in dropped):
            log.info("Detected that %s is attached as %s without a model", made.table, kind)
            back = AttachOperation(made.table, _given(made))
            upgrade.ops.insert(0, DetachOperation(kind, before=back))
    return PriorityDispatchResult.CONTINUE


def _declared(context: AutogenContext) -> Iterator[Attachment]:
    for table in context.sorted_tables:
        for given in table.info.get(DECLARED, ()):
            yield attachment(table.fullname, **{**_DEFAULTS, **given})


def _attached(conn: Connection) -> list[Attachment]:
    """Read only: comparing must not create a store."""
    name, schema = ("evervec_attached", None)
    if conn.dialect.name == "postgresql":
        name, schema = ("attached", "evervec")
    if not inspect(conn).has_table(name, schema=schema):
        return []
    table = f"{schema}.{name}" if schema else name
    rows = conn.exec_driver_sql(f"select definition from {table}")
    return [Attachment.load(definition) for (definition,) in rows]


def _is_of_the_store(operation: MigrateOperation) -> bool:
    """Whether it would drop or change a table of evervec, which no model declares."""
    if not isinstance(operation, DropTableOp | ModifyTableOps):
        return False
    return operation.schema == "evervec" or (
        operation.schema is None and operation.table_name.startswith("evervec_")
    )
