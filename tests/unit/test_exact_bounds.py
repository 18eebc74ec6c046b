"""Where exactly input begins to be refused, value by value, and in which words."""

import sys
import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from evervec import InvalidArgument, InvalidRecord
from evervec.model.bounds import BIGGEST, check_bound, check_limit, check_seq, check_whole, shown
from evervec.model.filters import (
    Condition,
    Group,
    Wanted,
    as_json,
    comparable,
    fits_all,
    group_key,
    matches,
    parse_filter,
    read_filter,
)
from evervec.records.drafts import (
    LONGEST_ID,
    LONGEST_NAME,
    _uuid7,
    are_plain_ids,
    check_after,
    check_metadata,
    check_name,
    check_text,
    existing_ids,
    make_draft,
    read_envelope,
    record_id,
    to_json,
)
from evervec.settings import Settings

SETTINGS = Settings(
    text_chars=20, title_chars=10, metadata_bytes=40, metadata_values=5, metadata_depth=2,
    filter_conditions=3, filter_depth=1, filter_values=4, filter_chars=12,
)  # fmt: skip


def refusal(call: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises((InvalidRecord, InvalidArgument)) as refused:
        call(*args, **kwargs)
    return str(refused.value)


def draft(**options: Any) -> Any:
    return make_draft("text", options, None)


# numbers
def test_a_size_may_be_its_bound_and_no_more() -> None:
    check_bound(SETTINGS, "text_chars", 20, "text: has {} characters")
    said = refusal(check_bound, SETTINGS, "text_chars", 21, "text: has {} characters")
    assert said == "text: has 21 characters; at most 20 are allowed (text_chars)"
    big = Settings(text_chars=1000)
    assert "has 1,001 characters; at most 1,000" in refusal(
        check_bound, big, "text_chars", 1001, "has {} characters", InvalidRecord
    )


@pytest.mark.parametrize(("value", "good"), [(0, False), (1, True), (5, True), (6, False)])
def test_a_whole_number_is_within_its_range(value: int, good: bool) -> None:
    if good:
        assert check_whole("n", value, 1, 5) == value
    else:
        assert refusal(check_whole, "n", value, 1, 5) == (
            f"n must be a whole number from 1 to 5, not {value}"
        )


@pytest.mark.parametrize("value", [True, False, 2.0, "2", None])
def test_nothing_else_is_a_whole_number(value: Any) -> None:
    assert refusal(check_whole, "n", value, 0, 5).endswith(f"not {value!r}")
    assert refusal(check_limit, value).startswith("limit must be a whole number from 1 to")


def test_a_limit_is_what_engines_take() -> None:
    assert check_limit(1) == 1
    assert check_limit((1 << 31) - 1) == (1 << 31) - 1
    refusal(check_limit, 0)
    refusal(check_limit, 1 << 31)
    assert BIGGEST == (1 << 63) - 1


def test_a_condition_on_a_seq_may_be_zero_and_what_engines_take() -> None:
    assert [check_seq(value) for value in (None, 0, BIGGEST)] == [None, 0, BIGGEST]
    for value in (-1, BIGGEST + 1, True):
        said = refusal(check_seq, value)
        assert said == f"if_seq must be a whole number from 0 to {BIGGEST}, not {value!r}"


def test_a_value_is_shown_cut_short() -> None:
    assert shown("x" * 60).startswith("'xxxxx")
    assert len(shown("x" * 1000)) == 60
    assert shown(10**5000) == "a int"


@pytest.mark.parametrize(
    ("option", "good", "bad"),
    [
        ("priority", [-1000, 0, 1000], [-1001, 1001, 1.0, True, "1"]),
        ("delay", [0, 0.5, 1e10 - 2], [-0.1, 1e10, True, "1", float("nan")]),
        ("max_attempts", [1, (1 << 31) - 1], [0, 1 << 31, True, 1.0]),
        ("version", [-(1 << 63), 0, (1 << 63) - 1], [-(1 << 63) - 1, 1 << 63, True, "1"]),
        ("weight", [0, 0.5, 1], [-0.01, 1.01, True, "1"]),
        (
            "created_at",
            [-62135596800, 0, 253402300799.0],
            [-62135596801, 253402300800, True, "now"],
        ),
        (
            "updated_at",
            [-62135596800, 0, 253402300799.0],
            [-62135596801, 253402300800, True, "now"],
        ),
    ],
)
def test_an_option_has_exactly_its_range(option: str, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        assert getattr(draft(**{option: value}), option) == value
    for value in bad:
        said = refusal(draft, **{option: value})
        assert said.startswith(f"{option}: must be ")
        assert said.endswith(f"not {value!r}")


def test_what_is_not_given_is_the_default() -> None:
    made = draft()
    assert (made.priority, made.delay, made.max_attempts, made.version) == (0, 0.0, None, None)
    assert (made.weight, made.metadata, made.title, made.boxed) == (1.0, "{}", None, False)
    assert (made.created_at, made.updated_at, made.data) == (None, None, None)
    given = draft(boxed=True, created_at=datetime(1970, 1, 2, tzinfo=UTC), updated_at=5)
    assert (given.boxed, given.created_at, given.updated_at) == (True, 86400.0, 5)
    assert draft(delay=1).priority == 0
    assert isinstance(draft(weight=1).weight, float)
    assert isinstance(draft(delay=1).delay, float)


# texts and ids
def test_an_id_has_exactly_so_many_bytes() -> None:
    for good in ("x" * LONGEST_ID, "é" * (LONGEST_ID // 2)):
        assert record_id(good) == good
    for bad in ("x" * (LONGEST_ID + 1), "é" * (LONGEST_ID // 2 + 1)):
        size = len(bad.encode())
        assert refusal(record_id, bad) == (
            f"id: has {size} bytes in UTF-8; at most {LONGEST_ID} are allowed"
        )
    assert check_name("kind", "x" * LONGEST_NAME) == "x" * LONGEST_NAME
    assert refusal(check_name, "kind", "x" * (LONGEST_NAME + 1)).startswith("kind: has 257 bytes")
    assert check_name("id", "x" * 300, 300) == "x" * 300


def test_numbers_and_uuids_are_ids() -> None:
    assert record_id(7) == "7"
    made = uuid.uuid4()
    assert record_id(made) == str(made)
    most = 3 * LONGEST_ID
    assert record_id((1 << most) - 1) == str((1 << most) - 1)
    assert f"of {most + 1} bits" in refusal(record_id, 1 << most)
    assert refusal(record_id, True) == "id: must be text, not bool"
    assert "must be text, not float" in refusal(record_id, 1.5)


def test_an_id_that_is_made_up_is_a_uuid_of_version_7() -> None:
    before = time.time_ns() // 1_000_000
    made = uuid.UUID(record_id(None))
    after = time.time_ns() // 1_000_000
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert before <= made.int >> 80 <= after
    assert len({record_id(None) for _ in range(100)}) == 100


@pytest.mark.parametrize(
    ("ids", "plain"),
    [
        (["a", "b c"], True),
        (["x" * LONGEST_ID], True),
        (["x" * (LONGEST_ID + 1)], False),
        (["a", ""], False),
        (["a", " \t"], False),
        (["a", "b\0"], False),
        (["a", "é"], False),
        (["a", 1], False),
        ([], False),
    ],
)
def test_ids_that_need_no_closer_look(ids: list[Any], plain: bool) -> None:
    assert are_plain_ids(ids) is plain


def test_a_text_is_refused_by_its_part_and_place() -> None:
    assert check_text("text", "  x ") == "  x "
    assert check_text("title", "", may_be_empty=True) == ""
    assert check_text("title", " ", may_be_empty=True) == " "
    assert refusal(check_text, "text", "") == "text: is empty"
    assert refusal(check_text, "text", " \n") == "text: is empty"
    assert refusal(check_text, "text", "ab\0\0") == "text: has a NUL character at position 2"
    assert refusal(check_text, "text", 5) == "text: must be text, not int"
    said = refusal(check_text, "text", "abc\ud800")
    assert said == "text: has an unpaired surrogate at position 3; decode it as UTF-8"


def test_text_title_and_data_have_bounds_of_their_own() -> None:
    made = make_draft("x" * 20, {"title": "y" * 10}, SETTINGS, data="z" * 20)
    assert (made.text, made.title, made.data) == ("x" * 20, "y" * 10, "z" * 20)
    assert refusal(make_draft, "x" * 21, {}, SETTINGS).startswith("text: has 21 characters")
    titled = refusal(make_draft, "x", {"title": "y" * 11}, SETTINGS)
    assert titled == "title: has 11 characters; at most 10 are allowed (title_chars)"
    assert refusal(make_draft, "x", {}, SETTINGS, data="z" * 21) == (
        "data: has 21 characters; at most 20 are allowed (text_chars)"
    )
    assert refusal(make_draft, 5, {}, SETTINGS) == "text: must be text, not int"
    assert refusal(make_draft, "x", {"title": 5}, SETTINGS) == "title: must be text, not int"
    make_draft("x" * 21, {"title": "y" * 11}, None, data="z" * 21)  # it was accepted before


def test_a_list_begins_after_a_record_or_its_kind_and_id() -> None:
    assert check_after(None) is None
    longest = "x" * LONGEST_ID
    assert check_after(["note", longest]) == ("note", longest)
    for bad in ("note", ("note",), 5):
        said = refusal(check_after, bad)
        assert said == f"after must be a record, or its kind and id, not {bad!r}"
    assert refusal(check_after, ("note", "")) == "after: is empty"
    assert refusal(check_after, ("note", longest + "x")).startswith("after: has 2049 bytes")


# metadata
def test_metadata_has_exactly_its_bounds() -> None:
    assert check_metadata({"a": "x" * 32}, SETTINGS) == '{"a":"' + "x" * 32 + '"}'  # 40 bytes
    assert "metadata: has 41 bytes" in refusal(check_metadata, {"a": "x" * 33}, SETTINGS)
    assert "metadata: has 42 bytes" in refusal(check_metadata, {"a": "é" * 17}, SETTINGS)
    check_metadata({"a": "é" * 16}, SETTINGS)
    check_metadata({str(n): n for n in range(5)}, SETTINGS)
    assert "6 values or more" in refusal(check_metadata, {str(n): n for n in range(6)}, SETTINGS)
    check_metadata({"a": [1, 2, 3, 4]}, SETTINGS)
    assert "6 values" in refusal(check_metadata, {"a": [1, 2, 3, 4, 5]}, SETTINGS)
    assert "nested 3 deep" in refusal(check_metadata, {"a": {"b": {}}}, SETTINGS)
    assert "nested 3 deep" in refusal(check_metadata, {"a": [(1,)]}, SETTINGS)
    assert check_metadata({"a": {"b": {"c": "x" * 100}}}, None)  # it was accepted before


@pytest.mark.parametrize(
    "metadata", [{"a\0": 1}, {"a": "\0"}, {"a": ["\0"]}, {"a": {"b": "\0"}}, {"a": ("\0",)}]
)
def test_metadata_has_no_nul_anywhere(metadata: dict[str, Any]) -> None:
    assert refusal(check_metadata, metadata, None) == "metadata: has a NUL character"


def test_a_text_that_only_looks_like_an_escaped_nul_is_metadata() -> None:
    assert check_metadata({"a": "\\u0000"}, None) == '{"a":"\\\\u0000"}'


def test_metadata_is_refused_by_its_type() -> None:
    assert refusal(check_metadata, [1], None) == "metadata: must be a dict, not list"
    assert refusal(check_metadata, {1: 2}, None) == "metadata: keys must be text, not 1"
    assert refusal(draft, metadata=[]) == "metadata: must be a dict, not []"
    assert refusal(draft, metadata=0) == "metadata: must be a dict, not 0"
    assert draft(metadata={}).metadata == "{}"
    assert to_json("data", {"b": 1, "a": "é"}) == '{"a":"é","b":1}'
    assert refusal(to_json, "data", {"a": float("nan")}).startswith("data: is not JSON: Out of")
    assert refusal(to_json, "data", {"a": {1}}).startswith("data: is not JSON: Object of type set")
    assert "surrogates not allowed" in refusal(to_json, "data", {"a": "\ud800"})


# records of add_many
def test_an_envelope_says_what_is_wrong_with_it() -> None:
    assert read_envelope("x") == ("x", {})
    assert read_envelope({"text": "x", "id": 1}) == ("x", {"id": 1})
    assert refusal(read_envelope, {"id": 1}) == "text: is missing"
    assert refusal(read_envelope, 5) == "a record must be a dict with a text, not int"
    hinted = refusal(read_envelope, {"text": "x", "tittle": 1})
    assert hinted == "unknown record field 'tittle'; did you mean 'title'?"
    own = refusal(read_envelope, {"text": "x", "q" * 50: 1})
    assert own == f"unknown record field '{'q' * 40}'; put other fields into metadata"


def test_a_title_changes_the_hash_and_an_empty_one_does_not() -> None:
    plain, titled = draft(), draft(title="a")
    assert plain.hash == draft(title="").hash == draft(title=None).hash
    assert len(plain.hash) == 16
    assert len({plain.hash, titled.hash, draft(title="b").hash}) == 3
    moved = make_draft("b", {"title": "a"}, None), make_draft("a", {"title": "b"}, None)
    assert moved[0].hash != moved[1].hash


@pytest.mark.parametrize("given", ["ab", b"ab", {"a": 1}, 5])
def test_ids_are_a_list(given: Any) -> None:
    assert refusal(existing_ids, given) == f"ids must be a list of ids, not {given!r}"


def test_an_id_that_is_made_begins_with_the_time() -> None:
    for wait in range(40):  # until a millisecond is odd, so that its last bit counts
        before = time.time_ns() // 1_000_000
        made = _uuid7()
        assert before <= made.int >> 80 <= time.time_ns() // 1_000_000
        assert made.version == 7
        if wait > 5 and before % 2:
            break
        time.sleep(0.0007)


# filters
def test_a_filter_has_exactly_its_bounds() -> None:
    read_filter({"a": 1, "b": {"gt": 1, "lt": 2}}, SETTINGS)
    assert "has 4 conditions" in refusal(
        read_filter, {"a": 1, "b": {"gt": 1, "lt": 2, "ne": 3}}, SETTINGS
    )
    assert "has 4 conditions" in refusal(read_filter, dict.fromkeys("abcd", 1), SETTINGS)
    read_filter({"a": [1, 2, 3], "b": 4}, SETTINGS)
    assert "with 5 values" in refusal(read_filter, {"a": [1, 2, 3], "b": {"in": [4, 5]}}, SETTINGS)
    most = {"a": {"gt": 1, "lt": 2, "in": [3, 4, 5]}}
    assert "with 5 values" in refusal(read_filter, most, SETTINGS)
    read_filter({"abcdef": "abcdef"}, SETTINGS)
    assert "has 13 characters" in refusal(read_filter, {"abcdef": "abcdefg"}, SETTINGS)
    assert "has 13 characters" in refusal(read_filter, {"a": ["abcdef", "abcdef"]}, SETTINGS)
    read_filter(None, SETTINGS)
    read_filter({"or": [{"a": 1}, {"b": 2}]}, SETTINGS)  # the group counts as a condition too
    many = {"or": [{"a": 1}, {"b": 2}, {"c": 3}]}
    assert "has 4 conditions" in refusal(read_filter, many, SETTINGS)
    larger = {"or": [{"a": 1, "b": 2}, {"c": 3}]}
    assert "has 4 conditions" in refusal(read_filter, larger, SETTINGS)
    read_filter({"a": {"gt": 1}, "b": 1, "c": 2}, SETTINGS)
    beside = {"or": [{"a": 1}], "b": {"in": [1, 2, 3, 4, 5]}}
    assert "with 5 values" in refusal(read_filter, beside, SETTINGS)
    assert "has 3,001 conditions" in refusal(read_filter, {"or": [{}] * 3000}, SETTINGS)
    nested = {"not": {"not": {"a": 1}}}
    assert "is nested 2 deep; at most 1 are allowed (filter_depth)" in refusal(
        read_filter, nested, SETTINGS
    )
    beside = {"or": [{"not": {"a": 1}}], "not": {"b": 1}}
    assert "is nested 2 deep" in refusal(
        read_filter, beside, replace(SETTINGS, filter_conditions=9)
    )
    listed = {"not": {"a": {"not_in": [1, 2, 3, 4, 5]}}}
    assert "with 5 values" in refusal(read_filter, listed, SETTINGS)
    assert "has 13 characters" in refusal(read_filter, {"not": {"abcdef": "abcdefg"}}, SETTINGS)


def test_a_filter_is_read_into_conditions() -> None:
    assert parse_filter(None) == ()
    found = parse_filter({"a": 1, "b": [1, "x"], "c": {"ne": None, "in": (2,), "lte": 3}})
    assert [(c.field, c.op, c.value) for c in found if isinstance(c, Condition)] == [
        ("a", "eq", 1), ("b", "in", (1, "x")), ("c", "ne", None), ("c", "in", (2,)), ("c", "lte", 3),
    ]  # fmt: skip
    negated = parse_filter({"a": {"not_in": [1], "exists": True}, "or": [{"b": 1, "c": 2}, {}]})
    assert negated == (
        Group("not", (Condition("a", "in", (1,)),)),
        Condition("a", "ne", None),
        Group("or", (Group("and", (Condition("b", "eq", 1), Condition("c", "eq", 2))),
                     Group("and", ()))),
    )  # fmt: skip
    assert parse_filter({"or": [{"a": 1}, {"b": 2}], "c": 3}) == (
        Group("or", (Condition("a", "eq", 1), Condition("b", "eq", 2))), Condition("c", "eq", 3),
    )  # fmt: skip
    assert Condition("a", "in", (1, None, "x")).keys == {(float, 1), (str, "x")}
    assert Condition("a", "gt", 1).keys == frozenset()
    assert Condition("a", "eq", True).keys == {(bool, True)}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([1], "filter must be a dict of field to value, not [1]"),
        ({"": 1}, "filter: field names must be text, not ''"),
        ({2: 1}, "filter: field names must be text, not 2"),
        ({"\ud800": 1}, 'filter: "a field\'s name" has an unpaired surrogate'),
        ({"a": {"ne": "\ud800"}}, "filter: 'a' has an unpaired surrogate"),
        ({"a": {"gt": "\ud800"}}, "filter: 'a' has an unpaired surrogate"),
        ({"a": {"in": ["\ud800"]}}, "filter: 'a' has an unpaired surrogate"),
        ({"a": ["\ud800"]}, "filter: 'a' has an unpaired surrogate"),
        ({"a": "\ud800"}, "filter: 'a' has an unpaired surrogate"),
        ({"a": {"gt": None}}, "filter: 'a'.gt needs a number, a date or text, not None"),
        ({"a": {"lt": True}}, "filter: 'a'.lt needs a number, a date or text, not True"),
        ({"a": {"in": 5}}, "filter: 'a'.in needs a list of values, not 5"),
        ({"a": {"not_in": "x"}}, "filter: 'a'.not_in needs a list of values, not 'x'"),
        ({"a": {"exists": 1}}, "filter: 'a'.exists needs True or False, not 1"),
        ({"a": {"contains": 1}}, "filter: 'a'.contains needs text, not 1"),
        ({"or": {"a": 1}}, "filter: 'or' needs a list of filters, not {'a': 1}"),
        ({"and": []}, "filter: 'and' needs a list of filters, not []"),
        ({"not": [1]}, "filter: 'not' needs a filter, not [1]"),
        ({"not": {"or": [{"a": {"lt": None}}]}}, "filter: 'a'.lt needs a number, a date or text"),
        (
            {"a": {"like": 5}},
            "filter: 'a': unknown operator 'like'; choose one of eq, ne, in, not_in, exists, contains, gt",
        ),
        ({"a": 1 << 63}, "filter: 'a' is compared with a number too large: 9223372036854775808"),
        ({"a": -(1 << 63) - 1}, "filter: 'a' is compared with a number too large"),
        ({"a": b"x"}, "filter: 'a' is compared with b'x'; use text, a number"),
    ],
)
def test_what_is_no_filter_is_named(given: Any, said: str) -> None:
    assert refusal(parse_filter, given).startswith(said)


def test_a_filter_has_lists_in_json_in_place_of_sets() -> None:
    assert as_json({"a": {1}, "not": {"b": {"in": frozenset("x")}}}) == {
        "a": [1], "not": {"b": {"in": ["x"]}},
    }  # fmt: skip


def test_a_filter_that_json_cannot_nest_is_refused() -> None:
    deep: Any = {"a": 1}
    for _ in range(sys.getrecursionlimit()):
        deep = {"not": deep}
    assert refusal(as_json, deep) == "filter: is nested too deep"


@pytest.mark.parametrize(
    ("given", "every"),
    [
        ({}, True),
        ({"and": [{}]}, True),
        ({"or": [{}, {"a": 1}]}, True),
        ({"not": {"a": []}}, True),
        ({"not": {"or": [{"a": []}, {"b": []}]}}, True),
        ({"not": {"a": 1, "b": []}}, True),
        ({"a": 1}, False),
        ({"a": []}, False),
        ({"or": [{"a": 1}, {"a": []}]}, False),
        ({"not": {"a": 1}}, False),
        ({"not": {"a": None}}, False),
        ({"not": {"a": [1]}}, False),
        ({"not": {"or": [{"a": 1}, {"a": []}]}}, False),
        ({"not": {"and": [{}]}}, False),
    ],
    ids=str,
)
def test_a_filter_that_lets_every_record_pass_is_known(given: Any, every: bool) -> None:
    assert fits_all(parse_filter(given)) is every


def test_equality_may_be_written_out() -> None:
    assert parse_filter({"a": {"eq": 1}}) == parse_filter({"a": 1}) == (Condition("a", "eq", 1),)


def test_the_largest_numbers_can_be_filtered_by() -> None:
    for value in (-(1 << 63), (1 << 63) - 1):
        assert parse_filter({"a": value}) == (Condition("a", "eq", value),)


def test_ranges_compare_numbers_with_numbers_and_text_with_text() -> None:
    def passes(value: Any, wanted: Any) -> bool:
        return matches({"a": value}, parse_filter({"a": wanted}))

    assert passes([None, True, "b"], {"gt": "a"})
    assert not passes([None, True, 7], {"gt": "a"})
    assert passes([None, "b", 7], {"gt": 6})
    assert not passes([None, "b", True], {"gte": 0})
    assert not passes(None, {"lt": "a"})
    assert not passes(True, {"lt": "a"})


def test_values_are_told_apart_as_engines_compare_them() -> None:
    wanted = Wanted.of(["x", "\0", 1, 2.5, float("inf"), float("nan"), True, None])
    assert (wanted.texts, wanted.numbers, wanted.booleans) == (["x"], [1, 2.5], [True])
    assert wanted.absent
    assert not Wanted.of([1]).absent
    assert comparable([1, [2], {"a": 3}, None]) == [1, None]
    assert comparable({"a": 1}) == []
    assert comparable("x") == ["x"]


def test_values_are_grouped_as_filters_find_them_equal() -> None:
    equal: list[tuple[Any, Any]] = [
        (1, 1.0),
        ([1, "x"], [1.0, "x"]),
        ({"a": [1], "b": None}, {"b": None, "a": [1.0]}),
    ]
    for one, other in equal:
        assert group_key(one) == group_key(other)
    apart: list[Any] = [1, 2, True, "1", None, [], [1], [True], [2], [1, 2], [[1]], {},
                        {"a": 1}, {"a": 2}, {"b": 1}, {"a": [1]}, [["a", 1]]]  # fmt: skip
    assert len({group_key(value) for value in apart}) == len(apart)
