"""Searching vectors: exact, each record once, within tenant, kind and filter."""

import threading
from typing import Any

import numpy as np
import pytest

from evervec import Evervec, Kind
from evervec.chunking import hash_text
from evervec.indexes.base import Query
from evervec.model.filters import parse_filter
from support.vectors import change, vector
from support.world import DAY, KIND, World, add_all, paragraph, work

pytestmark = pytest.mark.index_port

WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta")


def version_of(ev: Evervec, kind: str = KIND) -> int:
    (found,) = [c.version for c in ev.store.versions.collections() if c.kind == kind]
    return found


def nearest(
    ev: Evervec, words: str, limit: int = 5, filter: dict[str, Any] | None = None
) -> list[str]:
    """The ids of the nearest records."""
    matches = ev.index.search(
        Query(version_of(ev), ev.tenant, vector(words), limit, parse_filter(filter))
    )
    ids = {r.record: r.id for r in ev.store.records.found([m.record for m in matches]).values()}
    return [ids[m.record] for m in matches if m.record in ids]


def test_an_empty_index_finds_nothing(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    assert nearest(world.ev, "alpha") == []
    assert not world.ev.index.search(Query(10**9, "default", vector("alpha"), 5))


def test_the_nearest_come_first_with_their_cosine(world: World) -> None:
    texts = [f"{a} {b}" for a in WORDS for b in WORDS]
    add_all(world.ev, KIND, *texts)
    work(world.ev)
    for query in ("alpha", "beta gamma", "theta zeta eta"):
        asked = vector(query)
        matches = world.ev.index.search(Query(version_of(world.ev), "default", asked, 10))
        truth = sorted((float(vector(t) @ asked) for t in texts), reverse=True)[:10]
        assert [m.similarity for m in matches] == pytest.approx(truth, abs=1e-5)


def test_a_record_is_found_once_by_its_best_chunk(world: World) -> None:
    parts = [paragraph(word) for word in WORDS]
    world.ev.add(KIND, "\n\n".join(parts), id="long")
    world.ev.add(KIND, "gamma", id="short")
    work(world.ev)
    matches = world.ev.index.search(Query(version_of(world.ev), "default", vector("gamma"), 5))
    assert len(matches) == 2
    assert {m.hash for m in matches} == {hash_text(parts[2]), hash_text("gamma")}
    (hit,) = [h for h in world.ev.search("gamma", mode="semantic") if h.id == "long"]
    assert hit.text == parts[2]


def test_the_limit_counts_records_and_not_chunks(world: World) -> None:
    long = "\n\n".join(f"alpha {word} " * 4 for word in WORDS)
    add_all(world.ev, KIND, long, "alpha beta gamma delta", "alpha one two three four")
    work(world.ev)
    assert len(nearest(world.ev, "alpha", 3)) == 3
    assert len(nearest(world.ev, "alpha", 2)) == 2
    assert len(nearest(world.ev, "alpha", 1)) == 1


def test_tenants_are_apart(world: World) -> None:
    other = world.tenant("other")
    world.ev.add(KIND, "alpha", id="mine")
    other.add(KIND, "alpha", id="theirs")
    work(world.ev)
    assert nearest(world.ev, "alpha") == ["mine"]
    assert nearest(other, "alpha") == ["theirs"]
    assert nearest(world.tenant("third"), "alpha") == []


def test_metadata_filters_choose_among_all_records(world: World) -> None:
    for n in range(40):
        world.ev.add(KIND, f"alpha {WORDS[n % 8]}", id=n, metadata={"n": n, "even": n % 2 == 0})
    work(world.ev)
    assert nearest(world.ev, "alpha", 50, filter={"n": {"gte": 38}}) in (["38", "39"], ["39", "38"])
    assert len(nearest(world.ev, "alpha", 50, filter={"even": True})) == 20
    assert nearest(world.ev, "alpha", 50, filter={"n": 7, "even": True}) == []
    assert nearest(world.ev, "alpha", 50, filter={"n": 7, "even": False}) == ["7"]


def test_fields_that_are_kept_ready_change_no_answer(world: World) -> None:
    world.ev.register(Kind(KIND, index_fields={"n": int, "even": bool, "tags": str}))
    for n in range(40):
        metadata = {"n": n, "even": n % 2 == 0, "tags": [f"t{n % 4}", "all"]}
        world.ev.add(KIND, f"alpha {n}", id=n, metadata=metadata)
    work(world.ev)
    wanted: list[dict[str, Any]] = [
        {"n": 7}, {"n": {"gte": 38}}, {"even": True}, {"tags": "t1"}, {"tags": ["t1", "t2"]},
        {"tags": "all", "n": [1, 2, 3]}, {"even": False, "tags": "t0"}, {"n": None},
    ]  # fmt: skip
    before = [sorted(nearest(world.ev, "alpha", 50, filter=one)) for one in wanted]
    assert list(map(len, before)) == [1, 2, 20, 10, 20, 3, 0, 0]
    world.ev.index.maintain(0)
    for thread in threading.enumerate():
        if thread.name == "evervec-fields":
            thread.join()
    assert [sorted(nearest(world.ev, "alpha", 50, filter=one)) for one in wanted] == before


def test_filters_see_new_metadata_at_once(world: World) -> None:
    """An index apart from the store sees it with the points; its hits are true even before."""
    world.ev.add(KIND, "alpha", id="1", metadata={"state": "draft"})
    world.ev.add(KIND, "alpha and others", id="2", metadata={"state": "draft"})
    work(world.ev)
    world.ev.add(KIND, "alpha", id="1", metadata={"state": "final"})
    hits = world.ev.search("alpha", 1, mode="semantic", filter={"state": "draft"})
    assert [hit.id for hit in hits] == ["2"]
    if not world.ev.index.shares_store:
        embedded = len(world.embedder.texts)
        work(world.ev)
        assert len(world.embedder.texts) == embedded, "metadata alone costs no embedding"
    assert nearest(world.ev, "alpha", filter={"state": "final"}) == ["1"]
    assert nearest(world.ev, "alpha", filter={"state": "draft"}) == ["2"]


def test_what_is_held_in_memory_follows_every_change(world: World) -> None:
    ev = world.ev
    add_all(ev, KIND, *(f"alpha {n}" for n in range(300)))
    work(ev)
    assert len(nearest(ev, "alpha", 1000)) == 300
    ev.store.changes.delete(ev.tenant, KIND, [str(n) for n in range(0, 300, 2)])
    list(ev.add_many(KIND, ({"id": n, "text": f"omega omega omega {n}"} for n in range(1, 100, 2))))
    work(ev)
    assert len(nearest(ev, "alpha", 1000)) == 150
    best = nearest(ev, "omega", 50)
    assert sorted(int(id) for id in best) == list(range(1, 100, 2))


def test_what_another_opening_wrote_is_found(shared_world: World) -> None:
    mine, theirs = shared_world.ev, shared_world.open()
    mine.add(KIND, "alpha", id="1")
    work(mine)
    assert nearest(theirs, "alpha") == ["1"]
    mine.add(KIND, "beta", id="2")
    work(mine)
    assert nearest(theirs, "beta")[0] == "2"
    mine.delete(KIND, "1")
    work(mine)
    assert nearest(theirs, "alpha") == ["2"]
    theirs.add(KIND, "gamma", id="2")
    work(theirs)
    (match,) = mine.index.search(Query(version_of(mine), "default", vector("beta"), 5))
    assert match.hash == hash_text("gamma")
    assert list(theirs.index.search(Query(version_of(mine), "default", vector("beta"), 5))) == [
        match
    ]


def test_what_another_opening_replaced_is_not_found_even_after_its_history_was_purged(
    shared_world: World,
) -> None:
    mine, theirs = shared_world.ev, shared_world.open()
    mine.add(KIND, "alpha", id="1")
    mine.add(KIND, "gamma", id="2")
    work(mine)
    assert nearest(theirs, "alpha")[0] == "1"
    mine.add(KIND, "beta", id="1")
    work(mine)
    shared_world.clock.move(8 * DAY)
    mine.store.jobs.purge_history(shared_world.clock.now - 7 * DAY)
    matches = theirs.index.search(Query(version_of(mine), "default", vector("alpha"), 5))
    assert hash_text("alpha") not in {m.hash for m in matches}


def test_a_small_cache_only_costs_time(world: World) -> None:
    small = world.open(cache_mb=1) if world.store_name != "memory" else world.ev
    other = Evervec(small.store, small.index, world.embedder, "other", small.settings)
    small.add(KIND, "alpha", id="1")
    other.add(KIND, "alpha", id="2")
    work(small)
    for _ in range(3):
        assert nearest(small, "alpha") == ["1"]
        assert nearest(other, "alpha") == ["2"]


def test_searches_beside_writers_are_never_wrong(world: World) -> None:
    """Every answer is of some moment: the record is there, by its old or its new vector."""
    ev = world.ev
    add_all(ev, KIND, *(f"alpha {n}" for n in range(100)))
    work(ev)
    version, stop, errors = version_of(ev), threading.Event(), []
    number = ev.queue.jobs()[0].record

    def search() -> None:
        while not stop.is_set():
            matches = ev.index.search(Query(version, "default", vector("steady"), 200))
            records = [m.record for m in matches]
            if len(records) != len(set(records)) or len(records) != 100:
                errors.append(len(records))

    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    rounds = 60 if ev.index.shares_store else 12
    for seq in range(10**9, 10**9 + rounds):
        ev.index.apply([change(version, number, seq, [f"word{seq}"])])
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == []


def test_vectors_come_back_as_they_were_written(world: World) -> None:
    world.ev.add(KIND, "alpha beta", id="1")
    work(world.ev)
    (match,) = world.ev.index.search(
        Query(version_of(world.ev), "default", vector("alpha beta"), 1)
    )
    assert np.isclose(match.similarity, 1.0, atol=1e-6)
