"""Records that come with vectors: nothing is embedded, and all else is as ever."""

from contextlib import closing
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import evervec
from evervec import Client, Evervec, InvalidArgument, InvalidRecord, Kind, Vectors
from evervec.embedders.hashing import HashingEmbedder
from support.service import Served
from support.world import KIND, World, assert_in_step, step, work

LONG = " ".join(f"word{n} follows word{n - 1} in this text." for n in range(1, 40))
MODEL = "hashing-64"


def vectors_of(*texts: str) -> NDArray[np.float32]:
    """As the embedder of a world makes them."""
    return HashingEmbedder(64).embed(list(texts))


def odd_vector(number: int) -> NDArray[np.float32]:
    """A vector that the embedder would not make."""
    vector: NDArray[np.float32] = np.eye(64, dtype=np.float32)[number]
    return vector


def stored(ev: Evervec, id: str) -> list[NDArray[np.float32]]:
    return [chunk.vector for chunk in ev.vectors(KIND, [id])[id]]


def given(ev: Evervec) -> int:
    """How many records have vectors that wait for a worker."""
    return len(ev.store.shared.given(f"{MODEL}/64", range(1, 2000)))


@pytest.mark.every_index
def test_a_record_with_its_vector_is_found_by_it_and_costs_no_call(world: World) -> None:
    ev = world.ev
    ticket = ev.add(KIND, "alpha beta", id="1", vectors=Vectors(MODEL, 3 * odd_vector(5)))
    ev.add(KIND, "gamma", id="2")
    work(ev)
    assert ev.wait(ticket, 0).status == "done"
    assert world.embedder.texts == ["gamma"]
    assert np.array_equal(stored(ev, "1")[0], odd_vector(5)), "with length one"
    (attempt,) = ev.queue.history(KIND, "1")
    assert (attempt.chunks_embedded, attempt.chunks_reused) == (0, 1)
    assert_in_step(ev, {"1": "alpha beta", "2": "gamma"})
    assert ev.verify().complete
    assert given(ev) == 0, "a worker has written them, so they are dropped"


def test_a_long_record_takes_one_vector_for_each_chunk(world: World) -> None:
    ev = world.ev
    texts = ev.chunks(KIND, LONG, title="Words")
    assert len(texts) > 2
    assert all(text.startswith("Words\n\n") for text in texts)
    ev.add(KIND, LONG, id="1", title="Words", vectors=Vectors(MODEL, vectors_of(*texts).tolist()))
    work(ev)
    assert world.embedder.calls == []
    for found, made in zip(stored(ev, "1"), vectors_of(*texts), strict=True):
        assert np.allclose(found, made, atol=1e-6)
    assert ev.verify().complete


@pytest.mark.parametrize("cache", [0, 16])
def test_vectors_are_for_their_own_record_only(tmp_path: Any, cache: int) -> None:
    """Another record, or tenant, with the same text must not get a vector that somebody made up."""
    embedder = HashingEmbedder(64)
    with evervec.open(tmp_path / "s.db", embedder=embedder, vector_cache_mb=cache) as ev:
        for id in ("1", "2"):
            ev.add(KIND, "alpha", id=id, vectors=Vectors(MODEL, odd_vector(int(id))))
        ev.add(KIND, "alpha", id="3")
        ev.of("other").add(KIND, "alpha", id="1")
        ev.process_all()
        own, (theirs,) = vectors_of("alpha")[0], ev.of("other").vectors(KIND, ["1"])["1"]
        for id in ("1", "2"):
            assert np.array_equal(stored(ev, id)[0], odd_vector(int(id)))
        assert np.allclose(stored(ev, "3")[0], own)
        assert np.allclose(theirs.vector, own)


