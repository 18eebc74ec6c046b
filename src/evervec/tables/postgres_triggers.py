"""The function and the triggers that follow a table in PostgreSQL.

The function runs with the rights of the role that attached the table, so that the application's
role needs none on the schema evervec. So it must not run code of other roles: its search_path is
fixed, values are converted to text by their type's own output (`format`, never a cast, which a
type's owner can define), and rows are compared as stored (`record_image_ne` uses no user-defined
operator either, and sees differences that `=` ignores).

Keys are logged once per statement. Tables that may also be written through their parent or through
their partitions are logged row by row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from evervec.stores.sql.quotes import literal, quoted
from evervec.tables.attached import Table
from evervec.tables.base import Attachment, trigger_prefix

OUTPUT = {
    "datestyle": "'ISO, YMD'",
    "timezone": "'UTC'",
    "intervalstyle": "'postgres'",
    "extra_float_digits": "1",
    "bytea_output": "'hex'",
}
"""output settings, which each session may choose for itself"""
_SESSION_INDEPENDENT = frozenset(
    {"int2", "int4", "int8", "oid", "text", "varchar", "bpchar", "uuid", "bool", "numeric"}
)
_EXACT = frozenset({"smallint", "integer", "bigint", "uuid"})
_INSERT = "insert into evervec.changes (kind, tenant, id)"


class Column(NamedTuple):
    type: str
    base: str
    """the type below a domain"""
    category: str
    virtual: bool
    """generated when it is read: triggers do not see it"""
    readable: bool


@dataclass(frozen=True)
class PostgresTable(Table):
    """A table with the role that uses it."""

    columns: Mapping[str, Column]
    oid: int
    place: tuple[str, str]
    """schema and name"""
    by_row: bool
    """a parent or a partition: it may be written through another table"""
    may_trigger: bool
    role: str


def events(table: PostgresTable) -> tuple[str, ...]:
    """The triggers that must exist, by the suffixes of their names."""
    if table.by_row:
        return ("rows", "truncate")
    return ("insert", "update", "delete", "truncate")


def statements(table: PostgresTable) -> list[str]:
    """The statements that create the function and its triggers."""
    attachment = table.attachment
    name = trigger_prefix(attachment.kind)
    function = f"evervec.{name}"
    body = _body(attachment, _row_steps(table) if table.by_row else _statement_steps(table))
    # joining the old and new rows of a bulk update needs memory
    rights = "security definer set search_path = pg_catalog, pg_temp set work_mem = '64MB'"
    written = [table.columns[column].base for column in attachment.identity]
    if not _SESSION_INDEPENDENT.issuperset(written):
        rights += "".join(f" set {setting} = {value}" for setting, value in OUTPUT.items())
    call = f"execute function {function}()"
    made = [
        f"drop function if exists {function}() cascade",
        f"create function {function}() returns trigger language plpgsql {rights} as $ev${body}$ev$",
        f"revoke all on function {function}() from public",
    ]
    if table.by_row:
        made.append(
            f"create trigger {name}_rows after insert or update or delete on {table.name} "
            f"for each row {call}"
        )
    else:
        old, new = "old table as old_rows", "new table as new_rows"
        made += [
            f"create trigger {name}_{event} after {event} on {table.name} "
            f"referencing {seen} for each statement {call}"
            for event, seen in (("insert", new), ("update", f"{old} {new}"), ("delete", old))
        ]
    made.append(
        f"create trigger {name}_truncate after truncate on {table.name} for each statement {call}"
    )
    return made


def text_of(value: str) -> str:
    """A value as its own type writes it; empty for null."""
    return f"format('%s', {value})"


class _Steps(NamedTuple):
    """What the function does, in SQL."""

    check_old: str
    check_new: str
    """fail if a column is gone"""
    insert: str
    delete: str
    update: str
    """log the keys"""


def _body(attachment: Attachment, steps: _Steps) -> str:
    return f"""
begin
    if tg_op = 'TRUNCATE' then
        {_INSERT} values ({literal(attachment.kind)}, null, null);
        return null;
    end if;
    begin
        if tg_op = 'DELETE' then
            {steps.check_old}
        else
            {steps.check_new}
        end if;
    exception when undefined_column then
        -- a dropped column must not stop the application: status and doctor report it, and
        -- attaching the table again checks all of its rows
        return null;
    end;
    if tg_op = 'INSERT' then
        {steps.insert}
    elsif tg_op = 'DELETE' then
        {steps.delete}
    else
        {steps.update}
    end if;
    return null;
