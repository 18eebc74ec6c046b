"""A store remembers which index holds its vectors, and refuses one that does not."""

import shutil
from pathlib import Path

import pytest

import evervec
from evervec import Evervec, IndexMismatch
from evervec.embedders.hashing import HashingEmbedder
from evervec.indexes.location import OWN
from evervec.stores.notes import INDEX, Location

TEXTS = {str(n): f"note {n} of the harbour" for n in range(5)}


def open_at(folder: Path, index: str | None = None, *, reindex: bool = False) -> Evervec:
    return evervec.open(folder / "notes.db", index=index, embedder="hashing", reindex=reindex)


def fill(ev: Evervec) -> None:
    list(ev.add_many("note", ({"id": id, "text": text} for id, text in TEXTS.items())))
    ev.process_all()


def found(ev: Evervec) -> list[str]:
    return [hit.id for hit in ev.search(TEXTS["3"], 1, mode="semantic")]


@pytest.fixture
def vectors(tmp_path: Path) -> str:
    """The URL of an index with the vectors of the store in `tmp_path`."""
    url = f"lancedb://{tmp_path / 'vectors'}"
    with open_at(tmp_path, url) as ev:
        fill(ev)
    return url


def test_a_store_is_opened_with_the_index_that_holds_its_vectors(
    tmp_path: Path, vectors: str
) -> None:
    with open_at(tmp_path) as ev:
        assert ev.index.url == vectors
        assert found(ev) == ["3"]


@pytest.mark.parametrize("other", ["lancedb://{}/empty", "own", "qdrant://:memory:"])
def test_an_index_without_its_vectors_is_refused(tmp_path: Path, vectors: str, other: str) -> None:
    with pytest.raises(IndexMismatch, match=r"does not hold them.*evervec reindex") as raised:
        open_at(tmp_path, other.format(tmp_path))
    assert vectors in str(raised.value)
    with open_at(tmp_path, vectors) as ev:
        assert found(ev) == ["3"]


def test_the_environment_is_refused_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_at(tmp_path) as ev:
        fill(ev)
    monkeypatch.setenv("EVERVEC_INDEX", f"lancedb://{tmp_path / 'empty'}")
    with pytest.raises(IndexMismatch, match="its own database"):
        open_at(tmp_path)


def test_all_vectors_are_made_again_in_another_index(tmp_path: Path, vectors: str) -> None:
    for to in ("own", f"lancedb://{tmp_path / 'others'}", vectors):
        with open_at(tmp_path, to, reindex=True) as ev:
            assert ev.queue.stats().pending == len(TEXTS)
            assert not any(record.embedded for record in ev.records())
            ev.process_all()
            assert found(ev) == ["3"]
            assert ev.verify().complete
        with open_at(tmp_path, to, reindex=True) as ev:
            assert ev.queue.stats().pending == 0, "it is there already"


def test_the_index_that_was_left_is_not_taken_for_the_new_one(tmp_path: Path, vectors: str) -> None:
    """It still has all points, of the same texts."""
    with open_at(tmp_path, "own", reindex=True) as ev:
        with pytest.raises(IndexMismatch):
            open_at(tmp_path, vectors)
        ev.process_all()
    with pytest.raises(IndexMismatch):
        open_at(tmp_path, vectors)


def test_a_folder_that_moved_is_known_by_what_it_holds(
    tmp_path: Path, vectors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "vectors")
    monkeypatch.chdir(tmp_path)
    for same in ("lancedb://vectors", f"lancedb://{tmp_path / 'link'}"):
        with open_at(tmp_path, same) as ev:
            assert ev.index.url == vectors
    shutil.move(tmp_path / "vectors", tmp_path / "elsewhere")
    with pytest.raises(IndexMismatch):
        open_at(tmp_path)
    with open_at(tmp_path, "lancedb://elsewhere") as ev:
        assert found(ev) == ["3"]
        assert ev.queue.stats().pending == 0
    with open_at(tmp_path) as ev:
        assert ev.index.url == f"lancedb://{tmp_path / 'elsewhere'}"


