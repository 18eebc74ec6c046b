"""Splits tables into hash partitions: when a store is made, or later, while others work on it.

The rows of a table are copied to a partitioned one beside it, in short transactions. A trigger makes
each change of a row in both. Then the two change places, under a lock that is held for milliseconds. The
empty tables of a new store are replaced at once. A process that is killed leaves a store that works, and
the next call continues.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg

from evervec.errors import InvalidArgument
from evervec.stores.named import Queries
from evervec.stores.postgres import engine
from evervec.stores.postgres.block_walk import tids
from evervec.stores.postgres.connections import Connections, Session

log = logging.getLogger("evervec")

SQL = Queries.read("evervec.stores.postgres", "partitions.sql")
MOST = 256
"""partitions of a table"""
_BLOCKS = 64
"""copied in one transaction"""
_PATIENCE_MS = 100
"""for a lock that others hold: less than the time after which a deadlock would end their transaction"""
_SWAP_MS = 200
"""for a lock of the whole table: others wait behind it"""
_REST = 0.05
_LONG_REST = 2.0
"""before such a lock is tried again"""
_QUIET = 5.0
"""seconds until it is logged that a transaction is in the way"""
_AGAIN = psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected
_SEARCH_PATH = "set local search_path = pg_catalog, public"
"""so that definitions name the schema of each table"""
_POINTS = re.compile(r"points_\d+")

Progress = Callable[[str, int, int], object]
"""called with a table, how many of its blocks were copied, and how many it has"""


class _Split(NamedTuple):
    """How one table is split."""

    table: str
    key: tuple[str, ...]
    """includes `by`, as PostgreSQL demands of each unique constraint"""
    by: tuple[str, ...]
    constraint: str = "primary key"
    alone: str = ""
    """a column that is unique because its numbers come from a sequence"""
    needless: str = ""
    """the index that the constraint replaces"""


_SPLITS = (
    _Split("records", ("tenant", "kind", "id"), ("tenant", "kind", "id"), "unique", "record"),
    _Split("jobs", ("record", "version"), ("record",), "unique", "job_id"),
    _Split("ledger", ("record", "version"), ("record",)),
    _Split("attempts", ("record", "number"), ("record",), needless="attempts_record"),
)


def split_new(conn: Any, parts: int) -> None:
    """Split the tables of a store that has just been made, in the caller's transaction."""
    (path,) = conn.execute("select current_setting('search_path')").fetchone()
    conn.execute(_SEARCH_PATH)
    for split in _SPLITS:
        swap = _Swap(conn, split, parts)
        swap.create()
        swap.change_places()
    conn.execute("select set_config('search_path', $1, true)", (path,))


def drop_copies(conn: Any) -> None:
    """Drop what unfinished moves have copied, in the caller's transaction: before an upgrade, whose
    changes would not reach the copies. A process that is moving a table begins with it again."""
    for table in _begun(conn):
        _drop_copy(conn, table)


class Partitioner:
    """Splits the tables of a store in use."""

    def __init__(self, db: Connections, memory_mb: int) -> None:
        self._db = db
        self._memory_mb = memory_mb
        """of the server, for building an HNSW index"""

    def move(self, parts: int, progress: Progress) -> list[str]:
        """Split all tables that are not split yet, those of vectors too; returns their names. What
        an earlier call has copied is kept."""
        if not 2 <= parts <= MOST:
            raise InvalidArgument(f"a store has 2 to {MOST} partitions, not {parts}")
        moved = []
        with self._alone() as conn:
            conn.execute(SQL.use_memory, (self._memory_mb,))
            splits = list(_splits(conn))
            for table in _begun(conn) - {split.table for split in splits}:
                _forget(conn, table)  # it was dropped with its version
            for split in splits:
                while _parts_of(conn, split.table) == 0:
                    try:
                        _Move(conn, split, parts, progress).run()
                    except psycopg.errors.UndefinedTable:
                        both = split.table, f"{split.table}_next"
                        if all(_parts_of(conn, table) is not None for table in both):
                            raise
                        _forget(conn, split.table)  # dropped with its version, or by an upgrade
                    else:
                        moved.append(split.table)
        return moved

    def undo(self) -> list[str]:
        """Drop what an unfinished move has copied; returns the tables that it was splitting."""
        with self._alone() as conn:
            begun = sorted(_begun(conn))
            for table in begun:
                _forget(conn, table)
        return begun

    @contextmanager
    def _alone(self) -> Iterator[Session]:
        """A connection of the only process that splits tables."""
        with self._db.explained(), self._db.dedicated() as raw:
            conn = Session(raw)
            (taken,) = conn.execute(SQL.take_turn).fetchone()
            if not taken:
                raise InvalidArgument(f"another process is splitting the tables of {self._db.name}")
            yield conn


