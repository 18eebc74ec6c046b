"""A sample of vectors: all records up to a limit, then records from everywhere, never others'."""

import pytest

from evervec.search.vector_sample import VectorSample, sample_vectors, spread
from support.world import KIND, World, add_all, version_of, work


def sample(world: World, limit: int, tenant: str | None = None) -> VectorSample:
    ev = world.ev
    number = version_of(ev)
    (found,) = [c for c in ev.store.versions.collections() if c.version == number]
    return sample_vectors(ev.store, ev.index, tenant or ev.tenant, found, limit)


@pytest.mark.every_index
def test_a_sample_has_all_records_with_vectors_up_to_its_limit(world: World) -> None:
    add_all(world.ev, KIND, "alpha", "beta", "gamma")
    work(world.ev)
    world.ev.add(KIND, "not embedded", id="later")
    world.ev.of("other").add(KIND, "theirs", id="theirs")
    found = sample(world, 10)
    assert found.is_all
    assert [record.id for record in found.records] == ["0", "1", "2"]
    assert [len(vector) for vector in found.vectors] == [64] * 3
    assert sample(world, 10, "other").records == []


def test_a_large_sample_is_spread_over_the_ids_and_repeatable(world: World) -> None:
    add_all(world.ev, KIND, *(f"text {n}" for n in range(300)))
    work(world.ev)
    found = sample(world, 80)
    assert not found.is_all
    assert 60 < len(found.records) <= 80  # the last run may reach the end
    ids = [record.id for record in found.records]
    assert ids == sorted(set(ids))
    assert {id[0] for id in ids} == set("0123456789")
    assert [record.id for record in sample(world, 80).records] == ids


def test_records_with_very_many_chunks_are_left_out(world: World) -> None:
    world.ev.add(KIND, "\n\n".join(f"{n} " * 20 for n in range(40)), id="long")
    world.ev.add(KIND, "short", id="short")
    work(world.ev)
    found = sample(world, 2)
    assert [record.id for record in found.records] == ["short"]
    assert not found.is_all


@pytest.mark.parametrize(
    ("first", "last"),
    [("a", "a"), ("", "z"), ("doc-1", "doc-9"), ("x", "x/y"), ("中", "國"), ("\ud7f0", "\ue100")],
)
def test_places_between_two_ids_are_texts_in_order(first: str, last: str) -> None:
    places = list(spread(first, last, 40))
    assert places == sorted(places)
    assert len(places) == 40
    for place in places:
        place.encode()
