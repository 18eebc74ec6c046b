"""Export and import: records with their vectors, between any two stores."""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import evervec
from evervec import Evervec, InvalidArgument, InvalidRecord, Kind, Vectors
from evervec.embedders.hashing import HashingEmbedder
from support.engines import OWN_PAIRS
from support.world import KIND, START, World, work

LONG = " ".join(f"word{n} follows word{n - 1} in this text." for n in range(1, 40))

Make = Callable[[tuple[str, str]], World]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    numbers, made = itertools.count(), list[World]()

    def build(pair: tuple[str, str]) -> World:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        made.append(World(pair, folder))
        return made[-1]

    yield build
    for world in made:
        world.close()


def filled(ev: Evervec, count: int = 30) -> None:
    """Records with all that a record can have; two are not embedded."""
    list(
        ev.add_many(
            KIND,
            ({"id": n, "text": f"text {n}", "metadata": {"n": n}} for n in range(count)),
        )
    )
    ev.add(KIND, LONG, id="long", title="Title", weight=0.25, version=7, created_at=5.0625,
           updated_at=START - 0.123456)  # fmt: skip
    ev.add("tâsk", "ünï 🍵", id="a/b?c", metadata={"deep": {"x": [1, None, "é"]}})
    ev.register(Kind("typed", text="{name}: {size}"))
    ev.add("typed", {"name": "tea", "size": 3}, id="1")
    work(ev)
    ev.add(KIND, "fresh", id="fresh")
    ev.add(KIND, "text 3, changed", id="3")


def plain(ev: Evervec) -> list[Any]:
    return [replace(record, seq=0, embedded=True) for record in ev.records(limit=1000)]


@pytest.mark.parametrize("target", OWN_PAIRS, ids=lambda pair: pair[0])
@pytest.mark.parametrize("source", OWN_PAIRS, ids=lambda pair: pair[0])
def test_records_and_vectors_come_over_between_every_pair_of_stores(
    make: Make, tmp_path: Path, source: tuple[str, str], target: tuple[str, str]
) -> None:
    one, two = make(source), make(target)
    filled(one.ev)
    done = one.ev.export(tmp_path / "all.parquet")
    assert (done.records, done.with_vectors) == (34, 32)
    given = two.ev.import_(tmp_path / "all.parquet")
    assert (given.records, given.saved, given.skipped, given.with_vectors) == (34, 34, 0, 32)
    work(two.ev)
    assert sorted(two.embedder.texts) == ["fresh", "text 3, changed"]
    assert plain(two.ev) == plain(one.ev)
    assert two.ev.verify().complete
    for kind, ids in ((KIND, ["0", "long"]), ("tâsk", ["a/b?c"]), ("typed", ["1"])):
        was, now = one.ev.vectors(kind, ids), two.ev.vectors(kind, ids)
        assert list(was) == list(now) == ids
        for id in ids:
            for old, new in zip(was[id], now[id], strict=True):
                assert np.array_equal(old.vector, new.vector)
    again = two.ev.import_(tmp_path / "all.parquet")
    assert (again.saved, again.unchanged, again.skipped) == (0, 34, 0)
    assert not two.ev.add(KIND, "older", id="long", version=7).accepted, "versions come over"


@pytest.mark.every_index
def test_vectors_come_from_and_go_to_every_index(world: World, make: Make, tmp_path: Path) -> None:
    filled(world.ev)
    world.ev.export(tmp_path / "all.parquet")
    other = make(("memory", "sqlite"))
    other.ev.import_(tmp_path / "all.parquet")
    work(other.ev)
    assert len(other.embedder.texts) == 2
    other.ev.export(tmp_path / "back.parquet")
    world.ev.delete_where({"n": {"gte": 0}})
    work(world.ev)
    asked = len(world.embedder.texts)
    assert world.ev.import_(tmp_path / "back.parquet", overwrite=True).saved > 25
    work(world.ev)
    assert len(world.embedder.texts) == asked
    assert world.ev.verify().complete


def test_only_vectors_of_the_same_model_and_text_are_taken(make: Make, tmp_path: Path) -> None:
    one, two = make(OWN_PAIRS[0]), make(OWN_PAIRS[0])
    filled(one.ev)
    one.ev.export(tmp_path / "a.parquet")
    ev = two.open(embedder=HashingEmbedder(32))
    assert ev.import_(tmp_path / "a.parquet").with_vectors == 0
    three = make(OWN_PAIRS[0])
    ev = three.open(chunk_tokens=60)  # other chunks: the long text is embedded
    assert ev.import_(tmp_path / "a.parquet").with_vectors == 32
    work(ev)
    assert set(three.embedder.texts) > {"fresh", "text 3, changed"}
    assert not any(text.startswith("text 5") for text in three.embedder.texts)
    assert ev.verify().complete
    four = make(OWN_PAIRS[0])
    assert four.without_embedder().import_(tmp_path / "a.parquet").with_vectors == 0
    work(four.ev)
    assert four.ev.verify().complete