def test_a_store_without_vectors_takes_the_index_that_it_is_given(
    tmp_path: Path, vectors: str
) -> None:
    with evervec.open(tmp_path / "new.db", embedder="hashing") as ev:
        ev.add("note", "alpha", id="1")
        assert INDEX.get(ev.store.shared) == Location(OWN)
    with evervec.open(tmp_path / "new.db", index=vectors, embedder="hashing") as ev:
        ev.process_all()
        assert [hit.id for hit in ev.search("alpha", mode="semantic")] == ["1"]


def test_a_store_of_before_adopts_what_it_is_opened_with(tmp_path: Path, vectors: str) -> None:
    with open_at(tmp_path) as ev:
        note = ev.store.shared.note("index")
        assert note is not None
        ev.store.shared.put_note("index", None, note.revision)
    with open_at(tmp_path, vectors) as ev:
        assert INDEX.get(ev.store.shared) == Location(vectors)


def test_workers_of_the_last_index_stop(
    tmp_path: Path, vectors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_at(tmp_path) as old, open_at(tmp_path, "own", reindex=True) as new:
        with monkeypatch.context() as patch:
            patch.setattr(HashingEmbedder, "embed", _break_off)  # they embed nothing before
            with pytest.raises(IndexMismatch, match="open the store again"):
                old.process_all()
        new.process_all()
        assert new.verify().complete


def test_a_rebuild_that_was_broken_off_is_finished_by_the_next_opening(
    tmp_path: Path, vectors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("evervec.stores.sqlite.changes.Changes.reopen", _break_off)
        with pytest.raises(KeyboardInterrupt):
            open_at(tmp_path, "own", reindex=True)
    with pytest.raises(IndexMismatch):
        open_at(tmp_path, vectors)
    with open_at(tmp_path) as ev:
        ev.process_all()
        assert found(ev) == ["3"]
        assert ev.verify().complete


def _break_off(*_: object, **__: object) -> int:
    raise KeyboardInterrupt


def test_what_went_to_the_last_index_is_written_to_the_present_one(
    tmp_path: Path, vectors: str
) -> None:
    with open_at(tmp_path) as old:
        old.add("note", "a lighthouse", id="new")
        old.add("note", "another harbour", id="3")
        batch, _ = old.pipeline.prepare(old.pipeline.claim(10))
        old.pipeline.embed(batch)
        with open_at(tmp_path, "own", reindex=True) as new:
            with pytest.raises(IndexMismatch, match="open the store again"):
                old.pipeline.write(batch)
            job = new.queue.status("note", "new")
            assert job is not None
            assert (job.status, job.attempts) == ("pending", 0)
            new.process_all()
            assert [hit.id for hit in new.search("a lighthouse", 1, mode="semantic")] == ["new"]
            assert new.verify().complete


def test_searches_of_a_process_with_the_last_index_use_text(tmp_path: Path, vectors: str) -> None:
    with open_at(tmp_path) as old, open_at(tmp_path, "own", reindex=True) as new:
        new.add("note", "a lighthouse", id="new")
        new.process_all()
        for ev in (old, old.of(old.tenant)):
            hits = ev.search("a lighthouse", 1)
            assert (hits.via, [hit.id for hit in hits]) == ("text", ["new"])
            with pytest.raises(IndexMismatch):
                ev.search(vector=[1.0, *[0.0] * 255])


def test_an_index_that_is_used_again_has_nothing_of_what_was_deleted_meanwhile(
    tmp_path: Path, vectors: str
) -> None:
    with open_at(tmp_path, "own", reindex=True) as ev:
        ev.process_all()
        ev.delete("note", "1")
        ev.process_all()
    with open_at(tmp_path, vectors, reindex=True) as ev:
        ev.process_all()
        (serving,) = ev.store.versions.collections()
        assert len(ev.index.held(serving.version, None, 0, None)) == len(TEXTS) - 1
        assert ev.verify().complete


def test_a_process_with_the_last_index_repairs_and_drops_nothing(
    tmp_path: Path, vectors: str
) -> None:
    with open_at(tmp_path) as old:
        old.migrate(HashingEmbedder(32)).cancel()
        with open_at(tmp_path, "own", reindex=True) as new:
            new.process_all()
            for do in (lambda: old.verify(repair=True), old._lifecycle.step, old.drop_retired):
                with pytest.raises(IndexMismatch, match="open the store again"):
                    do()
            assert new.queue.stats().pending == 0
            assert [version.state for version in new.versions()] == ["serving", "retired"]