def test_what_does_not_fit_is_refused_and_nothing_is_saved(world: World) -> None:
    ev, right = world.ev, odd_vector(1)
    cases: list[tuple[Any, str]] = [
        (Vectors("another-model", right), "'another-model'.*searched with 'hashing-64'"),
        (Vectors(MODEL, right[:63]), "have 63 dimensions; those of 'hashing-64' have 64"),
        (Vectors(MODEL, [right, right]), "2 for a text of 1 chunks; give one for each"),
        (Vectors(MODEL, [right, right[:3]]), "same number of dimensions"),
        (Vectors(MODEL, 0 * right), "number 0 is zero"),
        (Vectors(MODEL, np.nan * right), "not finite"),
        (Vectors(MODEL, [1e300] * 64), "not finite"),
        (Vectors(MODEL, ["a"] * 64), "base64"),
        (Vectors(MODEL, [None] * 64), "must be a list of vectors"),
        (Vectors(MODEL, [True] * 64), "must be a list of vectors"),
        (Vectors(MODEL, []), "must be a list of vectors"),
        (Vectors(MODEL, right.reshape(1, 1, 64)), "must be a list of vectors"),
        (Vectors(7, right), "the model 7"),  # type: ignore[arg-type]
        ({"model": MODEL}, "a dict with these two keys"),
        (right, r"must be evervec\.Vectors"),
    ]
    for wrong, message in cases:
        with pytest.raises(InvalidRecord, match=message):
            ev.add(KIND, "alpha", id="1", vectors=wrong)
    assert ev.records() == []
    with pytest.raises(InvalidRecord, match="dimensions") as raised:
        list(
            ev.add_many(
                KIND,
                [
                    {"id": "1", "text": "alpha", "vectors": {"model": MODEL, "vectors": right}},
                    {"id": "2", "text": "beta", "vectors": {"model": MODEL, "vectors": [1.0]}},
                ],
            )
        )
    assert raised.value.position == 1
    assert [record.id for record in ev.records()] == ["1"]


def test_without_an_embedder_they_are_refused(world: World) -> None:
    with pytest.raises(InvalidArgument, match="this process has no embedder for kind"):
        world.without_embedder().chunks(KIND, "a")
    world.ev.add(KIND, "a")
    work(world.ev)
    with pytest.raises(InvalidArgument, match=f"has no embedder of '{MODEL}' for kind"):
        world.without_embedder().add(KIND, "a", vectors=Vectors(MODEL, odd_vector(1)))


