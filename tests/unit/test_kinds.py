"""Kinds: a caller's object is validated, rendered and weighed before anything is written."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Literal, NotRequired

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from evervec import ContentChunker, InvalidArgument, InvalidRecord, Kind, Rescore, Settings
from evervec.chunking import Measure, Span
from evervec.indexes.fields import declared
from evervec.records.kinds import read_data
from evervec.stores.values import KindSpec
from support.world import World, hashes_of, held, job_of, work

DECISION = "decision"
TEMPLATE = "Type: {decision_type}\nOutcome: {outcome}"


class Decision(BaseModel):
    decision_type: str
    outcome: str = Field(min_length=2)
    quality: float = 0.5
    made_at: datetime | None = None


@dataclass
class Order:
    text: str
    total: int = 0


class Page(TypedDict):
    url: str
    body: str
    lang: NotRequired[str]


GOOD = {"decision_type": "hire", "outcome": "yes!"}


def test_a_model_is_rendered_by_its_template(memory: World) -> None:
    memory.ev.register(Kind(DECISION, model=Decision, text=TEMPLATE))
    memory.ev.add(DECISION, Decision(**GOOD), id="1")  # type: ignore[arg-type]
    memory.ev.add(DECISION, GOOD, id="2")
    for id in ("1", "2"):
        record = memory.ev.get(DECISION, id)
        assert record is not None
        assert record.text == "Type: hire\nOutcome: yes!"


def test_text_may_be_a_function_of_the_object(memory: World) -> None:
    memory.ev.register(Kind(DECISION, model=Decision, text=lambda d: d.outcome.upper()))
    memory.ev.add(DECISION, GOOD, id="1")
    record = memory.ev.get(DECISION, "1")
    assert record is not None
    assert record.text == "YES!"


def test_without_text_the_field_of_that_name_is_taken(memory: World) -> None:
    memory.ev.register(Kind("order", model=Order))
    memory.ev.add("order", Order("two apples", 3), id="1")
    memory.ev.add("order", {"text": "one pear"}, id="2")
    assert [r.text for r in memory.ev.records()] == ["two apples", "one pear"]


def test_a_typed_dict_is_validated_too(memory: World) -> None:
    memory.ev.register(Kind("page", model=Page, text="{url} {body}", metadata=["lang"]))
    memory.ev.add("page", {"url": "/a", "body": "alpha", "lang": "en"}, id="1")
    memory.ev.add("page", {"url": "/b", "body": "beta"}, id="2")
    assert [(r.text, r.metadata) for r in memory.ev.records()] == [
        ("/a alpha", {"lang": "en"}), ("/b beta", {"lang": None}),
    ]  # fmt: skip
    with pytest.raises(InvalidRecord, match="body"):
        memory.ev.add("page", {"url": "/c"}, id="3")


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"decision_type": "hire"}, "outcome"),
        ({"decision_type": "hire", "outcome": "y"}, "outcome"),
        ({"decision_type": 7, "outcome": "yes"}, "decision_type"),
        ({**GOOD, "quality": "much"}, "quality"),
        ("just text", "the record"),
        (None, "the record"),
    ],
)
def test_an_invalid_record_names_its_field_and_nothing_is_written(
    memory: World, given: Any, field: str
) -> None:
    memory.ev.register(Kind(DECISION, model=Decision, text=TEMPLATE))
    with pytest.raises(InvalidRecord, match=f"{DECISION}: {field}"):
        memory.ev.add(DECISION, given, id="1")
    assert memory.ev.records() == []
    assert memory.ev.queue.jobs() == []


def test_metadata_may_be_names_of_fields(memory: World) -> None:
    moment = datetime(2024, 1, 2, tzinfo=UTC)
    memory.ev.register(
        Kind(DECISION, model=Decision, text=TEMPLATE, metadata=["decision_type", "made_at"])
    )
    memory.ev.add(DECISION, {**GOOD, "made_at": moment}, id="1", metadata={"by": "me"})
    record = memory.ev.get(DECISION, "1")
    assert record is not None
    assert record.metadata == {
        "decision_type": "hire", "made_at": moment.isoformat(), "by": "me",
    }  # fmt: skip


def test_metadata_may_be_a_function(memory: World) -> None:
    kind = Kind(DECISION, model=Decision, text=TEMPLATE, metadata=lambda d: {"n": len(d.outcome)})
    memory.ev.register(kind)
    memory.ev.add(DECISION, GOOD, id="1")
    record = memory.ev.get(DECISION, "1")
    assert record is not None
    assert record.metadata == {"n": 4}


@pytest.mark.parametrize("bad", [5, "text", ["a"]])
def test_metadata_of_the_wrong_type_is_refused_by_a_kind_with_its_own(
    memory: World, bad: Any
) -> None:
    memory.ev.register(Kind(DECISION, model=Decision, text=TEMPLATE, metadata=["quality"]))
    with pytest.raises(InvalidRecord, match="metadata"):
        memory.ev.add(DECISION, GOOD, id="1", metadata=bad)
    assert memory.ev.records() == []


@pytest.mark.parametrize(
    ("weight", "expected"),
    [("quality", 0.5), (0.25, 0.25), (lambda d: d.quality / 2, 0.25), (None, 1.0)],
)
def test_weight_may_be_a_field_a_number_or_a_function(
    memory: World, weight: Any, expected: float
) -> None:
    memory.ev.register(Kind(DECISION, model=Decision, text=TEMPLATE, weight=weight))
    memory.ev.add(DECISION, GOOD, id="1")
    memory.ev.add(DECISION, GOOD, id="2", weight=0.75)
    assert [r.weight for r in memory.ev.records()] == [expected, 0.75]


def test_a_weight_outside_its_bounds_is_refused(memory: World) -> None:
    memory.ev.register(Kind(DECISION, model=Decision, text=TEMPLATE, weight="quality"))
    with pytest.raises(InvalidRecord, match="weight"):
        memory.ev.add(DECISION, {**GOOD, "quality": 3}, id="1")
    assert memory.ev.records() == []


@pytest.mark.parametrize(
    "options",
    [
        {"text": "{nothing}"},
        {"text": TEMPLATE, "metadata": ["nothing"]},
        {"text": TEMPLATE, "weight": "nothing"},
    ],
    ids=str,
)
def test_a_kind_that_uses_a_field_its_model_lacks_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="nothing"):
        Kind(DECISION, model=Decision, **options)


def test_a_model_without_text_needs_a_template() -> None:
    with pytest.raises(InvalidArgument, match="'text'"):
        Kind(DECISION, model=Decision)


def test_a_template_without_a_model_takes_dicts(memory: World) -> None:
    memory.ev.register(Kind("page", text="{url}: {body}", metadata=["url"]))
    memory.ev.add("page", {"url": "/a", "body": "alpha"}, id="1")
    record = memory.ev.get("page", "1")
    assert record is not None
    assert (record.text, record.metadata) == ("/a: alpha", {"url": "/a"})
    with pytest.raises(InvalidRecord, match="body"):
        memory.ev.add("page", {"url": "/a"}, id="2")


def test_add_many_takes_models_and_dicts_with_ids(memory: World) -> None:
    class Identified(Decision):
        id: int

    memory.ev.register(Kind(DECISION, model=Identified, text=TEMPLATE))
    given = [Identified(id=7, **GOOD), {"id": 8, **GOOD}]  # type: ignore[arg-type]
    assert [t.id for t in memory.ev.add_many(DECISION, given)] == ["7", "8"]


def test_a_dict_may_bring_an_id_that_its_model_does_not_have(memory: World) -> None:
    memory.ev.register(Kind(DECISION, model=Decision, text=TEMPLATE))
    assert memory.ev.add(DECISION, {"id": "mine", **GOOD}).id == "mine"


def test_add_many_tells_the_position_after_saving_what_came_before(memory: World) -> None:
    memory.ev.register(Kind(DECISION, model=Decision, text=TEMPLATE))
    tickets = memory.ev.add_many(DECISION, [{"id": 1, **GOOD}, {"id": 2, **GOOD}, {"id": 3}])
    assert [next(tickets).id, next(tickets).id] == ["1", "2"]
    with pytest.raises(InvalidRecord, match=r"position 2.*decision_type") as caught:
        next(tickets)
    assert caught.value.position == 2
    assert len(memory.ev.records()) == 2


def test_the_object_is_kept_as_it_was_given(memory: World) -> None:
    """For a backfill that renders it by a changed template."""
    memory.ev.register(Kind(DECISION, model=Decision, text=TEMPLATE))
    memory.ev.add(DECISION, GOOD, id="1")
    kind = Kind(DECISION, model=Decision, text=TEMPLATE)
    data = kind.draft(GOOD, {"id": "1"}, memory.ev.settings).data
    assert data is not None
    assert json.loads(data) == {**GOOD, "quality": 0.5, "made_at": None}


def test_a_kind_has_its_own_chunker(memory: World) -> None:
    memory.ev.register(Kind("long", chunker=ContentChunker(16)))
    text = "one two three four five six seven eight"
    memory.ev.add("long", text, id="1")
    memory.ev.add("short", text, id="1")
    work(memory.ev)
    assert held(memory.ev)["default", "long", "1"] == hashes_of(text, size=16)
    assert held(memory.ev)["default", "short", "1"] == hashes_of(text)


class Lines:
    """A chunker that only code can make."""

    spec = "lines"

    def split(self, text: str) -> list[Span]:
        if "bad" in text:
            raise ValueError("cannot cut this")
        middle = text.index("\n")
        return [(0, middle), (middle + 1, len(text))]


def test_a_chunker_of_the_callers_own_is_used_where_it_is_registered(memory: World) -> None:
    memory.ev.register(Kind("lines", chunker=Lines()))
    memory.ev.add("lines", "alpha\nbeta", id="1")
    assert memory.ev.pipeline.served.refresh()
    assert memory.tenant("default").pipeline.claim(1) == []
    work(memory.ev)
    assert memory.embedder.texts == ["alpha", "beta"]


def test_a_chunker_that_raises_fails_its_record_alone(memory: World) -> None:
    memory.ev.register(Kind("lines", chunker=Lines()))
    memory.ev.add("lines", "bad\ntext", id="1")
    memory.ev.add("lines", "good\ntext", id="2")
    work(memory.ev)
    assert "cannot cut this" in (job_of(memory.ev, "1", "lines").error or "")
    assert [h.id for h in memory.ev.search("good", mode="semantic")] == ["2"]


def test_only_kinds_can_be_registered(memory: World) -> None:
    with pytest.raises(InvalidArgument, match="Kind"):
        memory.ev.register("decision")  # type: ignore[arg-type]


# ---- what others have to know of a kind


class Words:
    """A chunker of the caller's own."""

    spec = "words"

    def split(self, text: str) -> list[Span]:
        return [(0, len(text))]


