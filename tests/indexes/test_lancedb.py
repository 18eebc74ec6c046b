"""What only a LanceDB index has: the writer lock, tidying, names, an ANN index."""

import threading
from dataclasses import replace
from pathlib import Path

import lancedb
import numpy as np
import pytest

from evervec.indexes.base import Query
from evervec.indexes.lancedb import table_name, writer
from evervec.indexes.lancedb.filters import clause
from evervec.model.filters import parse_filter
from evervec.model.records import ModelSpec
from evervec.stores.values import Collection
from indexes.conftest import Make
from indexes.test_races import RECORD, SEQ, version_of
from support.vectors import change, vector
from support.world import DAY, KIND, World, assert_in_step, work


def tables(world: World) -> list[str]:
    return list(lancedb.connect(world.folder / "vectors").list_tables().tables)


def files(folder: Path) -> int:
    return sum(path.is_file() for path in folder.rglob("*"))


def test_a_table_is_named_after_kind_and_version(make: Make) -> None:
    world = make("lancedb")
    assert tables(world) == ["note_vectors_hashing_64"]


@pytest.mark.parametrize(
    ("kind", "version", "name"),
    [
        ("entry", "minilm-v2", "entry_vectors_minilm_v2"),
        ("Entry", "minilm-v2", "entry_vectors_minilm_v2_"),
        ("entry", "minilm_v2", "entry_vectors_minilm_v2_"),
        ("../entry", "a/b", "___entry_vectors_a_b_"),
        ("a_vectors_b", "c", "a_vectors_b_vectors_c_"),
        ("é" * 300, "c", "_" * 80 + "_vectors_c_"),
    ],
)
def test_names_that_must_be_bent_stay_apart(kind: str, version: str, name: str) -> None:
    collection = Collection(1, kind, "serving", "", False, 0, ModelSpec(version, "", "", 4))
    made = table_name(collection)
    assert made.startswith(name)
    assert (made == name) is not name.endswith("_")


def test_writing_waits_for_the_lock_and_a_dead_holder_is_replaced(make: Make) -> None:
    world = make("lancedb", writer_lock_seconds=60)
    store, index = world.ev.store, world.ev.index
    assert store.shared.lock(f"writer {index.url}", "somebody else", 60)
    written = threading.Event()

    def write() -> None:
        index.apply([change(version_of(world), RECORD, SEQ, ["a"])])
        written.set()

    thread = threading.Thread(target=write)
    thread.start()
    assert not written.wait(0.2)
    assert index.search(Query(version_of(world), "default", vector("a"), 5)) is not None
    world.clock.move(61)
    assert written.wait(20)
    thread.join()
    assert store.shared.lock(f"writer {index.url}", "somebody else", 60), "the lock is given back"


def test_many_small_writes_leave_few_files_and_a_reader_that_reads_on(make: Make) -> None:
    world = make("lancedb")
    version, reader = version_of(world), world.open().index
    for n in range(50):
        world.ev.index.apply([change(version, RECORD + n % 3, SEQ + n, [f"word {n}"])])
        assert len(reader.search(Query(version, "default", vector(f"word {n}"), 5))) == min(
            n + 1, 3
        )
    assert files(world.folder / "vectors") < 200


def test_a_tag_that_a_full_disk_left_empty_is_made_again(make: Make) -> None:
    world = make("lancedb")
    version, index = version_of(world), world.ev.index
    writer = index._tables[version].writer  # type: ignore[attr-defined]
    index.apply([change(version, RECORD, SEQ, ["first"])])
    writer.tidy()
    (tag,) = (world.folder / "vectors").rglob("_refs/tags/*.json")
    tag.write_bytes(b"")
    index.apply([change(version, RECORD, SEQ + 1, ["second"])])
    writer.tidy()
    assert tag.stat().st_size
    assert len(index.search(Query(version, "default", vector("second"), 5))) == 1


def test_one_scalar_index_serves_filters_by_any_field(make: Make) -> None:
    world = make("lancedb")
    version, index = version_of(world), world.ev.index
    plain = (change(version, RECORD + n, SEQ, ["word"]) for n in range(2100))
    index.apply([replace(c, metadata={"agent": f"a{c.record % 100}"}) for c in plain])
    index._tables[version].writer.tidy()  # type: ignore[attr-defined]
    table = lancedb.connect(world.folder / "vectors").open_table("note_vectors_hashing_64")
    (where,) = clause(parse_filter({"agent": "a7"}))
    asked = table.search(vector("word")).where(where, prefilter=True)
    assert "ScalarIndexQuery" in asked.explain_plan()
    assert asked.limit(100).to_arrow().num_rows == 21


