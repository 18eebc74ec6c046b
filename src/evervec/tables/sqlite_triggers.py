"""The triggers that follow a table in SQLite, and how they write its keys."""

from __future__ import annotations

from collections.abc import Iterable

from evervec.stores.sql.quotes import literal, quoted
from evervec.tables.attached import Table
from evervec.tables.base import Attachment, trigger_prefix

_TYPED = ("INT", "CHAR", "CLOB", "TEXT")
"""type names that SQLite checks before it checks for BLOB"""


def has_affinity(declared: str) -> bool:
    return any(word in declared for word in _TYPED) or bool(declared and "BLOB" not in declared)


def key_texts(table: Table, row: str) -> list[str]:
    """The values of a row's key as texts by which the row can be found again."""
    return [
        text_of(
            f"{row}.{quoted(column)}",
            _BYTES_NOT_AN_ID if has_affinity(table.columns[column]) else _BYTES,
        )
        for column in table.attachment.key
    ]


def tenant_of(attachment: Attachment, row: str) -> str:
    return text_of(f"{row}.{quoted(attachment.tenant)}") if attachment.tenant else "null"


_BYTES = "lower(hex({0}))"
_BYTES_NOT_AN_ID = f"{_BYTES} || char(0)"
"""in a column of texts or numbers, which never equal bytes: a NUL marks the value as not an id"""
_NUMBER = (
    "case when cast(cast({0} as text) as real) = {0} then cast({0} + 0.0 as text) "
    "when cast(printf('%!.17g', {0}) as real) = {0} then printf('%!.17g', {0}) "
    "when abs({0}) = 9e999 then case when {0} > 0 then '9e999' else '-9e999' end "
    "else cast({0} as text) || char(0) end"
)
"""As few digits as SQLite reads back as the same number. It cannot for some very large or very
small numbers; a NUL marks them as not an id. Zero is added, because SQLite keeps no negative
zero."""


def text_of(value: str, as_bytes: str = _BYTES) -> str:
    """A value as text; bytes as hexadecimal digits."""
    cases = f"when 'blob' then {as_bytes} when 'real' then {_NUMBER} else cast({{0}} as text)"
    return f"case typeof({{0}}) {cases} end".format(value)


def is_known(attachment: Attachment, row: str) -> str:
    """A row without a key is not a record."""
    return " and ".join(f"{row}.{quoted(column)} is not null" for column in attachment.key)


def triggers(table: Table) -> dict[str, str]:
    """The triggers by name. They only append to a narrow log, in the writer's transaction.

    Columns are compared whatever the statement sets, because generated columns are never set, and
    byte by byte, because some collations treat different texts as equal.
    """
    attachment = table.attachment
    name = f"evervec_{trigger_prefix(attachment.kind)}"
    new, old = _log(table, "new"), _log(table, "old")
    moved = _log(table, "old", _differs(attachment.identity))
    events = (
        ("insert", "", new),
        ("update", f"when {_differs(attachment.columns)} ", f"{new} {moved}"),
        ("delete", "", old),
    )
    return {
        f"{name}_{event}": f"create trigger {name}_{event} after {event} on {table.name} "
        f"{when}begin {body} end"
        for event, when, body in events
    }


def _differs(columns: Iterable[str]) -> str:
    return " or ".join(f"old.{quoted(c)} is not new.{quoted(c)} collate binary" for c in columns)


def _log(table: Table, row: str, when: str = "") -> str:
    attachment, texts = table.attachment, key_texts(table, row)
    id = texts[0] if len(texts) == 1 else f"json_array({', '.join(texts)})"
    where = is_known(attachment, row) + (f" and ({when})" if when else "")
    return (
        "insert into evervec_changes (kind, tenant, id) "
        f"select {literal(attachment.kind)}, {tenant_of(attachment, row)}, {id} where {where};"
    )
