"""Drafts: ids, hashes and times of what is about to be saved."""

import uuid
import warnings
from datetime import UTC, datetime, timedelta, timezone

import pytest

from evervec.drafts import check_text, make_draft, read_envelope, record_id, to_json
from support.world import KIND, World


def test_an_id_is_made_up_when_none_is_given_and_sorts_by_time() -> None:
    made = [record_id(None) for _ in range(100)]
    assert len(set(made)) == 100
    for id in made:
        assert uuid.UUID(id).version == 7
    stamps = [id[:13] for id in made]
    assert stamps == sorted(stamps)


def test_ids_may_be_ints_and_uuids() -> None:
    given = uuid.uuid4()
    assert record_id(7) == "7"
    assert record_id(-(10**30)) == str(-(10**30))
    assert record_id(given) == str(given)


def test_the_hash_is_of_title_and_text_apart() -> None:
    hashes = {
        make_draft(text, {"id": "1", "title": title}, None).hash
        for text, title in (("ab", None), ("b", "a"), ("a", "b"), ("ab", "x"), ("a\nb", None))
    }
    assert len(hashes) == 5
    assert (
        make_draft("a", {"id": "1"}, None).hash
        == make_draft("a", {"id": "2", "weight": 0.1}, None).hash
    )


def test_metadata_in_any_order_is_the_same() -> None:
    one, two = ({"b": 1, "a": {"d": 2, "c": 3}}, {"a": {"c": 3, "d": 2}, "b": 1})
    assert (
        make_draft("x", {"metadata": one}, None).metadata
        == make_draft("x", {"metadata": two}, None).metadata
    )


def test_an_empty_title_is_none() -> None:
    assert make_draft("x", {"title": ""}, None).title is None


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (datetime(1970, 1, 2, tzinfo=UTC), 86400.0),
        (datetime(1970, 1, 2), 86400.0),  # noqa: DTZ001 - what a caller may give
        (datetime(1970, 1, 2, tzinfo=timezone(timedelta(hours=2))), 79200.0),
        (12, 12.0),
        (12.5, 12.5),
    ],
)
def test_times_may_be_datetimes_or_seconds(given: object, seconds: float) -> None:
    assert make_draft("x", {"created_at": given}, None).created_at == seconds


def test_a_str_subclass_is_plain_text() -> None:
    class Text(str):
        __slots__ = ()

    assert type(check_text("text", Text("x"))) is str


def test_an_envelope_is_a_text_or_a_dict() -> None:
    assert read_envelope("x") == ("x", {})
    assert read_envelope({"text": "x", "id": 1}) == ("x", {"id": 1})


def test_json_keeps_unicode_as_it_is() -> None:
    assert to_json("metadata", {"a": "é😀"}) == '{"a":"é😀"}'


def test_add_many_is_lazy_and_streams(memory: World) -> None:
    taken = []

    def records() -> object:
        for n in range(5000):
            taken.append(n)
            yield {"id": n, "text": f"text {n}"}

    tickets = memory.ev.add_many(KIND, records())  # type: ignore[arg-type]
    assert taken == []
    assert next(tickets).id == "0"
    assert len(taken) == memory.ev.settings.add_batch
    assert sum(1 for _ in tickets) == 4999
    assert memory.ev.queue.stats().pending == 5000


def test_add_many_that_nobody_iterates_warns(memory: World) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        memory.ev.add_many(KIND, [{"text": "x"}])
    assert "never iterated" in str(caught[0].message)
    assert memory.ev.records() == []


def test_add_many_takes_plain_texts(memory: World) -> None:
    tickets = list(memory.ev.add_many(KIND, ["alpha", "beta"]))
    assert len({t.id for t in tickets}) == 2