def test_a_kind_alone_and_records_without_vectors(make: Make, tmp_path: Path) -> None:
    world = make(OWN_PAIRS[0])
    filled(world.ev)
    assert world.ev.export(tmp_path / "a.parquet", "typed").records == 1
    assert world.ev.export(tmp_path / "a.parquet", vectors=False).with_vectors == 0
    assert world.ev.of("other").export(tmp_path / "b.parquet").records == 0
    assert world.ev.import_(tmp_path / "b.parquet").records == 0


def test_what_is_newer_in_the_store_stays(world: World, tmp_path: Path) -> None:
    ev = world.ev
    for id in ("changed", "deleted", "same", "gone", "versioned"):
        ev.add(KIND, f"old {id}", id=id, version=3 if id == "versioned" else None)
    work(ev)
    ev.export(tmp_path / "a.parquet")
    world.clock.move(10)
    ev.add(KIND, "new", id="changed")
    ev.add(KIND, "version 4", id="versioned", version=4, updated_at=START - 1000)
    ev.delete(KIND, "deleted")
    done = ev.import_(tmp_path / "a.parquet")
    assert (done.saved, done.unchanged, done.skipped) == (0, 2, 3)
    texts = {record.id: record.text for record in ev.records()}
    assert texts == {
        "changed": "new", "gone": "old gone", "same": "old same", "versioned": "version 4"
    }  # fmt: skip
    done = ev.import_(tmp_path / "a.parquet", overwrite=True)
    assert (done.saved, done.unchanged, done.skipped) == (3, 2, 0)
    work(ev)
    assert {record.id: record.text for record in ev.records()} == {
        id: f"old {id}" for id in ("changed", "deleted", "same", "gone", "versioned")
    }
    assert not ev.add(KIND, "late", id="versioned", version=4).accepted, "the higher version stays"
    assert ev.verify().complete