class Renamed(ContentChunker):
    """One that only bears the name of a known chunker."""


def test_a_kind_says_how_it_cuts_and_whether_that_needs_its_code() -> None:
    usual = ContentChunker(64)
    assert Kind("k").spec(usual) == KindSpec(usual.spec, app=False)
    known = ContentChunker(32)
    assert Kind("k", chunker=known).spec(usual) == KindSpec(known.spec, app=False)
    assert Kind("k", chunker=Words()).spec(usual) == KindSpec("words", app=True)
    assert Kind("k", chunker=Renamed(32)).spec(usual) == KindSpec(known.spec, app=True)
    assert Kind("k", load=lambda id: id).spec(usual) == KindSpec(usual.spec, app=True)
    counted = ContentChunker(32, measure=Measure("letters", len))
    assert Kind("k", chunker=counted).spec(usual) == KindSpec(counted.spec, app=True)


class Shout:
    """Something else that can be called."""

    def __call__(self, value: Any) -> str:
        return str(value).upper()


class Whisper(Shout):
    pass


def test_a_kind_is_known_by_how_it_renders_its_text() -> None:
    kinds = [
        Kind("k"),
        Kind("k", text="{a}"),
        Kind("k", text="{b}"),
        Kind("k", text=lambda v: f"one {v}"),
        Kind("k", text=lambda v: f"two {v}"),
        Kind("k", text=lambda v: v.upper()),
        Kind("k", text=lambda v: v.lower()),
        Kind("k", text=lambda v: (lambda: v + 1)()),  # noqa: PLC3002 - code within code
        Kind("k", text=lambda v: (lambda: v + 2)()),  # noqa: PLC3002
        Kind("k", text=Shout()),
        Kind("k", text=Whisper()),
    ]
    assert len({kind.fingerprint() for kind in kinds}) == len(kinds)
    assert Kind("k", text=Shout()).fingerprint() == Kind("other", text=Shout()).fingerprint()
    assert Kind("k", text="{a}").fingerprint() == Kind("k", text="{a}", weight=0.5).fingerprint()


