"""Attached tables in a store's own database: planning, attaching, logging and reading them.

The same for every engine, which adds how it finds a table, writes its triggers and selects rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any, ClassVar, Generic, TypeVar

from evervec.errors import InvalidArgument, ValueRefused
from evervec.stores.base import Store
from evervec.stores.named import Queries
from evervec.stores.sql.engine import Connection
from evervec.stores.sql.quotes import quoted
from evervec.tables.base import Attached, Attachment, Row, TableChanged, Unfit

Found = TypeVar("Found", bound="Table")
Columns = Sequence[str]

START = "[]"
"""the position of a backfill that has not begun"""
_COUNTED = 100_000
"""rows up to which a table is counted exactly"""


@dataclass(frozen=True)
class Table:
    """An attached table as its database has it now."""

    attachment: Attachment
    name: str
    """quoted, with its schema if there is one"""
    rows: int
    """an estimate; 0: unknown"""
    columns: Mapping[str, Any]
    """by name, with what the engine knows of each"""

    @property
    def key(self) -> list[str]:
        """The columns of the key in SQL, of a row `t`."""
        return [f"t.{quoted(column)}" for column in self.attachment.key]


class AttachedTables(ABC, Generic[Found]):
    """The attachments of a store, their log, and the rows of their tables."""

    sql: ClassVar[Queries]
    where: ClassVar[str]
    """what to do if a table is not found"""
    to_share: ClassVar[str] = ""
    to_own: ClassVar[str] = ""
    """locks on attachments until the transaction ends, where writers do not take turns anyway: one
    that a detach waits for, and one that other processes skip"""

    def __init__(self, db: Any, store: Store | None = None) -> None:
        """`db`: an engine's `Database`; `store` is not needed to plan and count."""
        self._db = db
        self._given = store

    @property
    def _store(self) -> Store:
        assert self._given is not None
        return self._given

    # attaching
    def plan(self, attachment: Attachment) -> Attachment:
        """The attachment with the SQL that attaching runs; `InvalidArgument` names what the table
        lacks, or what the role may not do."""
        with self._db.reading() as conn:
            table = self._find(conn, attachment)
            if table is None:
                raise InvalidArgument(
                    f"table {attachment.table!r} does not exist in {self._db.name}: {self.where}"
                )
            for column in attachment.columns:
                if column not in table.columns:
                    raise InvalidArgument(
                        f"{attachment.table} has no column {column!r}; it has "
                        f"{', '.join(table.columns)}"
                    )
            if not self._is_key(conn, table):
                raise InvalidArgument(
                    f"{', '.join(attachment.key)} is not a key of {attachment.table}: name the "
                    "columns of its primary key, or of a unique index without conditions"
                )
            return self._planned(table)

    def attach(self, attachment: Attachment, *, backfill: bool = True) -> None:
        """Create the triggers and save the attachment; repeats everything if it was attached
        before. Without `backfill` the caller handles existing rows."""
        planned = self.plan(attachment)
        row = (planned.kind, planned.dump(), START if backfill else None)
        with self._db.writing(durable=True) as conn:
            self._drop_triggers(conn, planned.kind)
            for statement in planned.sql:
                conn.execute(statement)
            conn.execute(self.sql.put_attached, row)
        self._store.wake()

    def attach_again(
        self, attachment: Attachment, to: str | None = None, *, dry_run: bool = False
    ) -> Attachment:
        """Attach a table with what was given before, and have all of its rows checked. `to`: its
        new name; a table that was renamed with its triggers is found without it."""
        with self._db.reading() as conn:
            if to is None and self._find(conn, attachment) is None:
                to = self._follower(conn, attachment.kind)
        if to is not None:
            attachment = replace(attachment, table=to, place=())
        planned = self.plan(attachment)
        if not dry_run:
            self.attach(planned)
        return planned

    def detach(self, kind: str) -> bool:
        """Drop the triggers and the attachment; False when there was none."""
        with self._db.writing(durable=True) as conn:
            self._drop_triggers(conn, kind)
            conn.execute(self.sql.drop_changes, (kind,))
            gone: int = conn.execute(self.sql.drop_attached, (kind,)).rowcount
        return gone == 1

    def attached(self) -> list[Attached]:
        with self._db.reading() as conn:
            return loaded(conn.execute(self.sql.attached))

    def trouble(self, attachment: Attachment) -> str | None:
        """What is no longer as it was attached, if anything."""
        with self._db.reading() as conn:
            try:
                table = self._check(conn, attachment)
            except TableChanged as error:
                return str(error)
            enabled = self._triggers(conn, table)
            is_key = self._is_key(conn, table)
        name = attachment.table
        if not is_key:
            return (
                f"{', '.join(attachment.key)} is no longer a key of {name}, so rows may be mixed "
                "up: attach it with the columns of its primary key, or of a unique index without "
                "conditions"
            )
        wanted = set(self._wanted_triggers(table))
        if missing := sorted(wanted - enabled.keys()):
            are_all = len(missing) == len(wanted)
            lacks = "triggers that follow it" if are_all else f"trigger {', '.join(missing)}"
            return (
                f"{name} lacks the {lacks}, so changes are missed (a table that is rebuilt loses "
                f"its triggers): {again(name)}"
            )
        if off := sorted(trigger for trigger, fires in enabled.items() if not fires):
            return (
                f"the trigger {', '.join(off)} of {name} is disabled or was altered, so changes "
                f"are missed: {again(name)}"
            )
        return None

    def _check(self, conn: Connection, attachment: Attachment) -> Found:
        """The table; `TableChanged` if it is no longer as it was attached."""
        table, name = self._find(conn, attachment), attachment.table
        if table is None:
            if renamed := self._follower(conn, attachment.kind):
                raise TableChanged(f"the table {name} is now named {renamed}: {again(name)}")
            raise TableChanged(
                f"the table {name} is gone: detach it with `evervec detach {quote(name)}`, or give "
                f"its new name with `evervec attach {quote(name)} --again --to NAME`"
            )
        if gone := [column for column in attachment.columns if column not in table.columns]:
            used = ", ".join(f"{column} (used as {attachment.use_of(column)})" for column in gone)
            raise TableChanged(
                f"{name} no longer has the column {used}: attach it with columns that it has "
                f"({', '.join(table.columns)})"
            )
        return table

    # the log of changes, and how far a backfill is
    def logged(self, kind: str, ids: Sequence[str]) -> set[str]:
        """The ids that are still in the log."""
        with self._reading() as conn:
            found = {id for (id,) in conn.execute(self.sql.logged, (kind,))}
        return set(ids) if None in found else found & set(ids)

    def _exists(self, query: str) -> bool:
        with self._db.reading() as conn:
            (exists,) = conn.execute(query).fetchone()
        return bool(exists)

    def _set_position(self, conn: Connection, kind: str, position: str | None) -> None:
        conn.execute(self.sql.set_position, (position, kind))

    # rows that were set aside
    def _marked(self, kind: str) -> tuple[str, int] | None:
        """The id of a row that was set aside, and how many were since the mark was cleared."""
        with self._db.reading() as conn:
            found: tuple[str, int] | None = conn.execute(self.sql.marked, (kind,)).fetchone()
        return found

    def _mark(self, conn: Connection, kind: str, example: Unfit) -> bool:
        """Remember that a row was set aside; returns whether none was before."""
        id = example.id.encode("utf-8", "backslashreplace").decode()
        return any(first for (first,) in conn.execute(self.sql.mark, (id, kind)).fetchall())

    def _clear_mark(self, kind: str, times: int) -> None:
        """Clear the mark, unless another row was set aside since."""
        with self._db.writing(durable=False) as conn:
            conn.execute(self.sql.clear_mark, (kind, times))

    # reading
    def count(self, attachment: Attachment) -> int | None:
        """The approximate number of rows in the table; None if there is no such table."""
        with self._db.snapshot() as conn:
            self._limit_wait(conn)
            table = self._find(conn, attachment)
            if table is None or table.rows > _COUNTED:
                return table.rows if table else None
            (rows,) = conn.execute(f"select count(*) from {table.name}").fetchone()
        return int(rows)

    def page(self, attachment: Attachment, behind: Sequence[Any], limit: int) -> list[Row]:
        """Rows in order of their keys, after a given key; may raise `TableChanged`."""
        with self._reading() as conn:
            table = self._check(conn, attachment)
            return self._page(conn, table, attachment.columns, behind, limit)

    def keys(self, attachment: Attachment, behind: Sequence[Any], limit: int) -> list[Row]:
        """Like `page`, without any values."""
        with self._reading() as conn:
            return self._page(conn, self._check(conn, attachment), (), behind, limit)

    def rows(self, attachment: Attachment, ids: Sequence[str]) -> dict[str, Row]:
        """The current rows, by record id; may raise `TableChanged`."""
        return self._by_id(attachment, ids, whole=False)

    def whole(self, attachment: Attachment, ids: Sequence[str]) -> dict[str, Row]:
        """The current rows with all of their columns, as the driver returns them. Rows with a value
        that the driver cannot return are left out."""
        return self._by_id(attachment, ids, whole=True)

    def _by_id(self, attachment: Attachment, ids: Sequence[str], *, whole: bool) -> dict[str, Row]:
        """Read rows; bisect around an id that is not valid for the key's type, or a value that
        Python cannot represent, so that the other rows are still read."""
        if not ids:
            return {}
        try:
            with self._reading() as conn:
                table = self._check(conn, attachment)
                found = self._among(conn, table, ids, whole=whole)
            return {row.id: row for row in found}
        except ValueRefused:
            if len(ids) == 1:
                return {}
        half = len(ids) // 2
        first, second = (self._by_id(attachment, s, whole=whole) for s in (ids[:half], ids[half:]))
        return first | second

    # implemented by the engine
    def _limit_wait(self, conn: Connection) -> None:
        """Let a query fail that waits for a table which a schema migration has locked."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Connection]:
        """A connection that returns keys as the triggers write them."""

    @abstractmethod
    def _find(self, conn: Connection, attachment: Attachment) -> Found | None: ...

    @abstractmethod
    def _is_key(self, conn: Connection, table: Found) -> bool: ...

    @abstractmethod
    def _planned(self, table: Found) -> Attachment:
        """Its attachment with the SQL."""

    @abstractmethod
    def _drop_triggers(self, conn: Connection, kind: str) -> None: ...

    @abstractmethod
    def _triggers(self, conn: Connection, table: Found) -> Mapping[str, bool]:
        """The kind's triggers on the table, and whether each does what it was made for."""

    @abstractmethod
    def _follower(self, conn: Connection, kind: str) -> str | None:
        """The name of a table that has triggers of the kind, whatever its name was."""

    @abstractmethod
    def _wanted_triggers(self, table: Found) -> Iterable[str]:
        """The names of the triggers that must exist."""

    @abstractmethod
    def _page(
        self, conn: Connection, table: Found, columns: Columns, behind: Sequence[Any], limit: int
    ) -> list[Row]:
        """Rows in order of their keys, after a given key."""

    @abstractmethod
    def _among(
        self, conn: Connection, table: Found, ids: Sequence[str], *, whole: bool
    ) -> list[Row]:
        """Rows by their record ids; of several rows with one id, the first in order of keys comes
        last. `whole`: all columns, as the driver returns them."""


def again(table: str) -> str:
    """What to do about a table that is no longer followed."""
    return f"attach it again with `evervec attach {quote(table)} --again`"


def loaded(rows: Iterable[tuple[str, Any]]) -> list[Attached]:
    return [Attached(Attachment.load(text), bool(done)) for text, done in rows]
