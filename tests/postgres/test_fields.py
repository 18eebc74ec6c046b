"""The indexes of declared metadata fields: built beside the work, and used for few records."""

import threading
from typing import Any

import pytest

from evervec import Kind
from evervec.indexes.base import Query
from evervec.indexes.pgvector import PgvectorIndex
from evervec.indexes.pgvector.fields import FieldIndexes
from evervec.model.filters import parse_filter
from support import postgres
from support.processes import until
from support.vectors import vector
from support.world import KIND, World, version_of, work

INDEXES = """select i.indisvalid, pg_get_indexdef(i.indexrelid) from pg_index as i
    join pg_class as c on c.oid = i.indexrelid where c.relname like 'records%field%'
    and not c.relispartition"""


def maintained(world: World) -> PgvectorIndex:
    """The index after its maintenance."""
    index = world.ev.index
    assert isinstance(index, PgvectorIndex)
    index.maintain(0)
    for thread in threading.enumerate():
        if thread.name == "evervec-fields":
            thread.join()
    return index


def filled(world: World) -> None:
    world.ev.register(Kind(KIND, index_fields=["agent", "it's \\ odd"]))
    for n in range(60):
        metadata = {"agent": f"a{n % 6}", "n": n % 2, "it's \\ odd": [n % 3, "x"]}
        world.ev.add(KIND, f"alpha {n}", id=n, metadata=metadata)
    world.ev.add("other", "alpha", id="o", metadata={"agent": "a1"})
    work(world.ev)


def test_declared_fields_are_indexed_once_and_beside_the_work(world: World, url: str) -> None:
    filled(world)
    assert postgres.execute(url, INDEXES) == []
    maintained(world)
    made = postgres.execute(url, INDEXES)
    assert [valid for valid, _ in made] == [True, True]
    assert all("jsonb_path_ops" in said and f"kind = '{KIND}'" in said for _, said in made)
    fields = world.ev.index._fields  # type: ignore[attr-defined]
    assert not fields.build(KIND, "agent")  # it is there
    maintained(world)
    assert postgres.execute(url, INDEXES) == made


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        ({"agent": "a1"}, 10),
        ({"agent": ["a1", "a2"]}, 20),
        ({"agent": "a1", "n": 1}, 10),
        ({"agent": "a1", "n": 0}, 0),
        ({"agent": "none"}, 0),
        ({"it's \\ odd": 2}, 20),
        ({"it's \\ odd": 2.0, "agent": "a2"}, 10),
        ({"it's \\ odd": "x"}, 60),
    ],
)
def test_a_search_compares_only_the_few_vectors_that_fit(
    world: World, wanted: dict[str, Any], count: int
) -> None:
    filled(world)
    index, version = maintained(world), version_of(world.ev)
    query = Query(version, "default", vector("alpha"), 100, parse_filter(wanted))
    assert len(index._fields.few(KIND, query) or []) == count
    assert len(index.search(query)) == count
    assert len(world.ev.search("alpha", 100, kind=KIND, mode="semantic", filter=wanted)) == count
    elsewhere = Query(version, "another", vector("alpha"), 100, parse_filter(wanted))
    assert not index.search(elsewhere)


@pytest.mark.parametrize(
    "wanted",
    [{"n": 1}, {"agent": {"ne": "a1"}}, {"agent": None}, {"agent": ["a1", None]}, {"agent": "a\0"}],
)
def test_what_no_index_finds_is_searched_as_before(world: World, wanted: dict[str, Any]) -> None:
    filled(world)
    index = maintained(world)
    query = Query(version_of(world.ev), "default", vector("alpha"), 100, parse_filter(wanted))
    assert index._fields.few(KIND, query) is None
    expected = {r.id for r in world.ev.records(KIND, filter=wanted)}
    assert len(index.search(query)) == len(expected)


def test_a_filter_that_many_pass_is_tried_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(world)
    index, version = maintained(world), version_of(world.ev)
    monkeypatch.setattr("evervec.indexes.pgvector.fields._FEW", 9)
    query = Query(version, "default", vector("alpha"), 100, parse_filter({"agent": "a1"}))
    assert len(index.search(query)) == 10
    monkeypatch.setattr("evervec.indexes.pgvector.fields._FEW", 10)
    assert index._fields.few(KIND, query) is None, "it is remembered for a minute"
    assert len(FieldIndexes(index._db, world.ev.store).few(KIND, query) or []) == 10


def test_records_change_while_their_fields_are_indexed(world: World) -> None:
    filled(world)
    index = maintained(world)
    wanted = {"agent": "a1"}
    world.ev.add(KIND, "alpha 1", id=1, metadata={"agent": "b1"})
    world.ev.delete(KIND, "7")
    found = world.ev.search("alpha", 100, kind=KIND, mode="semantic", filter=wanted)
    assert {h.id for h in found} == {"13", "19", "25", "31", "37", "43", "49", "55"}
    work(world.ev)
    query = Query(version_of(world.ev), "default", vector("alpha"), 100, parse_filter(wanted))
    assert len(index.search(query)) == 8


def test_the_remains_of_a_killed_build_are_built_again(world: World, url: str) -> None:
    filled(world)
    maintained(world)
    query = (
        "update pg_index set indisvalid = false where indexrelid::regclass::text like '%_field_%'"
    )
    postgres.execute(url, query)
    fields = FieldIndexes(world.ev.index._db, world.ev.store)  # type: ignore[attr-defined]
    until(lambda: fields.build(KIND, "agent"), "the session of the last build to end")
    assert sorted(valid for valid, _ in postgres.execute(url, INDEXES)) == [False, True]


def test_the_records_of_a_field_are_found_by_its_index(world: World, url: str) -> None:
    filled(world)
    many = ({"id": f"more {n}", "text": "x", "metadata": {"agent": str(n)}} for n in range(5000))
    list(world.ev.add_many(KIND, many))
    maintained(world)
    plan = postgres.execute(
        url,
        f"""explain select r.record from evervec.records as r where r.tenant = 'default'
        and r.kind = '{KIND}' and r.state = 'live' and (r.metadata::jsonb -> 'agent') @> '"77"'""",
    )
    assert "records_field_" in str(plan)