def _splits(conn: Session) -> Iterator[_Split]:
    yield from _SPLITS
    for (table,) in conn.execute(SQL.tables).fetchall():
        if _POINTS.fullmatch(table):
            yield _Split(table, ("record", "hash"), ("record",))


def _begun(conn: Any) -> set[str]:
    tables = (table for (table,) in conn.execute(SQL.tables))
    return {t.removesuffix("_next") for t in tables if t.endswith("_next")}


def _parts_of(conn: Session, table: str) -> int | None:
    found = conn.execute(SQL.parts_of, (table,)).fetchone()
    return None if found is None else int(found[0])


def _next_name(index: str, table: str) -> str:
    """What an index is called until the tables change places."""
    return f"{table}_next_{index.removeprefix(f'{table}_')}"


def _forget(conn: Session, table: str) -> None:
    def forget() -> None:
        with _transaction(conn, _SWAP_MS):
            _drop_copy(conn, table)

    _again(forget, _LONG_REST)


def _drop_copy(conn: Any, table: str) -> None:
    conn.execute(f"drop function if exists evervec.mirror_{table}() cascade")
    conn.execute(f"drop table if exists evervec.{table}_next")
    conn.execute(SQL.forget_copied, (table,))


class _Move:
    """The way of one table into its partitions."""

    def __init__(self, conn: Session, split: _Split, parts: int, progress: Progress) -> None:
        self._conn = conn
        self._split = split
        self._progress = progress
        self._swap = _Swap(conn, split, parts)

    def run(self) -> None:
        table, conn, swap = self._split.table, self._conn, self._swap
        begun = _parts_of(conn, f"{table}_next")
        if begun not in (None, swap.parts):  # with another number of partitions
            _forget(conn, table)
            begun = None
        if begun is None:
            _again(self._begin, _LONG_REST)
        self._copy()
        swap.build_graphs()
        _again(self._end, _LONG_REST)
        conn.execute(f"analyze {swap.table}")
        log.info("%s is split into %d partitions", swap.table, swap.parts)

    def _begin(self) -> None:
        with _transaction(self._conn, _SWAP_MS):
            self._swap.create()
            self._conn.execute(self._swap.sql(SQL.create_mirror))
            self._conn.execute(self._swap.sql(SQL.start_mirror))

    def _copy(self) -> None:
        table, conn = self._split.table, self._conn
        (blocks,) = conn.execute(engine.SQL.blocks, (self._swap.table,)).fetchone()
        found = conn.execute(SQL.copied_upto, (table,)).fetchone()
        query, place = self._swap.sql(SQL.copy_rows), found[0] if found else 0
        while place < blocks:
            end = min(place + _BLOCKS, blocks)

            def copy(first: int = place, end: int = end) -> None:
                with _transaction(conn, _PATIENCE_MS):
                    conn.execute(query, tids(first, end))
                    conn.execute(SQL.note_copied, (table, end))

            _again(copy, _REST)
            place = end
            self._progress(table, place, blocks)

    def _end(self) -> None:
        with _transaction(self._conn, _SWAP_MS):
            self._conn.execute(f"lock table {self._swap.table} in access exclusive mode")
            self._swap.change_places()


@contextmanager
def _transaction(conn: Session, patience_ms: int) -> Iterator[None]:
    with conn.raw.transaction():
        conn.execute("set transaction isolation level read committed")
        conn.execute(_SEARCH_PATH)
        conn.execute("set local synchronous_commit = off")
        conn.execute(f"set local lock_timeout = {patience_ms}")
        yield


def _again(do: Callable[[], None], rest: float) -> None:
    """Until no other transaction is in the way."""
    began = time.monotonic()
    told = False
    while True:
        try:
            return do()
        except _AGAIN as error:
            if time.monotonic() - began > _QUIET and not told:
                log.warning("an open transaction is in the way, and is waited for: %s", error)
                told = True
            time.sleep(rest)