def test_a_record_that_changes_during_the_export_has_its_own_vectors_or_none(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ev = world.ev
    for id in range(4):
        ev.add(KIND, f"first {id}", id=id)
    work(ev)
    real = ev.index.vectors

    def later(version: int, records: Any) -> Any:
        """Between the read of the records and of their vectors."""
        ev.add(KIND, "second 1", id="1")
        ev.delete(KIND, "2")
        work(ev)
        ev.add(KIND, "second 3", id="3")
        return real(version, records)

    monkeypatch.setattr(ev.index, "vectors", later)
    ev.export(tmp_path / "a.parquet")
    rows = {row["id"]: row for row in pq.read_table(tmp_path / "a.parquet").to_pylist()}
    assert {id: row["text"] for id, row in rows.items()} == {
        str(id): f"first {id}" for id in range(4)
    }
    assert rows["1"]["vectors"] is rows["2"]["vectors"] is None
    for kept in ("0", "3"):
        (vector,) = rows[kept]["vectors"]
        assert np.allclose(vector, HashingEmbedder(64).embed([f"first {kept}"])[0], atol=1e-6)


def test_an_export_that_fails_leaves_the_old_file_alone(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(world.ev)
    path = tmp_path / "a.parquet"
    world.ev.export(path)
    whole = path.read_bytes()

    def fail(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.ev.export(path, progress=fail)
    assert path.read_bytes() == whole
    assert [file.name for file in tmp_path.glob("*parquet*")] == ["a.parquet"]


_EXPORT = """
import os, signal, evervec
with evervec.open({store!r}, embedder="hashing") as ev:
    ev.{call}({path!r}, progress=lambda _: os.kill(os.getpid(), signal.SIGKILL))
"""


def test_a_killed_export_leaves_no_file_and_a_killed_import_can_be_repeated(tmp_path: Path) -> None:
    paths = {name: str(tmp_path / name) for name in ("a.db", "b.db", "a.parquet", "c.parquet")}
    with evervec.open(paths["a.db"], embedder="hashing") as ev:
        rows = ({"id": n, "text": f"text {n}"} for n in range(1200))
        assert len(list(ev.add_many(KIND, rows))) == 1200
        ev.process_all()
        ev.export(paths["a.parquet"])
    for call, store, path in (("export", "a.db", "c.parquet"), ("import_", "b.db", "a.parquet")):
        program = _EXPORT.format(store=paths[store], call=call, path=paths[path])
        ended = subprocess.run([sys.executable, "-c", program], env=os.environ, check=False)
        assert ended.returncode == -signal.SIGKILL
    assert not Path(paths["c.parquet"]).exists()
    with evervec.open(paths["b.db"], embedder=HashingEmbedder(256)) as ev:
        begun = ev.count()
        assert 0 < begun < 1200
        done = ev.import_(paths["a.parquet"])
        assert (done.saved, done.unchanged) == (1200 - begun, begun)
        ev.process_all()
        assert all(
            ev.queue.history(KIND, str(n))[0].chunks_embedded == 0 for n in range(0, 1200, 50)
        )
        assert ev.verify().complete


def test_files_that_are_not_exports_are_refused(world: World, tmp_path: Path) -> None:
    ev, path = world.ev, tmp_path / "a.parquet"
    path.write_bytes(b"not Parquet at all")
    with pytest.raises(InvalidArgument, match="cannot be read as Parquet"):
        ev.import_(path)
    pq.write_table(pa.table({"text": ["a"]}), path)
    with pytest.raises(InvalidArgument, match="is not a file that evervec exported"):
        ev.import_(path)
    ev.add(KIND, "alpha", id="1", vectors=Vectors("hashing-64", np.ones(64)))
    work(ev)
    ev.export(path)
    good = pq.read_table(path)

    def changed(**columns: Any) -> None:
        table = good
        for name, value in columns.items():
            place = table.schema.get_field_index(name)
            field = table.schema.field(place)
            table = table.set_column(place, field, pa.array([value], field.type))
        pq.write_table(table, path)

    ev.delete(KIND, "1")
    (chunk,) = good["chunks"][0].as_py()
    for columns, message in (
        ({"vectors": [[float("nan")] * 64]}, "position 0: vectors: .* not of length one"),
        ({"vectors": [[0.0] * 64]}, "not of length one"),
        ({"vectors": [[1.0] * 64]}, "not of length one"),
        ({"chunks": [None]}, "do not fit the chunks"),
        ({"chunks": [chunk | {"hash": b"short"}]}, "do not fit the chunks"),
        ({"kind": None}, "position 0: kind: must be text"),
        ({"id": None}, "position 0: id: is missing"),
        ({"text": ""}, "text: is empty"),
        ({"metadata": "{"}, "metadata: is not JSON"),
        ({"data": "{"}, "data: is not JSON"),
        ({"id": ""}, "id: is empty"),
        ({"weight": 2.0}, "weight"),
    ):
        changed(**columns)
        with pytest.raises(InvalidRecord, match=message):
            ev.import_(path, overwrite=True)
    changed(vectors=[[1.0, 2.0]])
    with pytest.raises(InvalidArgument, match="more or fewer vectors than chunks"):
        ev.import_(path, overwrite=True)
    pq.write_table(good.replace_schema_metadata({b"evervec": b"2"}), path)
    with pytest.raises(InvalidArgument, match="has format 2, and this version"):
        ev.import_(path)
    assert ev.count() == 0


def test_a_file_that_was_damaged_after_the_export_is_refused(memory: World, tmp_path: Path) -> None:
    """Wherever the damage is: all of the file's data has checksums."""
    filled(memory.ev)
    path = tmp_path / "a.parquet"
    memory.ev.export(path)
    whole = path.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    memory.ev.delete_where({"n": {"gte": 0}})
    for place in range(footer // 16, footer, footer // 8):
        path.write_bytes(
            whole[:place] + bytes(b ^ 0xFF for b in whole[place:][:64]) + whole[place + 64 :]
        )
        with pytest.raises(InvalidArgument, match="cannot be read as Parquet"):
            memory.ev.import_(path)
    with pytest.raises(FileNotFoundError):
        memory.ev.import_(tmp_path / "none.parquet")
    assert memory.ev.count(filter={"n": {"gte": 0}}) == 0


def test_an_unknown_kind_is_not_exported(world: World, tmp_path: Path) -> None:
    world.ev.add("known", "text", id=1)
    with pytest.raises(InvalidArgument, match="no kind 'typo': this tenant has known"):
        world.ev.export(tmp_path / "typo.parquet", kind="typo")
    assert not any(tmp_path.glob("*.parquet"))


def test_what_waits_in_a_box_is_newer_than_a_file(world: World, tmp_path: Path) -> None:
    ev, path = world.ev, tmp_path / "notes.parquet"
    ev.add(KIND, "first", id="1")
    work(ev)
    world.clock.move(10)
    ev.add(KIND, "second", id="1")
    ev.export(path)
    ev.delete(KIND, "1")
    ev.add(KIND, "first", id="1", updated_at=ev.store.now() - 10)
    world.clock.move(10)
    ev.add(KIND, "third", id="1", boxed=True)
    assert ev.import_(path).saved == 0
    work(ev)
    record = ev.get(KIND, "1")
    assert record is not None
    assert record.text == "third"
