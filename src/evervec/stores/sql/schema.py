"""One runner for the schemas of all engines.

`schema.sql` here has the tables that are alike in every engine, and `points_schema.sql` those of an
index in the store's own file. With the engine's own `schema.sql`, and any other files that it
names, they create a new store: schema 1. `upgrade_N.sql` upgrades a store from schema N-1 to N. All
missing steps run in one transaction, under a lock that the engine takes: processes that open a
store at the same time run them only once, and a process that is killed midway leaves the store
unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from evervec.errors import StoreError
from evervec.stores.sql.engine import Connection


@dataclass(frozen=True)
class Schema:
    """The schema of one engine."""

    package: str
    """where its files are"""
    convert: Callable[[str], str]
    """converts a statement of the shared schema to the engine's dialect"""
    exists: str
    """a query that finds a row once the store has its tables"""
    drops: str
    """a query for the statements that drop all that evervec made, in their order"""
    files: tuple[str, ...] = ("schema.sql",)
    latest: int = 1
    shared: tuple[str, ...] = ("schema.sql", "points_schema.sql")
    meta: str = "evervec_meta"
    missing: tuple[type[Exception], ...] = ()
    """what a query of a missing table raises, where to try it is faster than to ask `exists`"""

    def upgrade(
        self,
        db: Any,
        prepare: Callable[[Any], object] = lambda conn: None,
        complete: Callable[[Any], object] = lambda conn: None,
    ) -> None:
        """Run the missing steps in one transaction, after `prepare`, and for a new store `complete`.
        Raises `StoreError` for a store of a newer evervec."""
        with db.reading() as conn, suppress(*self.missing):
            if (self._noted if self.missing else self.found)(conn) == self.latest:
                return
        with db.writing(durable=True) as conn:
            prepare(conn)
            found = self.found(conn)  # another process may have been faster
            if found > self.latest:
                raise StoreError(
                    f"{db.name} was made by a newer evervec (its schema is {found}, this version "
                    f"knows {self.latest}): upgrade evervec, or open another store"
                )
            for number in range(found + 1, self.latest + 1):
                for statement in self.statements(number):
                    conn.execute(statement)
            if not found:
                complete(conn)
            conn.execute(f"update {self.meta} set value = {self.latest} where key = 'schema'")

    def remove(self, db: Any) -> None:
        """Drop all that evervec made, in one transaction."""
        with db.writing(durable=True) as conn:
            for (statement,) in conn.execute(self.drops).fetchall():
                conn.execute(statement)

    def found(self, conn: Connection) -> int:
        """The schema of a store; 0: it has none yet."""
        if conn.execute(self.exists).fetchone() is None:
            return 0
        return self._noted(conn)

    def _noted(self, conn: Connection) -> int:
        query = f"select value from {self.meta} where key = 'schema'"
        (value,) = conn.execute(query).fetchone() or (0,)
        return int(value)

    def statements(self, number: int) -> Iterable[str]:
        """The statements of one step."""
        return _statements(self, number)


@cache
def _statements(schema: Schema, number: int) -> tuple[str, ...]:
    """Read and converted once in a process, which takes longer than to run them in memory."""
    return tuple(_read(schema, number))


def _read(schema: Schema, number: int) -> Iterator[str]:
    names = schema.files if number == 1 else (f"upgrade_{number}.sql",)
    for name in schema.shared if number == 1 else ():
        for statement in split(files("evervec.stores.sql").joinpath(name).read_text("utf-8")):
            yield from split(schema.convert(statement))
    for name in names:
        yield from split(files(schema.package).joinpath(name).read_text("utf-8"))


def split(script: str) -> Iterator[str]:
    """The statements of a script. A semicolon ends one only at the end of a line, outside the body
    of a function (between `$$`) or of a trigger (`begin` … `end;`)."""
    current = ""
    for line in script.splitlines(keepends=True):
        current += line
        if not line.rstrip().endswith(";") or current.count("$$") % 2:
            continue
        if " begin\n" in current and "$$" not in current and line.strip() != "end;":
            continue
        yield current
        current = ""