end
"""


def _statement_steps(table: PostgresTable) -> _Steps:
    """The keys that a statement changed. For an update: removed keys, new keys, and keys whose
    watched columns differ."""
    attachment = table.attachment
    joined = _by_value if _is_exact(table) else _by_text
    return _Steps(
        _check(table, "old_rows"),
        _check(table, "new_rows"),
        _log(attachment, "r", " from new_rows as r"),
        _log(attachment, "r", " from old_rows as r"),
        joined(attachment, _has_virtual(table)),
    )


def _row_steps(table: PostgresTable) -> _Steps:
    attachment = table.attachment
    old, new = _columns(attachment, "old"), _columns(attachment, "new")
    differs = "true" if _has_virtual(table) else f"record_image_ne(row({old}), row({new}))"
    was, now = (
        ", ".join(f"{row}.{quoted(c)}" for c in attachment.identity) for row in ("old", "new")
    )
    log_old, log_new = _log(attachment, "old"), _log(attachment, "new")
    return _Steps(
        f"perform {old};",
        f"perform {new};",
        log_new,
        log_old,
        f"""if {differs} then
            {log_new}
            if record_image_ne(row({was}), row({now})) then
                {log_old}
            end if;
        end if;""",
    )


def _has_virtual(table: PostgresTable) -> bool:
    return any(table.columns[column].virtual for column in table.attachment.columns)


def _is_exact(table: PostgresTable) -> bool:
    """Whether keys can be compared by value: only if equal keys are always written the same."""
    attachment = table.attachment
    exact = all(table.columns[column].type in _EXACT for column in attachment.key)
    return exact and attachment.tenant is None


def _check(table: PostgresTable, rows: str) -> str:
    """Raise if a column is gone, and return if a key has another type now, whose `=` might be
    user-defined. The table must then be attached again, as status and doctor report."""
    named = f"(select {_columns(table.attachment, 'r')} from {rows} as r)"
    if not _is_exact(table):
        return f"perform from {named} as r limit 0;"
    other = " or ".join(
        f"pg_typeof((select r.{quoted(column)} from {named} as r limit 0)) "
        f"<> 'pg_catalog.{table.columns[column].base}'::regtype"
        for column in table.attachment.key
    )
    return f"if {other} then return null; end if;"


# Old and new rows are joined by a full join, which is a hash or merge join: a plan made for one row
# never becomes a nested loop over ten thousand times ten thousand.
def _by_value(attachment: Attachment, virtual: bool) -> str:
    """The keys of an update, joined by value where keys are plain numbers or UUIDs: half the time
    in bulk."""
    keys = [quoted(column) for column in attachment.key]
    same = " and ".join(f"o.{key} = n.{key}" for key in keys)
    old, new = (_columns(attachment, row) for row in ("o", "n"))
    differs = (
        f"o.{keys[0]} is null or n.{keys[0]} is null or record_image_ne(row({old}), row({new}))"
    )
    id = _id_of([f"coalesce(n.{key}, o.{key})" for key in keys])
    known = " and ".join(f"coalesce(n.{key}, o.{key}) is not null" for key in keys)
    return (
        f"{_INSERT} select {literal(attachment.kind)}, null, {id}\n"
        f"        from old_rows as o full join new_rows as n on {same}\n"
        f"        where {known} and ({'true' if virtual else differs});"
    )


def _by_text(attachment: Attachment, virtual: bool) -> str:
    """The keys of an update, joined by their text, each with its tenant."""

    def rows(which: str) -> str:
        return (
            f"(select {_tenant(attachment, 'r')} as tenant, {_id(attachment, 'r')} as id, "
            f"row({_columns(attachment, 'r')}) as image from {which} as r "
            f"where {_is_known(attachment, 'r')})"
        )

    owned = " and coalesce(o.tenant, '') = coalesce(n.tenant, '')" if attachment.tenant else ""
    differs = "o.id is null or n.id is null or record_image_ne(o.image, n.image)"
    kind = literal(attachment.kind)
    return (
        f"{_INSERT} select {kind}, coalesce(n.tenant, o.tenant), coalesce(n.id, o.id)\n"
        f"        from {rows('old_rows')} as o\n"
        f"        full join {rows('new_rows')} as n on o.id = n.id{owned}\n"
        f"        where {'true' if virtual else differs};"
    )


def _log(attachment: Attachment, row: str, rows: str = "") -> str:
    values = f"{literal(attachment.kind)}, {_tenant(attachment, row)}, {_id(attachment, row)}"
    return f"{_INSERT} select {values}{rows} where {_is_known(attachment, row)};"


def _columns(attachment: Attachment, row: str) -> str:
    return ", ".join(f"{row}.{quoted(column)}" for column in attachment.columns)


def _is_known(attachment: Attachment, row: str) -> str:
    """A row without a key is not a record."""
    return " and ".join(f"{row}.{quoted(column)} is not null" for column in attachment.key)


def _tenant(attachment: Attachment, row: str) -> str:
    if attachment.tenant is None:
        return "null"
    return f"nullif({text_of(f'{row}.{quoted(attachment.tenant)}')}, '')"


def _id(attachment: Attachment, row: str) -> str:
    """A row's key; for several columns a JSON list of their texts."""
    return _id_of([f"{row}.{quoted(column)}" for column in attachment.key])


def _id_of(values: Sequence[str]) -> str:
    texts = [text_of(value) for value in values]
    if len(texts) == 1:
        return texts[0]
    parts = [f"to_json({text})::text" for text in texts]
    return "'[' || " + " || ',' || ".join(parts) + " || ']'"
