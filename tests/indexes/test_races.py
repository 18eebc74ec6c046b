"""One writer is held between its look at what is there and its write, while a newer one writes."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import lancedb
import pytest
from lancedb.table import LanceTable

from evervec.chunking import hash_text
from evervec.indexes.base import Query
from evervec.indexes.lancedb.head import Head
from evervec.indexes.lancedb.rows import Columns
from evervec.model.records import Change
from indexes.conftest import Make
from support import qdrant_server
from support.vectors import change, vector
from support.world import World

RECORD, SEQ = 1001, 10**6


def version_of(world: World) -> int:
    (collection,) = world.ev.store.versions.collections()
    return collection.version


def words_in(world: World) -> set[bytes]:
    return {p.hash for p in world.ev.index.held(version_of(world), None, RECORD - 1, RECORD)}


def latest(world: World) -> list[dict[str, Any]]:
    """The rows of the table's latest version, whether it counts or not."""
    table = lancedb.connect(world.folder / "vectors").open_table("note_vectors_hashing_64")
    rows: list[dict[str, Any]] = table.to_arrow().to_pylist()
    return rows


@contextmanager
def lance_pause(world: World, meanwhile: Callable[[], None]) -> Iterator[None]:
    """Run `meanwhile` when the first writer knows what is there and is about to commit."""
    as_table, once = Columns.as_table, threading.Lock()

    def held_up(self: Columns) -> Any:
        if once.acquire(blocking=False):
            world.clock.move(400)  # its lock has expired: whoever waits gets it
            meanwhile()
        return as_table(self)

    Columns.as_table = held_up  # type: ignore[method-assign]
    try:
        yield
    finally:
        Columns.as_table = as_table  # type: ignore[method-assign]


@contextmanager
def qdrant_pause(world: World, meanwhile: Callable[[], None]) -> Iterator[None]:
    server, once = qdrant_server.server_of(world.folder), threading.Lock()

    def held_up(method: str, path: str) -> None:
        if path.endswith("/points/batch") and once.acquire(blocking=False):
            meanwhile()

    server.before = held_up
    try:
        yield
    finally:
        server.before = None


PAUSES = {"lancedb": lance_pause, "qdrant": qdrant_pause}


@pytest.mark.parametrize("index", PAUSES)
@pytest.mark.parametrize(
    ("there", "newer"),
    [
        pytest.param([], ["new"], id="both are the first"),
        pytest.param(["old"], ["new"], id="an update"),
        pytest.param(["old"], [], id="a removal"),
        pytest.param(["old", "older", "oldest"], ["new", "old"], id="one that is shorter"),
    ],
)
@pytest.mark.parametrize("late", [["late", "later", "old"], []], ids=["upsert", "delete"])
def test_a_late_write_is_undone_or_never_done(
    make: Make, index: str, there: list[str], newer: list[str], late: list[str]
) -> None:
    world = make(index)
    version, other = version_of(world), world.open()
    if there:
        world.ev.index.apply([change(version, RECORD, SEQ, there)])

    def meanwhile() -> None:
        other.index.apply([change(version, RECORD, SEQ + 9, newer)])

    with PAUSES[index](world, meanwhile):
        world.ev.index.apply([change(version, RECORD, SEQ + 5, late)])
    assert words_in(world) == {hash_text(word) for word in newer}
    world.ev.index.apply([change(version, RECORD, SEQ + 6, ["later still"])])
    assert words_in(world) == {hash_text(word) for word in newer}


@pytest.mark.parametrize("version", ["1.15.4", "1.16.0", "1.17.0"])
def test_older_servers_are_guarded_by_reading_back(make: Make, version: str) -> None:
    world = make("qdrant")
    qdrant_server.server_of(world.folder).version = version
    number, mine, other = version_of(world), world.open(), world.open()
    mine.index.apply([change(number, RECORD, SEQ, ["old", "older"])])

    def meanwhile() -> None:
        other.index.apply([change(number, RECORD, SEQ + 9, ["new"])])

    with qdrant_pause(world, meanwhile):
        mine.index.apply([change(number, RECORD, SEQ + 5, ["late", "old"])])
    assert words_in(world) == {hash_text("new")}


@pytest.mark.parametrize("tidied", [False, True], ids=["written", "tidied"])
def test_a_late_barrier_takes_nothing_away(
    make: Make, monkeypatch: pytest.MonkeyPatch, tidied: bool
) -> None:
    """A writer sleeps when it knows what is there and is about to keep others from writing."""
    world = make("lancedb")
    version, other, once = version_of(world), world.open(), threading.Lock()
    other.index.apply([change(version, RECORD, SEQ, ["old"])])
    restore = LanceTable.restore

    def held_up(self: LanceTable, *given: Any) -> None:
        if once.acquire(blocking=False):
            world.clock.move(400)  # its lock has expired
            other.index.apply([change(version, RECORD, SEQ + 9, ["new"])])
            if tidied:
                other.index._tables[version].writer.tidy()  # type: ignore[attr-defined]
        restore(self, *given)

    monkeypatch.setattr(LanceTable, "restore", held_up)
    world.ev.index.apply([change(version, RECORD + 1, SEQ + 5, ["mine"])])
    assert words_in(world) == {hash_text("new")}
    held = other.index.held(version, None, RECORD - 1, None)
    assert [(p.record, p.hash) for p in held] == [
        (RECORD, hash_text("new")), (RECORD + 1, hash_text("mine")),
    ]  # fmt: skip


