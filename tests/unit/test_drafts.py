"""Drafts: ids, hashes and times of what is about to be saved."""

import uuid
import warnings
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from evervec import InvalidArgument, InvalidRecord, Kind
from evervec.records.drafts import check_text, make_draft, read_envelope, record_id, to_json
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


@pytest.mark.parametrize(
    ("title", "hash"),
    [(None, "706860d9e8c7ee1c65261bc1e5b75631"), ("a title", "1187af55badb87d360f832d4a0b5ee7f")],
)
def test_the_hash_is_the_same_in_every_release(title: str | None, hash: str) -> None:
    """With another one every record would be embedded again after an upgrade."""
    assert make_draft("a text", {"title": title}, None).hash.hex() == hash


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
    assert check_text("text", Text("x")) == "x"


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
    assert str(caught[0].message).startswith(f"add_many({KIND!r}, …) was never iterated")
    assert caught[0].category is RuntimeWarning
    assert memory.ev.records() == []


def test_add_many_takes_plain_texts(memory: World) -> None:
    tickets = list(memory.ev.add_many(KIND, ["alpha", "beta"]))
    assert len({t.id for t in tickets}) == 2


def test_add_many_counts_positions_through_all_of_its_batches(tmp_path: Path) -> None:
    world = World(("memory", "sqlite"), tmp_path, add_batch=2)
    with pytest.raises(InvalidRecord) as refused:
        list(world.ev.add_many(KIND, [*"abcde", "", "g"]))
    assert refused.value.position == 5
    assert len(world.ev.records()) == 5
    world.close()


def test_add_many_names_a_kind_that_cannot_be_one(memory: World) -> None:
    with pytest.raises(InvalidArgument, match=r"^kind: is empty"):
        memory.ev.add_many("", ["alpha"])
    with pytest.raises(InvalidArgument, match=r"^kind: is empty"):
        memory.ev.add("", "alpha")


def test_a_kind_without_code_takes_the_same_dicts_as_one_that_nobody_registered(
    memory: World,
) -> None:
    memory.ev.register(Kind("page", weight=0.5))
    (ticket,) = memory.ev.add_many("page", [{"id": 7, "text": "alpha", "title": "T"}])
    record = memory.ev.get("page", ticket.id)
    assert record is not None
    assert (record.id, record.title, record.weight) == ("7", "T", 0.5)
    with pytest.raises(InvalidRecord, match="unknown record field 'colour'"):
        list(memory.ev.add_many("page", [{"text": "alpha", "colour": "red"}]))


class Odd(dict[str, int]):
    """What an encoder cannot go through, and says nothing about."""

    def items(self) -> Any:
        raise ValueError


def test_metadata_that_is_no_json_says_why_as_far_as_that_is_known() -> None:
    with pytest.raises(InvalidRecord, match=r"^metadata: is not JSON: Object of type object"):
        make_draft("x", {"metadata": {"a": object()}}, None)
    with pytest.raises(InvalidRecord, match=r"^metadata: is not JSON: ValueError$"):
        make_draft("x", {"metadata": {"a": Odd(b=1)}}, None)
