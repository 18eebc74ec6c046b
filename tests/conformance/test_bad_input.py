"""Bad input: a clear error or it works, and nothing half-written."""

import contextlib
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import evervec
from evervec import Evervec, InvalidArgument, InvalidRecord, Kind, StoreError
from support.world import KIND, World, add_all, assert_in_step, work

CYCLE: dict[str, Any] = {}
CYCLE["self"] = CYCLE


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def assert_untouched(world: World) -> None:
    """Nothing was written, and the next record works."""
    assert world.ev.records() == []
    assert world.ev.queue.jobs() == []
    world.ev.add(KIND, "good", id="good")
    work(world.ev)
    assert_in_step(world.ev, {"good": "good"})
    world.ev.delete(KIND, "good")


def test_text_that_cannot_be_embedded_is_refused(world: World) -> None:
    texts = ["", "   \n\t ", "a NUL \0 inside", "half a pair \ud83d", b"bytes", None, 7, ["a"]]
    for text in texts:
        records = [{"id": "good", "text": "good"}, {"id": "1", "text": text}]
        with pytest.raises(InvalidRecord, match="text"):
            world.ev.add(KIND, text, id="1")
        with pytest.raises(InvalidRecord, match="position 1"):
            list(world.ev.add_many(KIND, records))
        world.ev.delete(KIND, "good")
        assert world.ev.records() == []


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"title": "NUL \0"}, "title"),
        ({"title": 7}, "title"),
        ({"title": "\udc00"}, "title"),
        ({"id": ""}, "id"),
        ({"id": "a\0b"}, "id"),
        ({"id": "\ud800"}, "id"),
        ({"id": 1.5}, "id"),
        ({"id": True}, "id"),
        ({"id": b"1"}, "id"),
        ({"weight": -0.1}, "weight"),
        ({"weight": 1.1}, "weight"),
        ({"weight": float("nan")}, "weight"),
        ({"weight": "heavy"}, "weight"),
        ({"weight": True}, "weight"),
        ({"priority": 1 << 40}, "priority"),
        ({"priority": 1.0}, "priority"),
        ({"delay": -1}, "delay"),
        ({"delay": float("nan")}, "delay"),
        ({"delay": float("inf")}, "delay"),
        ({"delay": 1e300}, "delay"),
        ({"delay": "soon"}, "delay"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": "many"}, "max_attempts"),
        ({"version": "1"}, "version"),
        ({"version": 1 << 64}, "version"),
        ({"created_at": "yesterday"}, "created_at"),
        ({"created_at": float("inf")}, "created_at"),
        ({"updated_at": float("nan")}, "updated_at"),
        ({"updated_at": 1e300}, "updated_at"),
        ({"updated_at": -1e18}, "updated_at"),
    ],
    ids=str,
)
def test_an_option_that_is_wrong_is_named(
    memory: World, options: dict[str, Any], part: str
) -> None:
    with pytest.raises(InvalidRecord, match=part):
        memory.ev.add(KIND, "text", **options)
    assert_untouched(memory)


@pytest.mark.parametrize(
    "metadata",
    [
        {"a": float("nan")},
        {"a": float("inf")},
        {"a": object()},
        {"a": {1, 2}},
        {"a": b"bytes"},
        {"a": datetime.now(UTC)},
        {"a": "\ud800"},
        {"\ud800": 1},
        {1: "a"},
        {None: "a"},
        {"a": {(1, 2): "x"}},
        CYCLE,
        [1, 2],
        "text",
        7,
        0,
        False,
    ],
)
def test_metadata_that_is_not_json_is_refused(memory: World, metadata: Any) -> None:
    with pytest.raises(InvalidRecord, match="metadata"):
        memory.ev.add(KIND, "text", id="1", metadata=metadata)
    assert_untouched(memory)


def test_metadata_of_any_depth_is_refused(memory: World) -> None:
    with pytest.raises(InvalidRecord, match="metadata_depth"):
        memory.ev.add(KIND, "text", id="1", metadata=nested(100_000))
    assert_untouched(memory)


@pytest.mark.every_index
def test_metadata_as_deep_as_allowed_works_everywhere(world: World) -> None:
    deepest = world.ev.settings.metadata_depth
    deep = {"flat": 1, "deep": nested(deepest - 2)}
    with pytest.raises(InvalidRecord, match="metadata: is nested"):
        world.ev.add(KIND, "alpha", id="1", metadata={"deep": nested(deepest - 1)})
    assert world.ev.records() == []
    world.ev.add(KIND, "alpha", id="1", metadata=deep)
    world.ev.add(KIND, "alpha", id="2", metadata={"flat": 2})
    work(world.ev)
    record = world.ev.get(KIND, "1")
    assert record is not None
    assert record.metadata == deep
    assert [r.id for r in world.ev.records(filter={"flat": 2})] == ["2"]
    assert [h.id for h in world.ev.search("alpha", filter={"flat": 1})] == ["1"]