def test_only_what_was_rendered_is_kept_beside_its_text() -> None:
    settings = Settings()
    assert Kind("k").draft({"text": "x"}, {}, settings).data is None
    assert Kind("k", text="{a}").draft({"a": "x"}, {}, settings).data == '{"a":"x"}'
    assert Kind("k", text=lambda v: v).draft("x", {}, settings).data is None
    assert (
        Kind("k", model=Order).draft(Order("x", 2), {}, settings).data == '{"text":"x","total":2}'
    )


def test_fields_within_fields_are_those_of_a_template() -> None:
    for template in ("{total.real}", "{total[0]}", "{total[0].x}", "{total:>5} {text}"):
        Kind("k", model=Order, text=template)
    with pytest.raises(InvalidArgument, match=r"uses a field 'sum' .*; it has text, total"):
        Kind("k", model=Order, text="{sum[0]}")


def test_age_takes_days() -> None:
    assert Rescore(days=0.5).days == 0.5
    for days in (0, -1.0, float("nan")):
        with pytest.raises(
            InvalidArgument, match=f"days must be more than 0, or None, not {days!r}"
        ):
            Rescore(days=days)


@dataclass
class Leaf:
    title: str


@dataclass
class Chapter(Leaf):
    body: str


def test_fields_that_a_dataclass_inherits_are_its_own() -> None:
    kind = Kind("k", model=Chapter, text="{title}: {body}")
    assert kind.draft(Chapter("One", "alpha"), {}, Settings()).text == "One: alpha"


