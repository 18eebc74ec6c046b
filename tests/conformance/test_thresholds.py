"""Thresholds, groups and pages of a search: hits may be far down, behind many that are not relevant enough."""

from typing import Any

import pytest

from evervec import Kind, Rescore
from evervec.indexes.base import Matches
from evervec.search.ranking import Evidence
from support.world import KIND, World, work

MODES = ("hybrid", "semantic", "text")


@pytest.fixture
def mixed(memory: World) -> World:
    """150 records that are equally near, of which 50 have a weight."""
    for n in range(150):
        memory.ev.add(KIND, "alpha beta", id=str(n), weight=float(n >= 100))
    work(memory.ev)
    return memory


def searched(world: World, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records the index is asked for, in each search."""
    limits: list[int] = []
    search = world.ev.index.search

    def counted(query: Any) -> Matches:
        limits.append(query.limit)
        return search(query)

    monkeypatch.setattr(world.ev.index, "search", counted)
    return limits


@pytest.mark.parametrize("mode", MODES)
def test_pages_above_a_threshold_leave_nothing_out(mixed: World, mode: str) -> None:
    pages: list[list[str]] = []
    while not pages or pages[-1]:
        found = mixed.ev.search(
            "alpha beta", 7, mode=mode, min_relevance=0.75, offset=7 * len(pages)
        )
        pages.append([hit.id for hit in found])
    assert [len(page) for page in pages] == [7] * 7 + [1, 0]
    every = [id for page in pages for id in page]
    assert sorted(every, key=int) == [str(n) for n in range(100, 150)]


@pytest.mark.parametrize("mode", MODES)
def test_a_page_is_in_order_although_a_deeper_search_finds_better_hits(
    mixed: World, mode: str
) -> None:
    pages = [mixed.ev.search("alpha beta", 10, mode=mode, offset=n) for n in range(5, 150, 10)]
    assert len({hit.id for page in pages for hit in page}) == 145
    assert [hit.relevance for hit in pages[5]] == sorted(
        (hit.relevance for hit in pages[5]), reverse=True
    )
    assert pages[5][0].relevance > pages[5][-1].relevance


@pytest.mark.parametrize("mode", MODES)
def test_groups_above_a_threshold_are_found(mixed: World, mode: str) -> None:
    mixed.ev.add(KIND, "alpha beta", id="last", metadata={"author": "a"})
    work(mixed.ev)
    asked: dict[str, Any] = {"mode": mode, "group_by": "author", "groups": 2, "min_relevance": 0.75}
    assert {hit.group for hit in mixed.ev.search("alpha beta", 1, **asked)} == {None, "a"}


def test_values_are_grouped_as_filters_compare_them(memory: World) -> None:
    values = [1, 1.0, True, "1", ["1"], [True], "['1']", {"a": 1, "b": 2}, {"a": 1.0, "b": 2}]
    for n, value in enumerate(values):
        memory.ev.add(KIND, "alpha", id=str(n), metadata={"value": value})
    work(memory.ev)
    groups = {int(hit.id): hit.group for hit in memory.ev.search("alpha", 2, group_by="value")}
    assert [repr(groups[n]) for n in range(len(values))] == list(map(repr, values))
    assert len(memory.ev.search("alpha", 1, group_by="value")) == len(values) - 2


def test_a_search_ends_where_nothing_can_reach_the_threshold(
    mixed: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = searched(mixed, monkeypatch)
    assert not mixed.ev.search("gamma", 10, mode="semantic", min_relevance=0.999)
    assert not mixed.ev.search("gamma", 10, mode="semantic", min_similarity=0.999)
    assert not mixed.ev.search("gamma", 10, group_by="author", min_relevance=0.999)
    assert limits == [30, 30, 300]
    mixed.ev.search("alpha beta", 10, mode="semantic", min_relevance=0.1)
    assert limits[3:] == [30], "enough hits were found"


def test_a_weight_that_raises_the_relevance_counts(memory: World) -> None:
    """A record further down may be more relevant than any score says."""
    memory.ev.register(Kind(KIND, rescore=Rescore(base=0.1, gain=5, days=None)))
    for n in range(40):
        memory.ev.add(KIND, "alpha", id=str(n), weight=0)
    memory.ev.add(KIND, "alpha beta gamma", id="heavy", weight=1)
    work(memory.ev)
    found = memory.ev.search("alpha", 5, mode="semantic", min_relevance=1.5)
    assert [hit.id for hit in found] == ["heavy"]


def test_a_deeper_search_shows_the_same_part_of_a_record() -> None:
    """A reranker would score another part otherwise, and a page repeat a hit of the one before."""
    near = Matches([1, 2, 3, 4, 5], [0.9, 0.8, 0.3, 0.2, 0.1], [b"1", b"2", b"3", b"4", b"5"])
    texts = [(3, 2.0), (9, 1.0), (4, 0.5)]
    shallow = Evidence("hybrid", Matches([1, 2], [0.9, 0.8], [b"1", b"2"]), texts[:2],
                       near_within={2: 2})  # fmt: skip
    deep = Evidence("hybrid", near, texts, near_within={2: 2, 4: 4, 8: 5})
    for record in (1, 2, 3, 9):
        assert deep.hash_of(record) == shallow.hash_of(record)
    assert [deep.hash_of(record) for record in (1, 3, 4, 5, 9)] == [b"1", None, b"4", b"5", None]
