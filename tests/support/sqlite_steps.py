"""What something asks of SQLite, counted by SQLite itself."""

import sqlite3
from collections.abc import Callable

from evervec.stores.sqlite import SqliteStore
from support.world import World


def statements_and_steps(world: World, do: Callable[[], object]) -> tuple[int, int]:
    """The statements that something asks of the store, and hundreds of instructions of SQLite's
    virtual machine. Only what one thread does is counted."""
    assert isinstance(world.ev.store, SqliteStore)
    db, statements, steps = world.ev.store.db, list[str](), list[int]()

    def watch(conn: sqlite3.Connection, on: bool) -> None:
        conn.set_trace_callback(statements.append if on else None)
        conn.set_progress_handler((lambda: steps.append(1)) if on else None, 100)

    for on in (True, False):
        with db.reading() as reader:
            watch(reader, on)
        with db.writing(durable=False) as writer:
            watch(writer, on)
        if on:
            statements.clear()
            do()
    return len(statements), len(steps)