@pytest.mark.every_index
def test_any_text_can_be_an_id(world: World) -> None:
    ids = [
        "it's",
        'say "hi"',
        "back\\slash",
        "semi; drop table evervec_records; --",
        "percent %s {x}",
        "新しい",
        "\U0001f600",
        " leading and trailing ",
        "line\nbreak",
        "x" * 2048,
        "é" * 1024,
        "null",
        "1e5",
        "[1]",
    ]
    texts = {id: f"alpha {n}" for n, id in enumerate(ids)}
    assert [world.ev.add(KIND, text, id=id).id for id, text in texts.items()] == ids
    work(world.ev)
    assert_in_step(world.ev, texts)
    assert {h.id: h.text for h in world.ev.search("alpha", k=len(ids))} == texts
    for id, text in texts.items():
        record = world.ev.get(KIND, id)
        assert record is not None
        assert (record.id, record.text) == (id, text)
        assert world.ev.queue.history(KIND, id)
        assert not world.ev.add(KIND, text, id=id).is_new
        world.ev.delete(KIND, id)
    work(world.ev)
    assert_in_step(world.ev, {})


def test_an_int_and_its_text_are_the_same_id(memory: World) -> None:
    memory.ev.add(KIND, "alpha", id=42)
    assert not memory.ev.add(KIND, "beta", id="42").is_new
    assert memory.ev.get(KIND, 42) == memory.ev.get(KIND, "42")