def test_a_chunker_that_this_process_lacks_is_named(world: World) -> None:
    class Halves:
        spec = "halves"

        def split(self, text: str) -> list[tuple[int, int]]:
            return [(0, len(text) // 2), (len(text) // 2, len(text))]

    other = world.tenant(world.ev.tenant)
    other.register(Kind(KIND, chunker=Halves()))
    two = Vectors(MODEL, [odd_vector(1), odd_vector(2)])
    other.add(KIND, "alpha beta", id="1", vectors=two)
    work(other)
    assert len(other.chunks(KIND, "alpha beta")) == 2
    assert [list(v).index(1.0) for v in stored(other, "1")] == [1, 2]
    with pytest.raises(InvalidArgument, match="a chunker of its own, which this process lacks"):
        world.ev.add(KIND, "alpha beta", id="2", vectors=two)


def test_a_later_text_without_vectors_is_embedded(world: World) -> None:
    ev = world.ev
    ev.add(KIND, "alpha", id="1", vectors=Vectors(MODEL, odd_vector(1)))
    ev.add(KIND, "beta", id="1")
    work(ev)
    assert world.embedder.texts == ["beta"]
    assert np.allclose(stored(ev, "1")[0], vectors_of("beta")[0])
    assert given(ev) == 0


def test_vectors_that_come_while_a_worker_embeds_the_older_text_are_used_next(
    world: World,
) -> None:
    ev = world.ev
    ev.add(KIND, "alpha", id="1", vectors=Vectors(MODEL, odd_vector(1)))
    (job,) = ev.pipeline.claim(1)
    batch, _ = ev.pipeline.prepare([job])
    ev.add(KIND, "beta", id="1", vectors=Vectors(MODEL, odd_vector(2)))
    ev.pipeline.embed(batch)
    ev.pipeline.write(batch)
    assert given(ev) == 1, "those of the newer text stay"
    work(ev)
    assert world.embedder.calls == []
    assert np.array_equal(stored(ev, "1")[0], odd_vector(2))
    assert given(ev) == 0


def test_a_text_that_waits_takes_vectors_that_come_later(world: World) -> None:
    ev = world.ev
    first = ev.add(KIND, "alpha", id="1")
    again = ev.add(KIND, "alpha", id="1", vectors=Vectors(MODEL, odd_vector(1)))
    assert (again.seq, again.enqueued) == (first.seq, False)
    work(ev)
    assert world.embedder.calls == []
    third = ev.add(KIND, "alpha", id="1", vectors=Vectors(MODEL, odd_vector(2)))
    assert not third.enqueued, "an embedded text keeps its vectors"
    assert given(ev) == 0
    assert np.array_equal(stored(ev, "1")[0], odd_vector(1))


def test_a_stale_version_brings_no_vectors(world: World) -> None:
    ev = world.ev
    ev.add(KIND, "alpha", id="1", version=2, vectors=Vectors(MODEL, odd_vector(1)))
    ev.add(KIND, "alpha", id="1", version=1, vectors=Vectors(MODEL, odd_vector(2)))
    work(ev)
    assert np.array_equal(stored(ev, "1")[0], odd_vector(1))


def test_a_boxed_record_has_its_vectors_when_it_appears(world: World) -> None:
    ev = world.ev
    ev.add(KIND, "alpha", id="1", boxed=True, vectors=Vectors(MODEL, odd_vector(1)))
    work(ev)
    assert world.embedder.calls == []
    assert np.array_equal(stored(ev, "1")[0], odd_vector(1))


def test_a_failed_attempt_keeps_them_for_the_next(world: World) -> None:
    ev = world.ev
    ev.add(KIND, "alpha", id="1", vectors=Vectors(MODEL, odd_vector(1)))
    ev.pipeline.prepare(ev.pipeline.claim(1))  # this worker dies
    ev.store.shared.drop_stray_given(0, 100)
    world.clock.move(61)
    ev.queue.recover_stuck()
    work(ev)
    assert world.embedder.calls == []
    assert np.array_equal(stored(ev, "1")[0], odd_vector(1))


def test_housekeeping_drops_what_no_job_needs(world: World) -> None:
    ev = world.ev
    for id in ("1", "2", "3"):
        ev.add(KIND, "alpha", id=id, vectors=Vectors(MODEL, odd_vector(1)))
    ev.delete(KIND, "1")
    job = next(job for job in ev.queue.claim(3) if job.record_id == "2")
    ev.queue.finish(job)  # by a caller that writes an index of its own
    ev._housekeeping.drop_given()
    assert given(ev) == 2, "the jobs of 1 and 3 are not done"
    ev.queue.recover_stuck(timedelta(0))
    world.clock.move(100)
    ev.queue.recover_stuck()
    work(ev)
    ev._housekeeping.drop_given()
    assert given(ev) == 0


def test_they_come_with_the_callers_transaction_or_not_at_all(joined_world: World) -> None:
    ev = joined_world.ev
    with closing(joined_world.connect()) as conn:
        ev.add(KIND, "alpha", id="1", vectors=Vectors(MODEL, odd_vector(1)), conn=conn)
        conn.rollback()
    assert given(ev) == 0
    with closing(joined_world.connect()) as conn:
        ev.add(KIND, "alpha", id="1", vectors=Vectors(MODEL, odd_vector(1)), conn=conn)
        conn.commit()
    work(ev)
    assert joined_world.embedder.calls == []


def test_another_models_version_embeds_the_text_itself(world: World) -> None:
    ev = world.ev
    ev.add(KIND, "alpha", id="0")
    work(ev)
    other = HashingEmbedder(32)
    ev.migrate(other)
    ev.add(KIND, "beta", id="1", vectors=Vectors(MODEL, odd_vector(1)))
    with pytest.raises(InvalidRecord, match="searched with 'hashing-64'"):
        ev.add(KIND, "gamma", id="2", vectors=Vectors("hashing-32", [1.0] * 32))
    ev.process_all()
    assert "beta" not in world.embedder.texts
    migration = ev.migration()
    assert migration is not None
    migration.switch()
    assert np.allclose(stored(ev, "1")[0], other.embed(["beta"])[0])
    ev._housekeeping.drop_given()  # a worker leaves them while the other version has its job to do
    assert given(ev) == 0


def test_over_http_and_with_the_client_it_is_the_same(world: World, served: Served) -> None:
    key = served.key()
    texts = world.ev.chunks(KIND, LONG)
    with Client(served.url, key) as client:
        client.add(KIND, LONG, id="1", vectors=Vectors(MODEL, vectors_of(*texts)))
        records = (
            {"id": id, "text": f"text {id}", "vectors": Vectors(MODEL, odd_vector(id))}
            for id in range(2, 5)
        )
        assert len(list(client.add_many(KIND, records))) == 3
        with pytest.raises(InvalidRecord, match="have 3 dimensions"):
            client.add(KIND, "alpha", vectors=Vectors(MODEL, [1.0, 2.0, 3.0]))
    numbers = odd_vector(6).tolist()
    body: dict[str, Any] = {"kind": KIND, "id": "6", "text": "text 6"}
    http = served.http(key)
    sent = body | {"vectors": {"model": MODEL, "vectors": [numbers]}}
    assert http.post("/v1/records", json=sent).status_code == 202
    for wrong in ({"model": MODEL}, {"model": MODEL, "vectors": [["x"]]}, [numbers]):
        assert http.post("/v1/records", json=body | {"vectors": wrong}).status_code == 422
    step(world.ev, world.ev.pipeline.claim(9))
    work(world.ev)
    assert world.embedder.calls == []
    assert len(stored(world.ev, "1")) == len(texts)
    for id in (2, 3, 4, 6):
        assert np.array_equal(stored(world.ev, str(id))[0], odd_vector(id))
