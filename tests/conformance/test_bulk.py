"""Bulk embedding: texts that wait go out, vectors come back, and only for unchanged records."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import evervec
from evervec import Embedder, Evervec, EvervecError, ImportedVectors, InvalidArgument, Kind
from evervec.embedders.hashing import HashingEmbedder
from support.command import runner
from support.engines import OWN_PAIRS
from support.world import KIND, World, work

LONG = " ".join(f"word{n} follows word{n - 1} in this text." for n in range(1, 40))
ELSEWHERE = HashingEmbedder(64)
"""the store's embedder, on another machine"""


def embed_file(
    source: Path,
    target: Path,
    embedder: Embedder,
    change: Callable[[list[dict[str, Any]]], None] = lambda rows: None,
) -> list[dict[str, Any]]:
    """Add vectors to an exported file, as an engine elsewhere would."""
    rows: list[dict[str, Any]] = pq.read_table(source).to_pylist()
    for row in rows:
        row["vectors"] = [list(map(float, vector)) for vector in embedder.embed(row.pop("texts"))]
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows), target)
    return rows


def through_file(
    world: World, tmp_path: Path, change: Callable[[list[dict[str, Any]]], None] = lambda rows: None
) -> ImportedVectors:
    """Export, embed, import."""
    world.ev.export_pending(tmp_path / "out.parquet")
    embed_file(tmp_path / "out.parquet", tmp_path / "in.parquet", ELSEWHERE, change)
    return world.ev.import_vectors(tmp_path / "in.parquet")


def fill(ev: Evervec, count: int = 20) -> None:
    list(ev.add_many(KIND, ({"id": n, "text": f"text {n}"} for n in range(count))))


@pytest.mark.every_index
def test_texts_that_wait_are_embedded_elsewhere(world: World, tmp_path: Path) -> None:
    fill(world.ev)
    world.ev.add(KIND, LONG, id="long", title="Title", metadata={"n": 1})
    exported = world.ev.export_pending(tmp_path / "out.parquet")
    assert exported.records == 21
    assert exported.chunks > 21, "the long text has several chunks"
    embed_file(tmp_path / "out.parquet", tmp_path / "in.parquet", ELSEWHERE)
    assert world.ev.import_vectors(tmp_path / "in.parquet") == ImportedVectors(21, 21, 0, 0)
    assert world.ev.verify().complete
    assert world.ev.search("text 7", k=1, mode="semantic")[0].id == "7"
    assert world.ev.queue.stats().pending == 0
    wanted = ELSEWHERE.embed(["text 7"])[0]
    assert world.ev.vectors(KIND, ["7"])["7"][0].vector == pytest.approx(
        wanted / np.linalg.norm(wanted), abs=1e-6
    )