def test_an_object_that_is_no_json_is_refused_as_data() -> None:
    with pytest.raises(InvalidRecord, match=r"^data: is not JSON"):
        Kind("k", text=lambda v: v["a"]).draft({"a": "x", "b": object()}, {}, Settings())


@dataclass
class Numbered:
    id: str
    text: str


def test_a_model_with_an_id_names_its_record() -> None:
    kind, settings = Kind("k", model=Numbered), Settings()
    assert kind.draft(Numbered("7", "x"), {}, settings).id == "7"
    assert kind.draft(Numbered("7", "x"), {"id": "8"}, settings).id == "8"
    with pytest.raises(InvalidArgument, match=r"^kind: is empty"):
        Kind("")


class Address(BaseModel):
    street: str


class Person(BaseModel, extra="forbid"):
    text: str
    address: Address


def test_an_id_beside_a_strict_model_is_the_records(memory: World) -> None:
    kind, settings = Kind("k", model=Person), Settings()
    person = {"text": "x", "address": {"street": "s"}}
    assert kind.draft({"id": "7", **person}, {}, settings).id == "7"
    with pytest.raises(InvalidRecord, match=r"^k: address\.street: "):
        kind.draft({"text": "x", "address": {"street": 7}}, {}, settings)


def test_add_many_holds_objects_to_the_bounds_of_records(tmp_path: Path) -> None:
    world = World(("memory", "sqlite"), tmp_path, text_chars=30)
    world.ev.register(Kind("k", model=Numbered))
    assert [ticket.id for ticket in world.ev.add_many("k", [Numbered("7", "x")])] == ["7"]
    with pytest.raises(InvalidRecord, match="text: has 31 characters"):
        list(world.ev.add_many("k", [Numbered("8", "x" * 31)]))
    world.close()