def test_ten_megabytes_of_text_work(tmp_path: Path) -> None:
    text = "one sentence of many words, again and again. " * (10_000_000 // 45)
    with evervec.open(tmp_path / "store.db", embedder="hashing") as ev:
        ev.add(KIND, text, id="1")
        assert ev.process_all().succeeded == 1
        record = ev.get(KIND, "1")
        assert record is not None
        assert len(record.text) == len(text)
        assert ev.verify().clean
        assert [h.id for h in ev.search("sentence")] == ["1"]


@pytest.mark.parametrize("count", [33_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_more_chunks_than_a_statement_has_parameters_work(tmp_path: Path, count: int) -> None:
    text = "\n\n".join(f"piece {n:06}." for n in range(count))
    with evervec.open(
        tmp_path / "store.db", embedder=_Cheap(), chunk_tokens=5, lease_seconds=600
    ) as ev:
        ev.add(KIND, text, id="1")
        assert ev.process_all().succeeded == 1
        (attempt,) = ev.queue.history(KIND, "1")
        assert attempt.chunks_embedded == count
        assert ev.verify().clean
        ev.add(KIND, text + "\n\nanother end", id="1")
        assert ev.process_all().succeeded == 1
        last = ev.queue.history(KIND, "1")[-1]
        assert (last.chunks_embedded, last.chunks_reused) == (1, count)


@pytest.mark.parametrize("name", ["", "  ", "\0", "\ud800", None, 7])
def test_a_kind_or_tenant_that_is_no_name_is_refused(memory: World, name: Any) -> None:
    with pytest.raises(InvalidArgument, match="kind"):
        memory.ev.add(name, "text")
    with pytest.raises(InvalidArgument, match="kind"):
        memory.ev.add_many(name, [])
    with pytest.raises(InvalidArgument, match="kind"):
        memory.ev.queue.enqueue(name, "1")
    with pytest.raises(InvalidArgument, match="kind"):
        Kind(name)
    with pytest.raises(InvalidArgument, match="tenant"):
        evervec.open("memory:", embedder="noop", tenant=name)
    assert memory.ev.records() == []


HALF = "\ud800"
LOOKS: dict[str, Callable[[Evervec], object]] = {
    "get": lambda ev: ev.get(HALF, "1"),
    "records of kind": lambda ev: ev.records(HALF),
    "records after": lambda ev: ev.records(after=(HALF, "1")),
    "filter by value": lambda ev: ev.records(filter={"a": HALF}),
    "filter by field": lambda ev: ev.records(filter={HALF: 1}),
    "search of kind": lambda ev: ev.search("alpha", kind=HALF),
    "search by list": lambda ev: ev.search("alpha", filter={"a": [HALF]}),
    "search for": lambda ev: ev.search(HALF),
    "status": lambda ev: ev.queue.status(HALF, "1"),
    "history": lambda ev: ev.queue.history(KIND, HALF),
    "job": lambda ev: ev.queue.get(1 << 70),
    "retry": lambda ev: ev.queue.retry(1 << 70),
}


@pytest.mark.parametrize("look", LOOKS)
def test_looking_with_what_cannot_be_there_is_answered_or_refused_clearly(
    memory: World, look: str
) -> None:
    add_all(memory.ev, KIND, "alpha")
    answer: object = None
    with contextlib.suppress(InvalidArgument, InvalidRecord):
        answer = LOOKS[look](memory.ev)
    assert not answer


@pytest.mark.parametrize(
    "item", [7, None, ["text"], {"id": "1"}, {"txt": "x"}, {"text": "x", "no": 1}]
)
def test_a_record_of_add_many_that_is_none_is_refused(memory: World, item: Any) -> None:
    with pytest.raises(InvalidRecord, match="position 0"):
        list(memory.ev.add_many(KIND, [item]))
    assert_untouched(memory)


def test_a_misspelt_part_of_a_record_is_hinted_at(memory: World) -> None:
    with pytest.raises(InvalidRecord, match="did you mean 'metadata'"):
        list(memory.ev.add_many(KIND, [{"text": "x", "metadta": {}}]))


# stores


def test_a_folder_is_not_a_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a folder"):
        evervec.open(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_store_in_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        evervec.open(tmp_path / "missing" / "store.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content", [b"just some text, no database at all\n" * 100, b"xy", b"\0" * 5000]
)
def test_a_file_that_is_no_database_is_refused_and_left_alone(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="not an SQLite database"):
        evervec.open(path)
    assert path.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.touch()
    with evervec.open(path, embedder="hashing") as ev:
        ev.add(KIND, "alpha", id="1")
    with evervec.open(path, embedder="hashing") as ev:
        assert ev.get(KIND, "1") is not None


def read_all(path: Path) -> None:
    with evervec.open(path, embedder="hashing") as ev:
        ev.records(limit=1000)
        ev.verify()


def test_a_damaged_file_is_refused_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with evervec.open(path, embedder="hashing") as ev:
        add_all(ev, KIND, *("alpha " * 50 for _ in range(200)))
    content = bytearray(path.read_bytes())
    content[4096 : len(content) // 2] = b"\xff" * (len(content) // 2 - 4096)
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"damaged|not an SQLite"):
        read_all(path)


def test_a_file_made_by_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with evervec.open(path, embedder="hashing") as ev:
        ev.add(KIND, "alpha", id="1")
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute("update evervec_meta set value = 99 where key = 'schema'")
        before = list(conn.iterdump())
    with pytest.raises(StoreError, match="newer evervec"):
        evervec.open(path)
    with closing(sqlite3.connect(path)) as conn:
        assert list(conn.iterdump()) == before


def test_the_file_of_an_application_is_shared_with_its_own_tables(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute("create table records (id integer primary key, body text)")
        conn.execute("insert into records (body) values ('the application''s own')")
        conn.execute("create table jobs (id text)")
        conn.execute("pragma user_version = 42")
        conn.execute("pragma application_id = 77")
    with evervec.open(path, embedder="hashing") as ev:
        ev.add(KIND, "alpha", id="1")
        assert ev.process_all().succeeded == 1
        assert ev.verify().clean
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("select body from records").fetchall() == [("the application's own",)]
        assert conn.execute("pragma user_version").fetchone() == (42,)
        assert conn.execute("pragma application_id").fetchone() == (77,)
        mine = conn.execute(
            "select name from sqlite_schema where name not like 'evervec_%' "
            "and name not like 'sqlite_%' order by name"
        )
        assert [row[0] for row in mine] == ["jobs", "records"]


READ_ONLY = textwrap.dedent(
    """
    import os, sys
    import evervec
    evervec.open("memory:", embedder="hashing").close()  # imports what it needs while it may
    if os.getuid() == 0:  # who may write everywhere
        os.setgid(65534)
        os.setuid(65534)
    try:
        with evervec.open(sys.argv[1], embedder="hashing") as ev:
            ev.add("note", "beta", id="2")
    except evervec.StoreError as error:
        print(error)
    """
)


def as_nobody(path: Path) -> str:
    """What an ordinary user is told who opens the store."""
    done = subprocess.run(
        [sys.executable, "-c", READ_ONLY, str(path)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


def test_a_read_only_file_is_refused_and_left_alone(open_folder: Path) -> None:
    path = open_folder / "store.db"
    with evervec.open(path, embedder="hashing") as ev:
        ev.add(KIND, "alpha", id="1")
    before = path.read_bytes()
    path.chmod(0o444)
    assert "cannot be written" in as_nobody(path)
    assert path.read_bytes() == before
    assert [p.name for p in open_folder.iterdir()] == ["store.db"]


def test_a_writable_file_in_a_read_only_folder_is_refused(open_folder: Path) -> None:
    path = open_folder / "store.db"
    with evervec.open(path, embedder="hashing") as ev:
        ev.add(KIND, "alpha", id="1")
    path.chmod(0o666)
    open_folder.chmod(0o555)
    answer = as_nobody(path)
    assert str(path) in answer
    assert "cannot be" in answer


def test_a_new_store_in_a_read_only_folder_is_refused(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    answer = as_nobody(open_folder / "store.db")
    assert "cannot be written" in answer
    assert list(open_folder.iterdir()) == []


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    ev = evervec.open(tmp_path / "store.db", embedder="hashing")
    ev.close()
    ev.close()
    for move in (lambda: ev.add(KIND, "x"), ev.records, lambda: ev.search("x"), ev.process_all):
        with pytest.raises(StoreError, match="is closed"):
            move()


class _Cheap:
    """Vectors of no cost, so that a hundred thousand of them take no time."""

    name, model, dimensions, max_batch = "cheap", "cheap", 4, 4096

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.ones((len(texts), 4), np.float32)
