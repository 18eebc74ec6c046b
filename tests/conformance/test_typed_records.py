"""The object of a kind comes back as it was added."""

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, NotRequired
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, computed_field
from typing_extensions import TypedDict

from evervec import InvalidArgument, Kind, Settings
from support.world import KIND, World, claim_one, work


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Part(BaseModel):
    name: str
    price: Decimal
    made: date | None = None


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    text: str
    placed_at: datetime = Field(alias="placedAt")
    takes: timedelta = timedelta()
    colour: Colour = Colour.RED
    owner: UUID | None = None
    parts: list[Part] = []
    sizes: dict[str, tuple[int, ...]] = {}

    @computed_field  # type: ignore[prop-decorator]
    @property
    def count(self) -> int:
        return len(self.parts)


@dataclass
class Event:
    text: str
    at: datetime
    tags: set[str] = field(default_factory=set)
    part: Part | None = None


class Page(TypedDict):
    text: str
    seen: date
    parts: NotRequired[list[Part]]


AT = datetime(2024, 2, 29, 12, 30, tzinfo=UTC)
PART = Part(name="leaf 🍃", price=Decimal("1.10"), made=date(2024, 2, 29))
VALUES: dict[str, tuple[Any, Any]] = {
    "order": (
        Order,
        Order(
            text="green tea", placedAt=AT, takes=timedelta(days=1, microseconds=5),
            colour=Colour.BLUE, owner=UUID(int=7), parts=[PART], sizes={"a": (1, 2)},
        ),
    ),
    "event": (Event, Event("green tea", AT, {"a", "b"}, PART)),
    "page": (Page, {"text": "green tea", "seen": date(2024, 2, 29), "parts": [PART]}),
}  # fmt: skip


def test_what_went_in_comes_back_equal(world: World) -> None:
    ev = world.ev
    for kind, (model, value) in VALUES.items():
        ev.register(Kind(kind, model=model))
        ev.add(kind, value, id="1")
    work(ev)
    for kind, (_, value) in VALUES.items():
        record = ev.get(kind, "1")
        assert record is not None
        (listed,) = ev.records(kind)
        (hit,) = ev.search("green tea", kind=kind)
        for found in (record, listed, hit):
            assert found.data == value
            assert type(found.data) is type(value)
        (other,) = ev.search("green tea", kind=kind, fields=["data"])
        assert (other.data, other.text) == (value, "")
    assert ev.search("green tea", fields=["text"])[0].data is None
    assert ev.similar(kind, "1") == []


def test_a_dict_comes_back_without_the_model(world: World) -> None:
    ev = world.ev
    ev.register(Kind("tea", text="{name}: {size}"))
    ev.add("tea", {"name": "assam", "size": 3, "deep": {"x": [1, None]}}, id="1")
    ev.add(KIND, "plain text", id="1")
    list(ev.add_many(KIND, [{"id": "2", "text": "in a dict"}]))
    work(ev)
    data = {"name": "assam", "size": 3, "deep": {"x": [1, None]}}
    record, plain = ev.get("tea", "1"), ev.get(KIND, "1")
    assert record is not None
    assert plain is not None
    assert (record.data, plain.data) == (data, None)
    assert [r.data for r in ev.records(KIND)] == [None, None]
    (hit,) = ev.search("assam", mode="text")
    assert hit.data == data
    hit.data["deep"]["x"].append(2)  # is the caller's own
    assert ev.search("assam", mode="text")[0].data == data


def test_data_that_no_longer_fits_the_model_comes_back_as_a_dict(world: World) -> None:
    class Narrow(BaseModel):
        text: str
        size: int

    class Broken(BaseModel):
        text: str

        def model_post_init(self, _: Any) -> None:
            raise KeyError("a fault of the model's own code")

    ev = world.ev
    ev.register(Kind("tea", model=Page))
    ev.add("tea", {"text": "assam", "seen": "2024-02-29"}, id="1")
    for model in (Narrow, Broken):
        ev.register(Kind("tea", model=model))
        record = ev.get("tea", "1")
        assert record is not None
        assert record.data == {"text": "assam", "seen": "2024-02-29"}
        assert ev.search("assam", mode="text")[0].data == record.data


