"""Indexes of declared fields in SQLite: filters find the same records, without reading all."""

from collections.abc import Iterator
from typing import Any

import pytest

import evervec
from conformance.test_filters import VALUES, combined, single
from evervec.indexes.sqlite_fields import FieldIndexes
from support.filters import matches

KIND = "n"


@pytest.fixture
def ev() -> Iterator[evervec.Evervec]:
    with evervec.open("memory:", embedder="hashing") as ev:
        ev.register(evervec.Kind(KIND, index_fields=["f", "it's", 'a"b']))
        yield ev


def add(ev: evervec.Evervec, rows: dict[str, dict[str, Any]]) -> None:
    records = [{"id": id, "text": f"alpha {id}", "metadata": row} for id, row in rows.items()]
    list(ev.add_many(KIND, records))
    ev.process_all()
    ev.index.maintain(0.0)


def found(ev: evervec.Evervec, wanted: dict[str, Any]) -> set[str]:
    return {hit.id for hit in ev.search("alpha", 100, mode="semantic", filter=wanted)}


@pytest.fixture
def by_index(monkeypatch: pytest.MonkeyPatch) -> list[list[int] | None]:
    """What the indexes found, for each filter that was not known yet."""
    answers: list[list[int] | None] = []
    few = FieldIndexes.few

    def watched(*asked: Any) -> list[int] | None:
        answers.append(few(*asked))
        return answers[-1]

    monkeypatch.setattr(FieldIndexes, "few", watched)
    return answers


def test_every_filter_finds_the_same_by_the_index_of_its_field(
    ev: evervec.Evervec, by_index: list[list[int] | None]
) -> None:
    values = [*VALUES, '{"a":1}', "{"]
    rows = {str(n): {"f": v, "g": ("even", "odd")[n % 2]} for n, v in enumerate(values)}
    rows["none"] = {}
    add(ev, rows)
    for wanted in [*single(), *combined(), {"f": ["a", 1, True]}, {"f": '{"a":1}'}, {"f": "{"}]:
        right = {id for id, row in rows.items() if matches(row, wanted)}
        assert found(ev, wanted) == right, wanted
    assert sum(answer is not None for answer in by_index) > 25


def test_what_changes_is_found_and_lost_by_the_index(
    ev: evervec.Evervec, by_index: list[list[int] | None]
) -> None:
    add(ev, {"1": {"f": "red"}, "2": {"f": "blue"}, "3": {"f": ["red", "blue"]}})
    assert found(ev, {"f": "red"}) == {"1", "3"}
    add(ev, {"1": {"f": "blue"}, "4": {"f": "red"}})
    ev.delete(KIND, "3")
    assert found(ev, {"f": "red"}) == {"4"}
    assert found(ev, {"f": "blue"}) == {"1", "2"}
    assert None not in by_index


def test_fields_of_any_name_are_filtered(
    ev: evervec.Evervec, by_index: list[list[int] | None]
) -> None:
    add(ev, {"1": {"it's": "x"}, "2": {'a"b': "x"}})
    assert found(ev, {"it's": "x"}) == {"1"}
    assert found(ev, {'a"b': "x"}) == {"2"}
    assert [answer is None for answer in by_index] == [False, True]


def test_a_filter_that_many_pass_is_left_to_the_search(
    ev: evervec.Evervec, by_index: list[list[int] | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evervec.indexes.sqlite_fields._MOST", 5)
    add(ev, {str(n): {"f": "red" if n % 3 else "blue"} for n in range(12)})
    assert len(found(ev, {"f": "red"})) == 8
    assert len(found(ev, {"f": "blue"})) == 4
    assert [answer is None for answer in by_index] == [True, False]


def test_only_an_index_of_all_records_is_sorted_in_files(ev: evervec.Evervec) -> None:
    """What each batch may have to restore stays in memory."""
    said: list[str] = []
    with ev.store.db.writing(durable=False) as conn:  # type: ignore[attr-defined]
        conn.set_trace_callback(said.append)
    add(ev, {"1": {"f": "a"}})
    conn.set_trace_callback(None)
    made = [said.index(one) for one in said if one.startswith("create index")]
    files, memory = (
        [place for place, one in enumerate(said) if one == f"pragma temp_store = {where}"]
        for where in ("file", "memory")
    )
    assert len(made) == 2  # JSON paths cannot contain a quote
    assert [files[n] < made[n] < memory[n] for n in range(2)] == [True, True]
    assert conn.execute("pragma temp_store").fetchone() == (2,)


def test_memory_is_used_again_after_an_index_failed(ev: evervec.Evervec) -> None:
    with pytest.raises(evervec.StoreError), ev.store.db.sorting() as conn:  # type: ignore[attr-defined]
        conn.execute("create index nothing on evervec_nothing (x)")
    assert conn.execute("pragma temp_store").fetchone() == (2,)