def indexed(world: World) -> set[str]:
    table = lancedb.connect(world.folder / "vectors").open_table("note_vectors_hashing_64")
    return {index.columns[0] for index in table.list_indices()}


def parts(world: World) -> int:
    table = lancedb.connect(world.folder / "vectors").open_table("note_vectors_hashing_64")
    return int(table.index_stats("vector_idx").num_indices)


def test_large_tables_are_indexed_by_maintenance_and_not_within_a_batch(make: Make) -> None:
    world = make("lancedb", lancedb_ann_rows=2000)
    version, index = version_of(world), world.ev.index
    columns = {"id", "record", "tenant", "terms", "removed_at"}
    many = [change(version, RECORD + n, SEQ, [f"word{n} and {n % 7}"]) for n in range(2100)]
    index.apply(many)
    index._tables[version].writer.tidy()  # type: ignore[attr-defined]
    assert indexed(world) == columns
    index.maintain(0)
    assert indexed(world) == columns | {"vector"}
    for n in (5, 900, 2000):
        found = index.search(Query(version, "default", many[n].points[0].vector, 5))
        assert np.isclose(next(iter(found)).similarity, 1.0, atol=1e-3)
        assert len(found) == 5
    index.apply([change(version, RECORD + 5, SEQ + 1, ["another"])])
    assert (
        next(iter(index.search(Query(version, "default", vector("another"), 1)))).record
        == RECORD + 5
    )


def test_new_rows_join_the_ann_index_in_parts_that_maintenance_merges(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_MOST_PARTS", 3)
    world = make("lancedb", lancedb_ann_rows=300)
    version, index = version_of(world), world.ev.index
    index.apply([change(version, RECORD + n, SEQ, [f"word{n}"]) for n in range(300)])
    index.maintain(0)
    table = index._tables[version]  # type: ignore[attr-defined]
    for turn in range(1, 5):
        first = RECORD + 300 * turn
        index.apply([change(version, first + n, SEQ, [f"new{n}"]) for n in range(300)])
        index.apply([change(version, first - n, SEQ + turn, [f"other{n}"]) for n in range(1, 50)])
        index.apply([change(version, first + 200 + n, SEQ + turn) for n in range(10)])
        expected = held(world)
        table.writer.tidy()
        assert held(world) == expected
        found = index.search(Query(version, "default", vector("other7"), 1))
        assert np.isclose(found.scores[0], 1.0, atol=1e-3)
    assert parts(world) > 3
    expected = held(world)
    index.maintain(0)
    assert parts(world) == 1
    assert held(world) == expected


def held(world: World) -> dict[int, int]:
    return {h.record: h.seq for h in world.ev.index.held(version_of(world), None, 0, None)}


def test_tombstones_go_with_the_history_and_not_before(make: Make) -> None:
    world = make("lancedb")
    version, index = version_of(world), world.ev.index
    index.apply([change(version, RECORD, SEQ + 5)])
    world.ev._housekeeping.sweep()
    index.apply([change(version, RECORD, SEQ, ["late"])])
    assert index.held(version, None, 0, None) == []
    world.clock.move(8 * DAY)
    assert world.ev._housekeeping.sweep()
    table = lancedb.connect(world.folder / "vectors").open_table("note_vectors_hashing_64")
    assert table.count_rows() == 0


def test_what_others_do_to_a_table_does_not_count_and_is_undone_by_the_next_write(
    make: Make,
) -> None:
    world = make("lancedb")
    world.ev.add(KIND, "alpha", id="x")
    work(world.ev)
    table = lancedb.connect(world.folder / "vectors").open_table("note_vectors_hashing_64")
    table.delete("true")
    assert [hit.id for hit in world.ev.search("alpha", mode="semantic")] == ["x"]
    assert_in_step(world.ev, {"x": "alpha"})
    world.ev.add(KIND, "beta", id="y")
    work(world.ev)
    table.checkout_latest()
    assert table.count_rows("removed_at is null") == 2
    assert_in_step(world.ev, {"x": "alpha", "y": "beta"})


def test_points_carry_their_content_and_time(make: Make) -> None:
    world = make("lancedb")
    world.ev.add(KIND, "alpha", id="x", metadata={"a": 1}, weight=0.5)
    work(world.ev)
    table = lancedb.connect(world.folder / "vectors").open_table("note_vectors_hashing_64")
    (row,) = table.search().where("removed_at is null").to_list()
    assert (row["tenant"], row["kind"], row["record_id"]) == ("default", KIND, "x")
    assert (row["text"], row["metadata"], row["weight"]) == ("alpha", '{"a": 1}', 0.5)
    assert row["updated_at"].timestamp() == world.clock.now