def test_a_store_in_which_nothing_was_ever_added_has_no_texts(world: World, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    assert world.ev.export_pending(out).records == 0
    assert pq.read_table(out).num_rows == 0
    world.ev.add(KIND, "alpha", id="1")
    with pytest.raises(InvalidArgument, match="no model for the waiting records"):
        world.without_embedder().export_pending(out)


def test_a_record_that_changed_meanwhile_is_refused_and_stays_queued(
    world: World, tmp_path: Path
) -> None:
    fill(world.ev)
    world.ev.export_pending(tmp_path / "out.parquet")
    embed_file(tmp_path / "out.parquet", tmp_path / "in.parquet", ELSEWHERE)
    world.ev.add(KIND, "text 3, changed", id="3")
    world.ev.add(KIND, "text 4", id="4", metadata={"new": True})
    world.ev.delete(KIND, "5")
    world.ev.add(KIND, "new", id="new")
    done = world.ev.import_vectors(tmp_path / "in.parquet")
    assert done == ImportedVectors(20, 17, 3, 0)
    assert world.ev.queue.stats().pending == 4
    work(world.ev)
    assert world.ev.verify().complete
    assert world.ev.search("text 3, changed", k=1, mode="semantic")[0].id == "3"


def test_a_record_that_a_worker_holds_or_did_is_refused(world: World, tmp_path: Path) -> None:
    fill(world.ev, 10)
    world.ev.export_pending(tmp_path / "out.parquet")
    embed_file(tmp_path / "out.parquet", tmp_path / "in.parquet", ELSEWHERE)
    held = world.ev.queue.claim(4)
    assert world.ev.import_vectors(tmp_path / "in.parquet") == ImportedVectors(10, 6, 4, 0)
    for job in held:
        world.ev.queue.release(job)
    assert world.ev.import_vectors(tmp_path / "in.parquet") == ImportedVectors(10, 4, 6, 0)
    assert world.ev.import_vectors(tmp_path / "in.parquet") == ImportedVectors(10, 0, 10, 0)
    assert world.ev.verify().complete


def test_a_change_between_lease_and_write_wins(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(world.ev, 3)
    real = world.ev.pipeline.write

    def write(batch: Any) -> Any:
        world.ev.add(KIND, "changed at the last moment", id="1")
        return real(batch)

    monkeypatch.setattr(world.ev.pipeline, "write", write)
    through_file(world, tmp_path)
    monkeypatch.undo()
    assert world.ev.queue.stats().pending == 1
    work(world.ev)
    assert world.ev.verify().complete
    assert world.ev.search("changed at the last moment", k=1, mode="semantic")[0].id == "1"


def test_leases_are_given_back_when_the_write_fails(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(world.ev, 3)

    def write(batch: Any) -> Any:
        raise evervec.IndexUnavailable("away")

    monkeypatch.setattr(world.ev.pipeline, "write", write)
    with pytest.raises(evervec.IndexUnavailable):
        through_file(world, tmp_path)
    monkeypatch.undo()
    assert world.ev.queue.stats().pending == 3
    assert world.ev.import_vectors(tmp_path / "in.parquet").written == 3


def test_rows_that_are_not_valid_are_counted_and_change_nothing(
    world: World, tmp_path: Path
) -> None:
    fill(world.ev, 6)

    def damage(rows: list[dict[str, Any]]) -> None:
        rows[0]["vectors"] = []
        rows[1]["vectors"] = None
        rows[2]["vectors"][0] = rows[2]["vectors"][0][:-1]
        rows[3]["vectors"][0] = [0.0] * len(rows[3]["vectors"][0])
        rows[4]["vectors"][0][0] = float("nan")

    assert through_file(world, tmp_path, damage) == ImportedVectors(6, 1, 0, 5)
    assert world.ev.queue.stats().pending == 5


def test_other_programs_may_write_other_types(memory: World, tmp_path: Path) -> None:
    def as_texts(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row |= {"job": str(row["job"]), "seq": float(row["seq"]), "kind": row["kind"].encode()}

    fill(memory.ev, 3)
    assert through_file(memory, tmp_path, as_texts) == ImportedVectors(3, 3, 0, 0)
    memory.ev.add(KIND, "text", id="new")
    with pytest.raises(InvalidArgument, match="cannot be read as Parquet"):
        through_file(memory, tmp_path, lambda rows: rows[0].update(job="first"))


def test_rows_of_other_records_than_their_job_are_refused(world: World, tmp_path: Path) -> None:
    fill(world.ev, 4)

    def swap(rows: list[dict[str, Any]]) -> None:
        rows[0]["job"], rows[1]["job"] = rows[1]["job"], rows[0]["job"]
        rows[2]["hashes"] = [b"0123456789abcdef"]

    assert through_file(world, tmp_path, swap) == ImportedVectors(4, 1, 3, 0)
    assert world.ev.queue.stats().pending == 3


def test_a_tenant_cannot_write_anothers_records(world: World, tmp_path: Path) -> None:
    fill(world.ev, 3)
    world.ev.export_pending(tmp_path / "out.parquet")
    embed_file(tmp_path / "out.parquet", tmp_path / "in.parquet", ELSEWHERE)
    other = world.ev.of("other")
    assert other.export_pending(tmp_path / "none.parquet").records == 0
    assert other.import_vectors(tmp_path / "in.parquet") == ImportedVectors(3, 0, 3, 0)
    assert world.ev.queue.stats().pending == 3


def test_a_paused_queue_takes_no_vectors(world: World, tmp_path: Path) -> None:
    fill(world.ev, 3)
    world.ev.queue.pause()
    assert through_file(world, tmp_path) == ImportedVectors(3, 0, 3, 0)
    world.ev.queue.resume()
    assert world.ev.import_vectors(tmp_path / "in.parquet").written == 3


def test_a_job_that_is_not_due_takes_no_vectors(world: World, tmp_path: Path) -> None:
    world.ev.add(KIND, "later", id="later", delay=100)
    assert through_file(world, tmp_path) == ImportedVectors(1, 0, 1, 0)
    world.clock.move(101)
    assert world.ev.import_vectors(tmp_path / "in.parquet").written == 1


def test_a_job_that_killed_a_worker_is_left_to_workers(world: World, tmp_path: Path) -> None:
    world.ev.add(KIND, "text", id="1")
    world.ev.queue.claim()
    world.clock.move(1000)
    world.ev.store.leases.recover()
    assert through_file(world, tmp_path) == ImportedVectors(1, 0, 1, 0)
    work(world.ev)
    assert world.ev.verify().complete


def test_the_commands_do_the_same(tmp_path: Path) -> None:
    run = runner(tmp_path)
    (tmp_path / "note.txt").write_text("a text")
    run("add", "note", "note.txt", "--no-embed")
    assert "1 records exported, 1 texts to embed" in run("export", "o.parquet", "--pending").stdout
    embed_file(tmp_path / "o.parquet", tmp_path / "i.parquet", HashingEmbedder())
    assert "1 embedded, 0 refused, 0 invalid" in run("import", "i.parquet", "--vectors").stdout


def test_vectors_of_another_model_are_refused_as_a_whole(world: World, tmp_path: Path) -> None:
    fill(world.ev, 3)

    def other(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row["model"] = "another"

    with pytest.raises(InvalidArgument, match=r"'another'.*not embedded with"):
        through_file(world, tmp_path, other)
    assert world.ev.queue.stats().pending == 3


def test_a_file_that_is_none_of_these_is_told(world: World, tmp_path: Path) -> None:
    (tmp_path / "not.parquet").write_bytes(b"rubbish")
    with pytest.raises(InvalidArgument, match="cannot be read as Parquet"):
        world.ev.import_vectors(tmp_path / "not.parquet")
    fill(world.ev, 1)
    world.ev.export_pending(tmp_path / "out.parquet")
    with pytest.raises(InvalidArgument, match="lacks the columns vectors"):
        world.ev.import_vectors(tmp_path / "out.parquet")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidArgument, match="has no files"):
        world.ev.import_vectors(tmp_path / "empty")
    for save in (world.ev.export_pending, world.ev.export):
        with pytest.raises(EvervecError, match=r"a\.parquet cannot be written: No such file"):
            save(tmp_path / "gone" / "a.parquet")


def test_a_folder_of_files_in_any_order_and_with_repeated_rows_is_taken(
    world: World, tmp_path: Path
) -> None:
    fill(world.ev, 30)
    world.ev.export_pending(tmp_path / "out.parquet")
    rows = embed_file(tmp_path / "out.parquet", tmp_path / "in.parquet", ELSEWHERE)
    parts = tmp_path / "parts" / "deep"
    parts.mkdir(parents=True)
    for n in range(4):
        part = rows[::-1][n * 8 : n * 8 + 10]
        pq.write_table(pa.Table.from_pylist(part), parts / f"part-{n}.parquet")
    done = world.ev.import_vectors(tmp_path / "parts")
    assert (done.records, done.written, done.invalid) == (36, 30, 0)
    assert world.ev.verify().complete


def test_only_changed_chunks_and_one_kind_are_exported(world: World, tmp_path: Path) -> None:
    world.ev.add(KIND, LONG, id="long")
    work(world.ev)
    world.ev.add(KIND, LONG + " One more sentence at its end.", id="long")
    world.ev.add("other", "another kind", id="1")
    world.ev.delete(KIND, "gone")
    done = world.ev.export_pending(tmp_path / "out.parquet", KIND)
    assert (done.records, done.chunks) == (1, 1)
    embed_file(tmp_path / "out.parquet", tmp_path / "in.parquet", ELSEWHERE)
    assert world.ev.import_vectors(tmp_path / "in.parquet").written == 1
    work(world.ev)
    assert world.ev.verify().complete


def test_boxed_and_loaded_records_appear_when_their_vectors_come(
    world: World, tmp_path: Path
) -> None:
    world.ev.add(KIND, "in a box", id="box", boxed=True)
    world.ev.register(Kind("row", load=lambda id: {"text": f"row {id}"} if id != "9" else None))
    world.ev.queue.enqueue("row", "1")
    world.ev.queue.enqueue("row", "9")
    assert world.ev.get(KIND, "box") is None
    done = through_file(world, tmp_path)
    assert done.written == 2
    assert world.ev.get(KIND, "box") is not None
    assert world.ev.get("row", "1") is not None
    work(world.ev)
    assert world.ev.verify().complete


@pytest.mark.parametrize("pair", OWN_PAIRS, ids=lambda pair: pair[0])
def test_imports_workers_and_edits_at_once_leave_the_index_right(
    tmp_path: Path, pair: tuple[str, str]
) -> None:
    world = World(pair, tmp_path)
    try:
        ev = world.ev
        many, errors = 300, list[BaseException]()
        fill(ev, many)
        ev.export_pending(tmp_path / "out.parquet")
        embed_file(tmp_path / "out.parquet", tmp_path / "in.parquet", ELSEWHERE)

        def guarded(do: Callable[[], object]) -> Callable[[], None]:
            def run() -> None:
                try:
                    do()
                except BaseException as error:
                    errors.append(error)

            return run

        def edit() -> None:
            for n in range(0, many, 7):
                ev.add(KIND, f"text {n}, changed", id=str(n))
                if n % 3 == 0:
                    ev.delete(KIND, str(n + 1))

        def bring() -> None:
            ev.import_vectors(tmp_path / "in.parquet")

        todo: list[Callable[[], object]] = [edit, bring, ev.process_all, bring]
        threads = [threading.Thread(target=guarded(do)) for do in todo]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not errors, errors
        work(ev)
        report = ev.verify()
        assert report.complete, report
        assert ev.search("text 14, changed", k=1, mode="semantic")[0].id == "14"
    finally:
        world.close()
