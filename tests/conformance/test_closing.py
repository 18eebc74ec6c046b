"""A store may be closed at any moment: calls of other threads end with an error, or their answer."""

import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from evervec import Evervec, deadline
from evervec.errors import StoreClosed
from support.processes import until
from support.world import KIND, PATIENCE, World, paragraph

_THREADS = 3


def until_closed(ev: Evervec, call: Any, made: list[None], ends: list[Exception]) -> None:
    try:
        while True:
            with deadline(PATIENCE):
                call(ev)
            made.append(None)
    except Exception as error:
        ends.append(error)


def _are_busy(made: list[None], ends: list[Exception]) -> bool:
    return len(made) > 20 or bool(ends)


CALLS = {
    "get": lambda ev: ev.get(KIND, "1"),
    "list": lambda ev: list(ev.records()),
    "stats": lambda ev: ev.queue.stats(),
    "mark": lambda ev: ev.store.mark(),
    "save": lambda ev: ev.add(KIND, paragraph("two"), id="2"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_store_that_is_closed_in_use_is_closed_for_every_thread(world: World, call: Any) -> None:
    world.ev.close()  # stores in one DuckDB file share its connections
    for _ in range(3):
        ev = world.open()
        ev.add(KIND, paragraph("one"), id="1")
        made, ends = list[None](), list[Exception]()
        threads = [
            threading.Thread(target=until_closed, args=(ev, call, made, ends))
            for _ in range(_THREADS)
        ]
        for thread in threads:
            thread.start()
        until(partial(_are_busy, made, ends))
        ev.store.close()
        for thread in threads:
            thread.join(PATIENCE)
        assert [type(error) for error in ends] == [StoreClosed] * _THREADS


def test_a_borrowed_connection_is_closed_when_it_is_given_back(file_world: World) -> None:
    """Its log is removed by SQLite once the last connection is closed."""
    file_world.ev.add(KIND, paragraph("one"), id="1")
    db: Any = file_world.ev.store.db  # type: ignore[attr-defined]
    log = Path(f"{db.path}-wal")
    with db.reading() as conn:
        file_world.ev.store.close()
        assert conn.execute("select count(*) from evervec_records").fetchone() == (1,)
        assert log.exists()
    assert not log.exists()
    with pytest.raises(StoreClosed):
        db.reading()