class _Swap:
    """A partitioned table beside another, whose place it takes."""

    def __init__(self, conn: Any, split: _Split, parts: int) -> None:
        self.conn = conn
        self.split = split
        self.table = f"evervec.{split.table}"
        self.parts = parts

    def sql(self, query: str, **more: str) -> str:
        key, columns = self.split.key, [name for (name,) in self._ask(SQL.columns, self.table)]
        values = {
            "table": self.split.table, "columns": ", ".join(key), "hash": ", ".join(self.split.by),
            "key": self.split.constraint, "all": ", ".join(columns),
            "new_all": ", ".join(f"new.{c}" for c in columns),
            "old_key": ", ".join(f"old.{c}" for c in key),
            "new_key": ", ".join(f"new.{c}" for c in key),
            "updates": ", ".join(f"{c} = excluded.{c}" for c in columns),
        } | more  # fmt: skip
        return re.sub(r"{(\w+)}", lambda found: values[found[1]], query)

    def create(self) -> None:
        """The partitioned table, with the indexes of the other."""
        run, name, alone = self.conn.execute, self.split.table, self.split.alone
        run(self.sql(SQL.create_split))
        ((given,),) = self._ask(SQL.storage_parameters, self.table)
        storage = f" with ({given})" if given else ""
        for part in range(self.parts):
            numbers = {"part": str(part), "parts": str(self.parts), "with": storage}
            run(self.sql(SQL.create_leaf, **numbers))
            if alone:
                run(
                    f"create unique index {name}_{part}_{alone} on evervec.{name}_next_{part} ({alone});"
                    f"alter table evervec.{name}_next_{part} "
                    f"replica identity using index {name}_{part}_{alone}"
                )
        if "number" in self.split.key:
            run(self.sql(SQL.own_numbers))
        for index, definition, is_graph in self._ask(SQL.indexes, self.table):
            if not is_graph and index != self.split.needless:
                run(
                    definition.replace(f"INDEX {index} ON {self.table} ",
                                       f"INDEX {_next_name(index, name)} ON {self.table}_next ")
                )  # fmt: skip

    def build_graphs(self) -> None:
        """HNSW indexes: built when the rows are there, which takes a fraction of the time."""
        for index, definition, is_graph in self._ask(SQL.indexes, self.table):
            for part in range(self.parts) if is_graph else ():
                name, leaf = f"{self.split.table}_{part}_hnsw", f"{self.table}_next_{part}"
                built = {index for index, *_ in self._ask(SQL.indexes, leaf)}
                if name not in built:
                    self.conn.execute(f"drop index if exists evervec.{name}")
                    self.conn.execute(
                        definition.replace(f"INDEX {index} ON {self.table} ",
                                           f"INDEX CONCURRENTLY {name} ON {leaf} ")
                    )  # fmt: skip

    def change_places(self) -> None:
        """The other table is dropped. The caller has locked it, or is alone."""
        run, name = self.conn.execute, self.split.table
        dependents = self._ask(SQL.dependents, self.table)
        if "number" in self.split.key:
            run(self.sql(SQL.go_on_numbering))
        run(f"alter table {self.table} rename to {name}_old")
        run(f"alter table {self.table}_next rename to {name}")
        for part in range(self.parts):
            run(f"alter table {self.table}_next_{part} rename to {name}_{part}")
        for drop, create in dependents:
            if drop:
                run(drop.replace(self.table, f"{self.table}_old"))
            run(create)
        for part in range(self.parts):
            for (trigger,) in self._ask(SQL.deletion_triggers, self.table):
                run(trigger.replace(f" ON {self.table} ", f" ON {self.table}_{part} "))
        run(f"drop table {self.table}_old")
        run(f"drop function if exists evervec.mirror_{name}()")
        for (index,) in self._ask(SQL.indexes_to_rename, f"{name}_next"):
            run(f"alter index evervec.{index} rename to {index.replace(f'{name}_next', name)}")
        run(SQL.forget_copied, (name,))

    def _ask(self, query: str, *values: Any) -> Sequence[tuple[Any, ...]]:
        rows: Sequence[tuple[Any, ...]] = self.conn.execute(query, values).fetchall()
        return rows
