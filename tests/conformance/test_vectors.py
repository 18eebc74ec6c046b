"""Vectors come back from every index as the embedder made them."""

import threading

import numpy as np
import pytest

from evervec import Evervec, InvalidArgument, InvalidRecord
from evervec.chunking import hash_text
from evervec.indexes.base import StoredVector
from evervec.search.vectors import VectorReader
from support.vectors import change, vector
from support.world import (
    KIND,
    ScriptedEmbedder,
    World,
    add_all,
    paragraph,
    step,
    version_of,
    work,
)

pytestmark = pytest.mark.index_port

WORDS = ("alpha", "beta", "gamma", "delta")
CLOSE = 1e-6
"""Qdrant normalises what it is given once more; the others keep every bit"""


def assert_made(ev: Evervec, id: str, text: str, pieces: list[str]) -> None:
    """The record has the vectors of these pieces of its text, in order."""
    (chunks,) = ev.vectors(KIND, [id]).values()
    assert [chunk.position for chunk in chunks] == list(range(len(pieces)))
    assert [text[chunk.start : chunk.end] for chunk in chunks] == pieces
    for chunk, piece in zip(chunks, pieces, strict=True):
        assert chunk.vector.dtype == np.float32
        assert chunk.vector.shape == (64,)
        np.testing.assert_allclose(chunk.vector, vector(piece), atol=CLOSE)


def test_vectors_are_those_of_the_embedder(world: World) -> None:
    ev = world.ev
    parts = [paragraph(word) for word in WORDS]
    text = "\n\n".join(parts)
    ev.add(KIND, text, id="long")
    ev.add(KIND, "alpha beta", id="short")
    assert ev.vectors(KIND, ["long", "short"]) == {}
    work(ev)
    assert list(ev.vectors(KIND, ["short", "long", "short", "absent"])) == ["short", "long"]
    assert_made(ev, "long", text, parts)
    assert_made(ev, "short", "alpha beta", ["alpha beta"])
    assert ev.vectors("another", ["long"]) == ev.vectors(KIND, []) == {}


def test_vectors_follow_updates_and_deletes(world: World) -> None:
    ev = world.ev
    parts = [paragraph(word) for word in WORDS]
    ev.add(KIND, "\n\n".join(parts), id="1")
    work(ev)
    moved = [parts[2], parts[0], paragraph("omega")]
    ev.add(KIND, "\n\n".join(moved), id="1")
    before = ev.vectors(KIND, ["1"])["1"]
    assert [chunk.start for chunk in before] == [None] * 4, "the text they are of is gone"
    for chunk, part in zip(before, parts, strict=True):
        np.testing.assert_allclose(chunk.vector, vector(part), atol=CLOSE)
    work(ev)
    assert_made(ev, "1", "\n\n".join(moved), moved)
    ev.delete(KIND, "1")
    assert ev.vectors(KIND, ["1"]) == {}
    work(ev)
    assert ev.vectors(KIND, ["1"]) == {}
    assert ev.index.vectors(version_of(ev), [1, 2, 3]) == {}
    ev.add(KIND, "gamma", id="1")
    work(ev)
    assert_made(ev, "1", "gamma", ["gamma"])


def test_a_piece_that_a_text_repeats_has_its_vector_at_each_place(world: World) -> None:
    ev = world.ev
    parts = [paragraph(word) for word in ("alpha", "beta", "alpha")]
    ev.add(KIND, "\n\n".join(parts), id="1")
    work(ev)
    assert_made(ev, "1", "\n\n".join(parts), parts)


def test_metadata_alone_leaves_vectors_as_they_are(world: World) -> None:
    ev = world.ev
    ev.add(KIND, "alpha", id="1")
    work(ev)
    ev.add(KIND, "alpha", id="1", metadata={"a": 1})
    work(ev)
    assert_made(ev, "1", "alpha", ["alpha"])


def test_tenants_have_their_own_vectors(world: World) -> None:
    ev, other = world.ev, world.tenant("other")
    ev.add(KIND, "alpha", id="1")
    other.add(KIND, "beta", id="1")
    other.add(KIND, "gamma", id="2")
    work(ev)
    assert_made(ev, "1", "alpha", ["alpha"])
    assert_made(other, "1", "beta", ["beta"])
    assert ev.vectors(KIND, ["2"]) == {}
    assert world.tenant("third").vectors(KIND, ["1", "2"]) == {}


def test_boxed_records_show_no_vectors_before_they_appear(world: World) -> None:
    ev = world.ev
    ev.add(KIND, "alpha", id="1", boxed=True)
    assert ev.vectors(KIND, ["1"]) == {}
    work(ev)
    assert_made(ev, "1", "alpha", ["alpha"])


