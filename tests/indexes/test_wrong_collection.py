"""A collection that cannot hold a version's vectors: refused before a migration begins, and if it
comes to be later, the trouble of that version alone."""

import shutil
from typing import Any

import lancedb
import pytest

from evervec import InvalidArgument, Status
from evervec.embedders.hashing import HashingEmbedder
from evervec.errors import IndexUnavailable, WrongCollection
from evervec.indexes.base import Query
from evervec.indexes.lancedb.rows import schema
from evervec.indexes.qdrant.engine import Shape
from indexes.conftest import Make
from indexes.test_races import RECORD, SEQ
from support import qdrant_server
from support.processes import until
from support.vectors import change, vector
from support.world import KIND, World, assert_in_step, hashes_of, held, job_of, work

ENGINES = {"lancedb": "sqlite", "qdrant": "sqlite", "qdrant-edge": "sqlite",
           "qdrant-memory": "memory"}  # fmt: skip
QDRANTS = [name for name in ENGINES if name != "lancedb"]


class Other(HashingEmbedder):
    """Another model of the same size."""

    name = "other"

    def __init__(self, dimensions: int = 64) -> None:
        super().__init__(dimensions)
        self.model = "other-1"


def make_wrong(world: World, version: str = "hashing-32") -> None:
    """Somebody else makes the collection that a version would have, for vectors of 7 numbers."""
    engine: Any = getattr(world.ev.index, "_engine", None)
    if engine is None:
        name = f"note_vectors_{version.replace('-', '_')}"
        lancedb.connect(world.folder / "vectors").create_table(name, schema=schema(7))
    else:
        engine.ensure(f"evervec_{version}", Shape(7, "", 0, 0))


def drop_wrong(world: World, version: str = "hashing-32") -> None:
    engine: Any = getattr(world.ev.index, "_engine", None)
    if engine is None:
        shutil.rmtree(world.folder / "vectors" / f"note_vectors_{version.replace('-', '_')}.lance")
    else:
        engine.drop(f"evervec_{version}")


@pytest.mark.parametrize("index", QDRANTS)
def test_one_collection_for_all_versions_takes_vectors_of_one_size(make: Make, index: str) -> None:
    world = make(index, ENGINES[index], qdrant_collection="notes")
    ev, before = world.ev, world.ev.store.versions.collections()
    with pytest.raises(InvalidArgument, match=r"qdrant_collection is 'notes'.*\{version\}"):
        ev.migrate("hashing:32")
    assert ev.store.versions.collections() == before
    assert ev.migration() is None
    ev.add(KIND, "alpha", id="1")
    ev.process_all()
    assert_in_step(ev, {"1": "alpha"})
    ev.migrate(Other(), switch=True)
    with ev.worker():
        until(lambda: ev.store.versions.collections()[-1].state == "serving", "the switch")
    assert [h.id for h in ev.search("alpha", mode="semantic")] == ["1"]


@pytest.mark.parametrize("index", ENGINES)
def test_a_migration_to_a_collection_of_another_size_is_refused(make: Make, index: str) -> None:
    world = make(index, ENGINES[index])
    make_wrong(world)
    before = world.ev.store.versions.collections()
    with pytest.raises(InvalidArgument, match="drop that"):
        world.ev.migrate("hashing:32")
    assert world.ev.store.versions.collections() == before
    drop_wrong(world)
    world.ev.migrate("hashing:32")


def test_an_index_that_is_away_does_not_hinder_a_migration(make: Make) -> None:
    world = make("qdrant")
    qdrant_server.server_of(world.folder).stop()
    world.ev.migrate("hashing:32")
    assert [c.state for c in world.ev.store.versions.collections()] == ["serving", "building"]


@pytest.mark.parametrize("index", ENGINES)
def test_the_wrong_collection_of_one_version_holds_up_no_other(
    make: Make, monkeypatch: pytest.MonkeyPatch, index: str
) -> None:
    monkeypatch.setattr("evervec.worker.served._ASK_AGAIN", 0.05)
    world = make(index, ENGINES[index], max_attempts=1, batch_size=2)
    ev = world.ev
    texts = {str(n): f"word{n}" for n in range(5)}
    for id, text in texts.items():
        ev.add(KIND, text, id=id)
    work(ev)
    ev.migrate("hashing:32")
    make_wrong(world)

    def of(version: str) -> list[tuple[Status, int]]:
        return [(j.status, j.attempts) for j in ev.queue.jobs() if j.embedding_version == version]

    with ev.worker():
        until(lambda: len(of("hashing-32")) == 5, "the migration's jobs")
        until(lambda: any("dimensions" in (j.error or "") for j in ev.queue.jobs()), "the trouble")
        for round in range(3):
            texts["0"] = f"another {round}"
            ev.add(KIND, texts["0"], id="0")
            until(lambda: job_of(ev, "0").status is Status.DONE, "a live change")
        assert ev.search("another", mode="semantic")[0].id == "0"
        until(lambda: set(of("hashing-32")) == {(Status.PENDING, 0)}, "its jobs to wait")
        drop_wrong(world)
        until(lambda: {s for s, _ in of("hashing-32")} == {Status.DONE}, "them to be done")
    assert {id: set(hashes) for (*_, id), hashes in held(ev).items()} == {
        id: set(hashes_of(text)) for id, text in texts.items()
    }
    assert ev.verify().clean


@pytest.mark.parametrize("index", ENGINES)
def test_work_for_a_wrong_collection_is_given_back_and_not_claimed_again(
    make: Make, index: str
) -> None:
    world = make(index, ENGINES[index])
    ev = world.ev
    ev.add(KIND, "alpha", id="1")
    work(ev)
    ev.migrate("hashing:32")
    while ev._lifecycle.step():
        pass
    make_wrong(world)
    result = ev.process_all()
    assert result.succeeded == 0
    assert "dimensions" in result.errors[0][1]
    assert ev.pipeline.claim(10) == []
    jobs = [j for j in ev.queue.jobs() if j.embedding_version == "hashing-32"]
    assert [(j.status, j.attempts) for j in jobs] == [(Status.PENDING, 0)]
    assert "7 dimensions" in (jobs[0].error or "") or index == "lancedb"


@pytest.mark.parametrize("index", QDRANTS)
def test_a_collection_that_others_replace_is_found_out_at_the_next_write(
    make: Make, index: str
) -> None:
    world = make(index, ENGINES[index])
    (version,) = (c.version for c in world.ev.store.versions.collections())
    new = [change(version, RECORD, SEQ, ["a"])]
    world.ev.index.apply(new)
    drop_wrong(world, "hashing-64")
    make_wrong(world, "hashing-64")
    with pytest.raises(IndexUnavailable, match=r"dimension|400|shapes|broadcast"):
        world.ev.index.apply(new)
    with pytest.raises(WrongCollection, match="7 dimensions"):
        world.ev.index.apply(new)
    with pytest.raises(IndexUnavailable):
        world.ev.index.search(Query(version, "default", vector("a"), 5))
