"""One runner for the schemas of all engines.

`schema.sql` here has the tables that are alike in every engine. With the engine's own `schema.sql`,
and any other files that it names, it creates a new store: schema 1. `upgrade_N.sql` upgrades a store from schema N-1 to N. All missing steps run in one transaction, under a lock that the engine takes: processes that open a store at the same time run them only once,
and a process that is killed midway leaves the store unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files

from evervec.errors import StoreError
from evervec.stores.sql.engine import Connection


@dataclass(frozen=True)
class Schema:
    """The schema of one engine."""

    package: str
    """where its files are"""
    convert: Callable[[str], str]
    """converts the shared tables to the engine's dialect"""
    files: tuple[str, ...] = ("schema.sql",)
    latest: int = 1

    def upgrade(self, conn: Connection, found: int, store: str) -> None:
        """Run the missing steps, within a transaction. Raises `StoreError` for a store of a newer
        evervec."""
        self.check(found, store)
        for number in range(found + 1, self.latest + 1):
            for statement in self.statements(number):
                conn.execute(statement)

    @staticmethod
    def found(conn: Connection, exists: str, meta: str) -> int:
        """The schema of a store: 0 if `exists` finds no table `meta`."""
        if conn.execute(exists).fetchone() is None:
            return 0
        query = f"select value from {meta} where key = 'schema'"
        (value,) = conn.execute(query).fetchone() or (0,)
        return int(value)

    def check(self, found: int, store: str) -> None:
        """Reject a store that was created by a newer evervec."""
        if found > self.latest:
            raise StoreError(
                f"{store} was made by a newer evervec (its schema is {found}, this version knows "
                f"{self.latest}): upgrade evervec, or open another store"
            )

    def statements(self, number: int) -> Iterator[str]:
        """The statements of one step."""
        names = self.files if number == 1 else (f"upgrade_{number}.sql",)
        if number == 1:
            shared = files("evervec.stores.sql").joinpath("schema.sql").read_text("utf-8")
            yield from split(self.convert(shared))
        for name in names:
            yield from split(files(self.package).joinpath(name).read_text("utf-8"))


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