class Killed(BaseException):
    """Nothing of the process goes on after this."""


@pytest.mark.parametrize("then", ["a write", "care"])
def test_a_late_barrier_of_one_who_dies_is_undone_by_others(
    make: Make, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    world = make("lancedb")
    version, other = version_of(world), world.open()
    other.index.apply([change(version, RECORD, SEQ, ["old"])])
    restore = LanceTable.restore

    def held_up(self: LanceTable, *given: Any) -> None:
        monkeypatch.setattr(LanceTable, "restore", restore)
        world.clock.move(400)  # its lock has expired
        other.index.apply([change(version, RECORD, SEQ + 9, ["new"])])
        restore(self, *given)
        raise Killed

    monkeypatch.setattr(LanceTable, "restore", held_up)
    with pytest.raises(Killed):
        world.ev.index.apply([change(version, RECORD + 1, SEQ + 5, ["mine"])])
    for reader in (world.ev, other, world.open()):
        found = reader.index.search(Query(version, "default", vector("old"), 5))
        assert [(m.record, m.hash) for m in found] == [(RECORD, hash_text("new"))], "at once"
    if then == "care":
        other.index.maintain(0)
    else:
        other.index.apply([change(version, RECORD, SEQ + 8, ["late"])])
    assert words_in(world) == {hash_text("new")}


def test_a_write_that_never_counted_is_not_read(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer dies between the commit of the table and the move of its head."""
    world = make("lancedb")
    version, other = version_of(world), world.open()
    other.index.apply([change(version, RECORD, SEQ, ["old"])])
    assert words_in(world) == {hash_text("old")}
    move = Head.move

    def killed(self: Head, version: int) -> None:
        if [row["text"] for row in latest(world) if row["record"] == RECORD] == ["new"]:
            raise Killed
        move(self, version)

    monkeypatch.setattr(Head, "move", killed)
    with pytest.raises(Killed):
        world.ev.index.apply([change(version, RECORD, SEQ + 5, ["new"])])
    assert words_in(world) == {hash_text("old")}
    monkeypatch.setattr(Head, "move", move)
    world.ev.index.apply([change(version, RECORD, SEQ + 5, ["new"])])
    assert words_in(world) == {hash_text("new")}


def test_a_reader_asks_the_store_only_after_a_write(make: Make) -> None:
    world = make("lancedb")
    version, reader = version_of(world), world.open()
    asked, note = [], reader.store.shared.note

    def counted(name: str) -> Any:
        asked.append(name)
        return note(name)

    reader.store.shared.note = counted  # type: ignore[method-assign]
    for n in range(3):
        world.ev.index.apply([change(version, RECORD + n, SEQ, ["a"])])
        for _ in range(3):
            assert len(reader.index.held(version, None, RECORD - 1, None)) == n + 1
    assert len(asked) == 3


def test_tidying_takes_nothing_away_when_a_late_barrier_hides_the_head(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make("lancedb")
    version, index = version_of(world), world.ev.index
    index.apply([change(version, RECORD, SEQ, ["old"])])
    late = lancedb.connect(world.folder / "vectors").open_table("note_vectors_hashing_64")
    seen = late.version
    index.apply([change(version, RECORD, SEQ + 9, ["new"])])
    optimize = LanceTable.optimize

    def held_up(self: LanceTable, **given: Any) -> None:
        if "cleanup_older_than" in given:
            monkeypatch.setattr(LanceTable, "optimize", optimize)
            late.restore(seen)
        optimize(self, **given)

    monkeypatch.setattr(LanceTable, "optimize", held_up)
    index._tables[version].writer.tidy()  # type: ignore[attr-defined]
    assert [row["text"] for row in latest(world) if row["record"] == RECORD] == ["old"]
    assert words_in(world) == {hash_text("new")}, "the barrier came in between, and does not count"
    index.apply([change(version, RECORD + 1, SEQ + 5, ["next"])])
    assert words_in(world) == {hash_text("new")}
    index._tables[version].writer.tidy()  # type: ignore[attr-defined]
    assert len(late.list_versions()) == 1


@pytest.mark.parametrize("index", PAUSES)
def test_writers_of_different_records_do_not_disturb_each_other(make: Make, index: str) -> None:
    world = make(index)
    version, other = version_of(world), world.open()

    def meanwhile() -> None:
        other.index.apply([change(version, RECORD + 1, SEQ + 9, ["theirs"])])

    with PAUSES[index](world, meanwhile):
        world.ev.index.apply([change(version, RECORD, SEQ + 5, ["mine", "too"])])
    held = world.ev.index.held(version, None, RECORD - 1, None)
    assert {(p.record, p.hash) for p in held} == {
        (RECORD, hash_text("mine")),
        (RECORD, hash_text("too")),
        (RECORD + 1, hash_text("theirs")),
    }


@pytest.mark.parametrize("index", PAUSES)
def test_two_changes_of_one_record_in_one_call_are_folded(make: Make, index: str) -> None:
    world = make(index)
    version = version_of(world)
    changes: list[Change] = [
        change(version, RECORD, SEQ + 2, ["c"], kept=["a"]),
        change(version, RECORD, SEQ + 1, ["a", "b"]),
    ]
    world.ev.index.apply(changes)
    assert words_in(world) == {hash_text("a"), hash_text("c")}
