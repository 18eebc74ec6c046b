"""What may be large has a bound: a setting, which the error names. Nothing is written."""

from typing import Any

import pytest

from evervec import InvalidArgument, InvalidRecord, Kind
from support.world import KIND, World, add_all, work


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {"a": 1}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("bound", "fits", "too_much"),
    [
        ("metadata_depth", nested(32), nested(33)),
        ("metadata_depth", {"a": [[[]]]}, {"a": [[[{"b": nested(30)}]]]}),
        ("metadata_values", {"a": [0] * 1999}, {"a": [0] * 2000}),
        ("metadata_values", {"a": {"b": 1}}, {"o": {f"k{n}": n for n in range(16_000)}}),
        ("metadata_values", {}, {"a": [[[0] * 100 for _ in range(10)] for _ in range(10)]}),
        ("metadata_values", {}, {"a": [[]] * 2000}),
        ("metadata_bytes", {"a": "é" * 32_764}, {"a": "é" * 32_765}),
        ("metadata_bytes", {"a": "x" * 65_528}, {"a": "x" * 65_529}),
    ],
)
def test_metadata_has_bounds(
    memory: World, bound: str, fits: dict[str, Any], too_much: dict[str, Any]
) -> None:
    memory.ev.add(KIND, "text", id="1", metadata=fits)
    most = f"{getattr(memory.ev.settings, bound):,}"
    for add in (
        lambda: memory.ev.add(KIND, "text", id="2", metadata=too_much),
        lambda: list(memory.ev.add_many(KIND, [{"id": "2", "text": "x", "metadata": too_much}])),
    ):
        with pytest.raises(InvalidRecord, match=rf"at most {most} are allowed \({bound}\)"):
            add()
    assert [record.id for record in memory.ev.records()] == ["1"]


def test_text_and_title_have_bounds(memory: World) -> None:
    ev = memory.open(text_chars=100, title_chars=10)
    ev.add(KIND, "x" * 100, id="1", title="é" * 10)
    with pytest.raises(InvalidRecord, match=r"text: has 101 characters.*100.*\(text_chars\)"):
        ev.add(KIND, "x" * 101)
    with pytest.raises(InvalidRecord, match=r"title: has 11 characters.*10.*\(title_chars\)"):
        ev.add(KIND, "x", title="é" * 11)


def test_what_a_kind_makes_or_loads_is_bounded_too(memory: World) -> None:
    big = {"a": list(range(2000))}
    memory.ev.register(Kind("made", metadata=lambda _: big))
    with pytest.raises(InvalidRecord, match="metadata_values"):
        memory.ev.add("made", "text")
    memory.ev.register(Kind("loaded", load=lambda _: {"text": "x", "metadata": big}))
    memory.ev.queue.enqueue("loaded", "1")
    work(memory.ev)
    job = memory.ev.queue.status("loaded", "1")
    assert job is not None
    assert "metadata_values" in (job.error or "")


def test_a_boxed_record_that_was_accepted_appears_though_bounds_are_less_by_now(
    file_world: World,
) -> None:
    file_world.ev.add(KIND, "text", id="1", metadata={"a": [1, 2, 3]}, boxed=True)
    later = file_world.open(metadata_values=1)
    work(later)
    assert [record.id for record in later.records()] == ["1"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"query": "x" * 8193}, r"query: has 8,193 characters; at most 8,192 .*\(query_chars\)"),
        ({"query": "alpha", "k": 1001}, r"k: requests 1,001 hits; at most 1,000 .*\(most_hits\)"),
        ({"query": "alpha", "k": 10**30}, r"\(most_hits\)"),
        ({"query": "alpha", "filter": {"a": [[[1]]]}}, "filter: 'a' is compared with"),
        ({"query": "alpha", "filter": {"a": {"b": {"c": 1}}}}, "filter: 'a': unknown operator 'b'"),
        ({"query": "alpha", "filter": {"a": 10**5000}}, "a number too large"),
        ({"query": "alpha", "filter": {"x" * 9999: {"?": 1}}}, "unknown operator"),
        ({"query": "alpha", "mode": "x" * 9999}, "unknown mode"),
    ],
)
def test_a_search_has_bounds_and_its_errors_are_short(
    memory: World, asked: dict[str, Any], words: str
) -> None:
    add_all(memory.ev, KIND, "alpha")
    with pytest.raises(InvalidArgument, match=words) as refused:
        memory.ev.search(**asked)
    assert len(str(refused.value)) < 300


def test_a_filter_nested_beyond_pythons_own_depth_is_refused(memory: World) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for filter in ({"a": deep}, {"a": [deep]}, {"a": {"in": [deep]}}, {"a": {"gt": deep}}):
        with pytest.raises(InvalidArgument, match="filter: 'a'"):
            memory.ev.search("alpha", filter=filter)


@pytest.mark.parametrize("number", [10**30, 1 << 63, -1, 1.5, True, "7", float("nan"), None])
def test_a_number_that_no_engine_has_is_refused(memory: World, number: Any) -> None:
    queue = memory.ev.queue
    for ask in (
        lambda: queue.get(number),
        lambda: queue.jobs(limit=number),
        lambda: memory.ev.records(limit=number),
        lambda: queue.claim(number),
    ):
        with pytest.raises(InvalidArgument, match="whole number"):
            ask()
    if number is not None:
        with pytest.raises(InvalidArgument, match="after must be a whole number"):
            queue.jobs(after=number)


def test_as_many_similar_records_are_found_as_a_search_may_return(file_world: World) -> None:
    ev = file_world.open(most_hits=3)
    add_all(ev, KIND, "alpha one", "alpha two", "alpha three", "alpha four")
    work(ev)
    assert sorted(hit.id for hit in ev.similar(KIND, "0", 3)) == ["1", "2", "3"]
    with pytest.raises(InvalidArgument, match="k must be"):
        ev.similar(KIND, "0", 4)