def test_a_change_of_the_data_alone_is_shown(world: World) -> None:
    ev = world.ev
    ev.register(Kind("tea", text="{name}"))
    for size in (1, 2):
        ev.add("tea", {"name": "assam", "size": size}, id="1")
        assert ev.search("assam", mode="text")[0].data == {"name": "assam", "size": size}


def test_hits_with_too_much_data_are_refused(world: World) -> None:
    ev = world.open(hit_data_chars=100)
    ev.register(Kind("tea", text="{name}"))
    for id in ("1", "2"):
        ev.add("tea", {"name": "assam", "more": "x" * 50}, id=id)
    assert len(ev.search("assam", 1, mode="text")) == 1
    with pytest.raises(InvalidArgument, match=r"fewer hits.*\(hit_data_chars\)"):
        ev.search("assam", mode="text")
    assert len(ev.search("assam", mode="text", fields=["text"])) == 2


def test_a_boxed_job_can_be_looked_at_and_nothing_changes(world: World) -> None:
    ev = world.ev
    job_id = ev.add(KIND, "hidden", id="1", title="T", metadata={"a": 1}, boxed=True).job_id
    before = ev.queue.get(job_id)
    content = ev.queue.peek(job_id)
    assert content is not None
    assert (content.title, content.text, content.metadata) == ("T", "hidden", {"a": 1})
    assert ev.queue.get(job_id) == before
    assert ev.get(KIND, "1") is None
    with pytest.raises(InvalidArgument, match="does not exist"):
        ev.of("other").queue.peek(job_id)
    job = claim_one(ev)
    assert ev.queue.peek(job_id) == content  # also while a worker has it
    ev.queue.finish(job, ev.queue.content(job))
    found = ev.queue.peek(job_id)
    assert found is not None
    assert found.text == "hidden"
    ev.delete(KIND, "1")
    assert ev.queue.peek(job_id) is None


def test_a_job_that_loads_its_row_has_nothing_to_look_at(world: World) -> None:
    ev = world.ev
    asked: list[str] = []
    ev.register(Kind("row", load=asked.append))
    job_id = ev.queue.enqueue("row", "1").job_id
    assert job_id is not None
    with pytest.raises(InvalidArgument, match="no content yet"):
        ev.queue.peek(job_id)
    assert asked == []


_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
_PART = st.builds(
    Part, name=_TEXT, price=st.decimals(allow_nan=False, allow_infinity=False), made=st.dates()
)
_MOMENT = st.datetimes(timezones=st.just(UTC))


@given(
    st.builds(Event, _TEXT, _MOMENT, st.sets(_TEXT), st.none() | _PART)
    | st.builds(
        Order, text=_TEXT, placedAt=_MOMENT, colour=st.sampled_from(Colour),
        owner=st.none() | st.uuids(), parts=st.lists(_PART, max_size=3),
        sizes=st.dictionaries(_TEXT, st.lists(st.integers()).map(tuple), max_size=3),
    )
)  # fmt: skip
def test_every_object_survives_its_json(value: Any) -> None:
    kind = Kind("x", model=type(value), text=lambda _: "text")
    data = kind.draft(value, {}, Settings()).data
    assert data is not None
    assert kind.read(data) == value
    assert TypeAdapter(type(value)).validate_json(data) == value


def test_hits_that_are_too_long_together_are_refused(world: World) -> None:
    """Titles, texts, metadata, objects and explanations count, as far as they are asked for."""
    ev = world.open(hit_chars=400)
    for id in ("1", "2", "3"):
        ev.add(KIND, "assam", id=id, title="t" * 60, metadata={"more": "x" * 100})
    assert len(ev.search("assam", 2, mode="text")) == 2
    with pytest.raises(InvalidArgument, match=r"fewer hits.*at most 400 are allowed \(hit_chars\)"):
        ev.search("assam", mode="text")
    assert len(ev.search("assam", mode="text", fields=["text"])) == 3
    with pytest.raises(InvalidArgument, match="hit_chars"):
        ev.search("assam", mode="text", fields=["text"], explain=True)