def test_vectors_of_many_records_are_read_in_portions(world: World) -> None:
    ev = world.ev
    add_all(ev, KIND, *(f"{WORDS[n % 4]} {n}" for n in range(300)))
    work(ev)
    found = ev.vectors(KIND, range(299, -1, -1))
    assert list(found) == [str(n) for n in range(299, -1, -1)]
    for n in (0, 43, 44, 299):
        np.testing.assert_allclose(
            found[str(n)][0].vector, vector(f"{WORDS[n % 4]} {n}"), atol=CLOSE
        )


def test_vectors_are_of_the_version_that_serves(world: World) -> None:
    ev = world.ev
    ev.add(KIND, "alpha", id="1")
    work(ev)
    migration = ev.migrate(ScriptedEmbedder(32), version="other")
    ev.process_all()
    assert ev.vectors(KIND, ["1"])["1"][0].vector.shape == (64,)
    migration.switch()
    assert ev.vectors(KIND, ["1"])["1"][0].vector.shape == (32,)


def test_the_index_gives_what_was_applied(world: World) -> None:
    ev = world.ev
    ev.add(KIND, "first", id="1")
    work(ev)
    version, (job,) = version_of(ev), ev.queue.jobs()
    seq = 10**9
    ev.index.apply([change(version, job.record, seq, ["alpha", "beta"])])
    ev.index.apply([change(version, job.record, seq + 1, ["gamma"], kept=["beta"])])
    (points,) = ev.index.vectors(version, [job.record, job.record + 10**6]).values()
    assert [(p.hash, p.position) for p in points] == [
        (hash_text("gamma"), 0), (hash_text("beta"), 1),
    ]  # fmt: skip
    np.testing.assert_allclose(points[1].vector, vector("beta"), atol=CLOSE)
    ev.index.apply([change(version, job.record, seq + 2)])
    assert ev.index.vectors(version, [job.record]) == {}
    assert ev.index.vectors(10**9, [job.record]) == ev.index.vectors(version, []) == {}


def test_points_replaced_between_the_two_reads_are_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ev = world.ev
    ev.add(KIND, "alpha", id="1")
    work(ev)
    ev.add(KIND, "beta", id="1")
    jobs = ev.queue.claim(1)
    read = ev.index.vectors
    asked: list[list[int]] = []

    def replaced_before(version: int, records: list[int]) -> dict[int, list[StoredVector]]:
        if not asked:
            step(ev, jobs)
        asked.append(records)
        return read(version, records)

    monkeypatch.setattr(ev.index, "vectors", replaced_before)
    assert_made(ev, "1", "beta", ["beta"])
    assert len(asked) == 2


def test_a_record_whose_points_were_lost_shows_none_of_its_vectors(world: World) -> None:
    ev = world.ev
    ev.add(KIND, "\n\n".join(map(paragraph, WORDS)), id="1")
    work(ev)
    held = ev.index.held(version_of(ev), None, 0, None)
    assert ev.index.remove(version_of(ev), held[:1]) == 1
    assert ev.vectors(KIND, ["1"]) == {}


def test_vectors_read_beside_a_writer_are_whole(world: World) -> None:
    ev = world.ev
    ev.add(KIND, "start", id="1")
    work(ev)
    rounds = 15 if ev.index.shares_store else 5
    stop = threading.Event()
    wrong: list[int] = []

    def read() -> None:
        while not stop.is_set():
            counts = [len(chunks) for chunks in ev.vectors(KIND, ["1"]).values()]
            wrong.extend(count for count in counts if count not in (1, 3))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for n in range(rounds):
            ev.add(KIND, "\n\n".join(paragraph(f"w{n}x{part}") for part in range(3)), id="1")
            work(ev)
    finally:
        stop.set()
        reader.join()
    assert wrong == []


@pytest.mark.parametrize("ids", ["42", b"42", 42, None, {"42": 1}])
def test_ids_that_are_no_list_are_refused(memory: World, ids: object) -> None:
    with pytest.raises(InvalidArgument, match="ids must be a list of ids"):
        memory.ev.vectors(KIND, ids)  # type: ignore[arg-type]
    with pytest.raises(InvalidRecord, match="id: is missing"):
        memory.ev.vectors(KIND, [None])  # type: ignore[list-item]


def test_vectors_within_a_bound_are_of_the_first_records(world: World) -> None:
    ev = world.ev
    ids = add_all(ev, KIND, *WORDS)
    names = [ticket.id for ticket in ids]
    work(ev)
    reader = VectorReader(ev.store, ev.index, ev.tenant)
    found, left = reader.read_within(KIND, [names[0], *names], 2 * 64, 1000)
    assert (list(found), left) == (names[:2], names[2:])
    assert reader.read_within(KIND, ["absent", *names], 10_000, 10_000)[1] == []
    found, left = reader.read_within(KIND, names, 1, 1000)
    assert (list(found), left) == (names[:1], names[1:])
    with pytest.raises(InvalidArgument, match=r"64 numbers.*at most 63 \(server_page_mb\)"):
        reader.read_within(KIND, names, 1, 63)
    assert reader.read_within("nothing", names, 1, 1) == ({}, [])
