"""Data frames as input of `add_many`."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict

import evervec
from evervec import Evervec, InvalidRecord, Kind, SettingsError
from evervec.records.frames import read_records

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
ROWS = {
    "id": ["a", "b"],
    "text": ["Tea", "Coffee"],
    "metadata": [{"topic": "plants"}, {"topic": "drinks"}],
    "weight": [0.5, None],
    "created_at": [NOON, NOON],
}


@pytest.fixture
def ev() -> Iterator[Evervec]:
    with evervec.open("memory:", embedder="noop") as made:
        yield made


def relation() -> duckdb.DuckDBPyRelation:
    return duckdb.connect().sql(
        "select id, text, map {'topic': topic} metadata, weight, '2024-03-01 12:00Z'::timestamptz "
        "created_at from (values ('a', 'Tea', 'plants', 0.5::double), "
        "('b', 'Coffee', 'drinks', null)) made(id, text, topic, weight)"
    )


FRAMES = {
    "pandas": lambda: pd.DataFrame(ROWS),
    "polars": lambda: pl.DataFrame(ROWS),
    "pyarrow": lambda: pa.table(ROWS),
    "reader": lambda: pa.table(ROWS).to_reader(),
    "duckdb": relation,
}


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
def test_the_rows_of_a_frame_become_records(ev: Evervec, make: Any) -> None:
    assert [ticket.id for ticket in ev.add_many("note", make())] == ["a", "b"]
    tea, coffee = ev.records()
    assert (tea.text, tea.metadata, tea.weight, tea.created_at) == (
        "Tea", {"topic": "plants"}, 0.5, NOON,
    )  # fmt: skip
    assert (coffee.text, coffee.metadata, coffee.weight) == ("Coffee", {"topic": "drinks"}, 1.0)


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
def test_nothing_is_saved_of_a_frame_with_an_unknown_column(ev: Evervec, make: Any) -> None:
    frame = pa.table(make()).append_column("titel", pa.array([None, "x"]))
    with pytest.raises(InvalidRecord, match="unknown record field 'titel'; did you mean 'title'"):
        list(ev.add_many("note", frame))
    assert ev.count() == 0


def test_records_can_be_added_again_from_their_own_tables(ev: Evervec) -> None:
    ev.add(
        "note", "Tea", id="a", title="T", metadata={"deep": {"list": [1, "x", None]}}, weight=0.2
    )
    ev.add("note", "Coffee", id="b", metadata={"deep": "other"})
    names = ["id", "text", "title", "metadata", "weight", "created_at", "updated_at"]
    for frame in (
        ev.records().to_arrow().select(names),
        pl.from_arrow(ev.records().to_arrow().select(names)),
    ):
        assert not any(ticket.enqueued for ticket in ev.add_many("note", frame))
        list(ev.add_many("copy", frame))
    copied = {record.id: record for record in ev.records("copy")}
    for record in ev.records("note"):
        copy = copied[record.id]
        assert (copy.text, copy.title, copy.metadata, copy.weight, copy.created_at) == (
            record.text, record.title, record.metadata, record.weight, record.created_at,
        )  # fmt: skip


def test_the_index_of_pandas_is_left_out_unless_it_has_a_name() -> None:
    frame = pd.DataFrame({"id": ["a", "b", "c"], "text": ["x", "y", "z"]})
    frame = frame.sort_values("id", ascending=False)
    assert next(iter(read_records(frame))) == {"id": "c", "text": "z"}
    assert next(iter(read_records(frame.set_index("id")))) == {"id": "c", "text": "z"}


def test_a_large_batch_is_read_in_portions() -> None:
    made = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal made
        for _ in range(3):
            made += 1
            yield pa.record_batch({"text": [str(n) for n in range(5000)]})

    schema = pa.schema([("text", pa.string())])
    rows = iter(read_records(pa.RecordBatchReader.from_batches(schema, batches())))
    assert [next(rows)["text"] for _ in range(5000)] == [str(n) for n in range(5000)]
    assert made == 1
    assert len(list(rows)) == 10000


def test_values_keep_their_types() -> None:
    nested = pa.struct([("map", pa.map_(pa.string(), pa.int64())), ("none", pa.string())])
    frame = pa.table(
        {
            "metadata": pa.array([{"map": [("a", 1)], "none": None}, None], nested),
            "list": pa.array([[{"map": [], "none": "x"}, None], []], pa.list_(nested)),
            "time": pa.array([1, None], pa.timestamp("ns", "UTC")),
            "kind": pa.array(["x", "y"]).dictionary_encode(),
            "flag": [True, False],
        }
    )
    one, two = read_records(frame, Kind("k", text="{kind}"))
    assert one == {
        "metadata": {"map": {"a": 1}},
        "list": [{"map": {}, "none": "x"}, None],
        "time": datetime(1970, 1, 1, tzinfo=UTC),
        "kind": "x",
        "flag": True,
    }
    assert two == {"list": [], "kind": "y", "flag": False}


def test_a_frame_without_columns_has_rows_without_a_text(ev: Evervec) -> None:
    assert list(ev.add_many("note", pd.DataFrame())) == []
    with pytest.raises(InvalidRecord, match="text: is missing") as raised:
        list(ev.add_many("note", pd.DataFrame(index=pd.RangeIndex(3))))
    assert raised.value.position == 0


def test_two_columns_of_one_name_are_refused(ev: Evervec) -> None:
    frame = pa.table([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    with pytest.raises(InvalidRecord, match="2 columns 'text': rename them"):
        list(ev.add_many("note", frame))


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("metadata", "no JSON", "metadata: must be a dict, not"),
        ("metadata", "[" * 100_000, "metadata: must be a dict, not"),
        ("metadata", "[1]", "metadata: must be a dict, not"),
        ("id", 1.5, "id: must be text, not float"),
        ("weight", float("nan"), "weight: must be a number from 0 to 1, not nan"),
        ("text", b"bytes", "text: must be text, not bytes"),
    ],
)
def test_a_bad_value_is_refused_with_its_position(
    ev: Evervec, name: str, value: Any, error: str
) -> None:
    rows: dict[str, list[Any]] = {"id": ["a", "b"], "text": ["x", "y"], name: [None, value]}
    if name == "text":
        rows["text"] = [b"a", value]
    with pytest.raises(InvalidRecord, match=error) as raised:
        list(ev.add_many("note", pa.table(rows)))
    assert raised.value.position == (0 if name == "text" else 1)
    assert ev.count() == raised.value.position


def test_a_series_of_texts_is_read_as_texts(ev: Evervec) -> None:
    for series in (pl.Series(["x", "y"]), pd.Series(["x", "y"])):
        assert len(list(ev.add_many("note", series))) == 2
    assert {record.text for record in ev.records()} == {"x", "y"}


class Decision(BaseModel):
    outcome: str
    reason: str | None
    agent: str = "nobody"
    year: int | None = None


@dataclass
class Visit:
    outcome: str
    reason: str | None
    agent: str = "nobody"


class Order(TypedDict):
    outcome: str
    reason: str | None


@pytest.mark.parametrize("model", [Decision, Visit, Order])
def test_columns_are_the_fields_of_a_kind_with_a_model(ev: Evervec, model: Any) -> None:
    ev.register(Kind("typed", model=model, text="{outcome}", metadata=["reason"]))
    rows = [
        {"id": UUID(int=7).hex, "outcome": "yes", "reason": None, "agent": None},
        {"id": "b", "outcome": "no", "reason": "late", "agent": "me"},
    ]
    frame = pl.DataFrame(rows) if model is not Order else pl.DataFrame(rows).drop("agent")
    list(ev.add_many("typed", frame))
    one, two = ev.records()
    assert (one.text, one.metadata) == ("yes", {"reason": None})
    assert (two.text, two.metadata) == ("no", {"reason": "late"})
    with pytest.raises(InvalidRecord, match="outcome"):
        list(ev.add_many("typed", pl.DataFrame({"id": ["c"], "outcome": [None], "reason": ["x"]})))


def test_the_model_decides_about_other_columns(ev: Evervec) -> None:
    class Strict(BaseModel):
        model_config = ConfigDict(extra="forbid")
        text: str

    ev.register(Kind("strict", model=Strict))
    with pytest.raises(InvalidRecord, match="other: Extra inputs are not permitted"):
        list(ev.add_many("strict", pl.DataFrame({"text": ["x"], "other": [1]})))


def test_without_pyarrow_the_error_names_the_extra(
    ev: Evervec, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = pl.DataFrame({"text": ["x"]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SettingsError, match=r"needs the package pyarrow.*'evervec\[parquet\]'"):
        list(ev.add_many("note", frame))
