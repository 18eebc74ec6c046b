"""Keys of SQLite tables, where any column may hold a value of any type."""

import math
import sqlite3
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import evervec
from evervec import Evervec
from support.world import ScriptedEmbedder


class Keys:
    """A table with a key of some type, and the records that it becomes."""

    def __init__(self, path: Path) -> None:
        self.app = sqlite3.connect(path, isolation_level=None)
        self.ev: Evervec = evervec.open(path, embedder=ScriptedEmbedder())

    def attach(self, declared: str, *before: Any) -> None:
        self.app.execute(f"create table t (id {declared} primary key, body text)")
        self.insert(before)
        self.ev.attach("t", kind="t", text="body")

    def insert(self, keys: Iterable[Any]) -> None:
        self.app.executemany("insert into t values (?, 'text ' || quote(?1))", [(k,) for k in keys])

    def ids(self) -> list[str]:
        self.ev.process_all()
        assert self.ev.queue.failed() == []
        assert self.ev.verify().faults == {}
        return [record.id for record in self.ev.records("t", limit=10_000)]

    def followed(self) -> None:
        """Every row is a record now, and again after each was changed and deleted."""
        rows = self.app.execute("select count(*) from t").fetchone()[0]
        assert len(self.ids()) == rows
        self.app.execute("update t set body = body || ' changed'")
        self.ids()
        assert all("changed" in r.text for r in self.ev.records("t", limit=10_000))
        self.app.execute("delete from t")
        assert self.ids() == []

    def troubles(self) -> list[str]:
        return list(self.ev.attachments.troubles())


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[Keys]:
    keys = Keys(tmp_path / "app.db")
    yield keys
    keys.ev.close()
    keys.app.close()


NUMBERS = [0.1 + 0.2, 0.3, 1 / 3, 5.0, 1e20, 2.5e-7, 12345678901234567890.0, math.pi, -0.5]


@pytest.mark.parametrize("declared", ["real", "int", "numeric", "datetime", ""])
def test_every_number_is_a_key_of_its_own(keys: Keys, declared: str) -> None:
    rng = Random(7)
    some = [rng.uniform(-1, 1) * 10 ** rng.randint(-20, 20) for _ in range(300)]
    keys.attach(declared, *NUMBERS[:4], *some[:150])
    keys.insert([*NUMBERS[4:], -0.0, math.inf, -math.inf, 9, *some[150:]])
    assert keys.troubles() == []
    found = keys.ids()
    assert {"0.3", "0.30000000000000004", "9e999", "-9e999"} <= set(found)
    assert {"0.0"} & {*found} or declared != "real"
    keys.followed()


def test_a_number_that_sqlite_cannot_write_exactly_is_named(keys: Keys) -> None:
    rng = Random(7)
    every = [struct.unpack("d", rng.randbytes(8))[0] for _ in range(3000)]
    keys.attach("real")
    keys.insert({number for number in every if not math.isnan(number)})
    rows = keys.app.execute("select count(*) from t").fetchone()[0]
    left_out = rows - len(keys.ids())
    assert left_out < rows / 100
    assert (left_out == 0) == (keys.troubles() == [])
    if left_out:
        assert keys.troubles()[0].startswith(f"{left_out} row")


def test_an_integer_beyond_64_bits_is_the_number_that_sqlite_keeps(keys: Keys) -> None:
    keys.attach("int")
    keys.app.execute("insert into t values (9223372036854775808, 'large')")
    keys.app.execute("insert into t values ('9223372036854775807', 'fits')")
    assert keys.ids() == ["9.2233720368547758e+18", "9223372036854775807"]


@pytest.mark.parametrize(
    ("declared", "odd", "others"),
    [
        ("text", "a\0b", ["a", "b"]),
        ("text", b"\x01\x02", ["0102", "x"]),
        ("int", b"\x12", ["12", "x"]),
        ("text", "", ["x"]),
        ("text", "\u2003 ", ["x"]),
        ("text", "é" * 1025, ["é" * 1024]),
    ],
)
def test_a_key_that_cannot_be_an_id_is_set_aside(
    keys: Keys, declared: str, odd: Any, others: list[str]
) -> None:
    keys.attach(declared, odd, others[0])
    keys.insert(others[1:])
    assert keys.ids() == others
    (trouble,) = keys.troubles()
    assert trouble.startswith("1 row of t cannot be indexed")
    (attached,) = keys.ev.attachments.attached()
    assert keys.ev.attachments.set_aside(attached.attachment)
    keys.app.execute("delete from t where id = ?", (odd,))
    assert keys.ids() == others
    assert keys.troubles() == []
    assert keys.ev.attachments.set_aside(attached.attachment) is None


def test_a_key_that_is_no_utf8_is_set_aside(keys: Keys) -> None:
    keys.attach("text", "a", "z")
    keys.app.execute("insert into t values (cast(x'62ff' as text), 'text')")
    keys.app.execute("insert into t values ('b\ufffd', 'text')")
    assert keys.ids() == ["a", "b\ufffd", "z"]
    (trouble,) = keys.troubles()
    assert trouble.startswith("1 row of t cannot be indexed")


def test_pages_go_on_behind_a_key_that_is_no_utf8(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evervec.tables.source._AT_ONCE", 1)
    monkeypatch.setattr("evervec.tables.tables._FILLED_AT_ONCE", 1)
    keys.attach("text", "a")
    keys.app.execute("insert into t values (cast(x'62ff' as text), 'text')")
    keys.insert(["c", "d"])
    keys.ev.attach("t", kind="t", text="body")
    assert keys.ids() == ["a", "c", "d"]
    assert len(keys.troubles()) == 1


def test_a_nul_in_one_of_several_columns_is_set_aside(keys: Keys) -> None:
    keys.app.execute("create table t (a text, b text, body text, primary key (a, b))")
    keys.ev.attach("t", kind="t", id=["a", "b"], text="body")
    rows = [("x", "y", "one"), ("x", "y\0", "two"), ('q"', "\\", "three"), ("", "", "four")]
    keys.app.executemany("insert into t values (?, ?, ?)", rows)
    assert sorted(keys.ids()) == sorted(['["x","y"]', r'["q\"","\\"]', '["",""]'])
    (trouble,) = keys.troubles()
    assert trouble.startswith("1 row of t cannot be indexed")


def test_of_rows_with_one_id_the_first_is_indexed_and_the_others_are_named(keys: Keys) -> None:
    keys.attach("", "1", 1, 2, "0a", b"\x0a")
    keys.ev.process_all()
    assert {r.id: r.text for r in keys.ev.records("t")} == {
        "1": "text 1", "2": "text 2", "0a": "text '0a'"
    }  # fmt: skip
    (trouble,) = keys.troubles()
    assert trouble.startswith("2 rows of t cannot be indexed")
    assert "another row has the same one" in trouble
