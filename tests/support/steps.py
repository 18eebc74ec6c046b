"""How much work something is, counted by the interpreter and by SQLite themselves."""

import sqlite3
import sys
from collections.abc import Callable
from typing import Any

from evervec.stores.sqlite import SqliteStore
from support.world import World


def python_steps(do: Callable[[], object]) -> int:
    """What is counted of one call; generators count each time that they go on."""
    count = 0

    def trace(frame: Any, event: str, arg: Any) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        do()
    finally:
        sys.settrace(before)
    return count


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