def test_a_model_may_have_no_fields_at_all() -> None:
    assert Kind("k", model=int, text=str).draft(5, {}, Settings()).text == "5"
    with pytest.raises(InvalidArgument, match="it has none"):
        Kind("k", model=int, text="{a}")


@dataclass
class Task:
    text: str
    priority: int
    title: str


def test_fields_of_a_model_are_not_taken_for_options() -> None:
    made = Kind("k", model=Task).draft(Task("x", 7, "T"), {}, Settings())
    assert (made.priority, made.title) == (0, None)
    plain = Kind("k").draft({"text": "x", "priority": 7, "title": "T"}, {}, Settings())
    assert (plain.priority, plain.title) == (7, "T")


def test_code_of_the_same_name_in_another_module_is_another() -> None:
    def shout(module: str) -> Any:
        return type("Shout", (Shout,), {"__module__": module})()

    prints = {Kind("k", text=shout(module)).fingerprint() for module in ("a", "b")}
    assert len(prints) == 2


def test_a_record_without_its_text_is_refused_by_name() -> None:
    with pytest.raises(InvalidRecord, match=r"^k: text: is missing"):
        Kind("k").draft({"title": "T"}, {}, Settings())


def test_what_was_rendered_is_bounded_as_a_record_is() -> None:
    with pytest.raises(InvalidRecord, match=r"^data: has 29 characters"):
        Kind("k", text="{a}").draft({"a": "x", "b": "y" * 13}, {}, Settings(text_chars=20))


def test_the_same_code_is_known_again_when_it_is_compiled_again() -> None:
    def text(value: Any) -> Any:
        return (lambda: value)()  # noqa: PLC3002 - code within code

    code = text.__code__
    inner = tuple(c.replace() if isinstance(c, CodeType) else c for c in code.co_consts)
    again = FunctionType(code.replace(co_consts=inner), {})
    assert Kind("k", text=again).fingerprint() == Kind("k", text=text).fingerprint()


class Typed(BaseModel):
    text: str
    agent: str | None = None
    confidence: float = 0.0
    years: list[int] = []
    urgent: bool = False
    level: Literal["low", "high"] = "low"
    since: datetime | None = None


def test_the_types_of_index_fields_come_from_the_model() -> None:
    fields = ["agent", "confidence", "years", "urgent", "level", "since", "more"]
    assert Kind("note", model=Typed, index_fields=fields).field_types == {
        "agent": "text",
        "confidence": "number",
        "years": "number",
        "urgent": "boolean",
        "level": "text",
        "since": "text",
        "more": "text",
    }
    given = Kind("note", index_fields={"agent": str, "confidence": float, "urgent": bool})
    assert given.field_types == {"agent": "text", "confidence": "number", "urgent": "boolean"}
    assert Kind("note").field_types is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("agent", "a list of names"),
        (3, "a list of names"),
        ([""], "names must be text"),
        ([3], "names must be text"),
        (["a\0"], "names must be text"),
        (["\ud800"], "names must be text"),
        ({"agent": "text"}, "'agent' must be of type"),
    ],
)
def test_index_fields_that_are_no_fields_are_refused(given: Any, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        Kind("note", index_fields=given)


def test_index_fields_are_saved_for_other_processes(world: World) -> None:
    world.ev.register(Kind("note", index_fields={"agent": str, "confidence": float}))
    world.ev.register(Kind("other", index_fields={"agent": bool, "year": int}))
    world.ev.register(Kind("note"))  # says nothing of them
    assert declared(world.ev.store, ["note", "other", "third"]) == {
        "agent": "text",
        "confidence": "number",
        "year": "number",
    }
    world.ev.register(Kind("note", index_fields=()))
    assert declared(world.ev.store, ["note"]) == {}


def test_data_of_a_kind_that_is_not_registered_is_plain() -> None:
    assert read_data({}, "note", '{"a": 1}') == {"a": 1}
