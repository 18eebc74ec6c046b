"""Lists of records and hits: as tables, on a terminal and in a notebook."""

import copy
import json
import pickle
import sys
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest

import evervec
from evervec import Hit, Hits, Record, SettingsError
from evervec.model.records import Records

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
RECORD = Record("t", "note", "a", 7, "Title", "Text", {"n": 1}, 0.5, NOON, NOON, True)
HIT = Hit("note", "a", "Title", "Text", None, 0.25, {"n": 1}, "text")
HOSTILE = """<script>alert("x")</script> & 'q' \x1b[31m \x00 \u202e \ud800"""


def hits(*given: Hit) -> Hits:
    return Hits(given, via="text", version=None)


def test_records_become_a_table() -> None:
    table = Records([RECORD, replace(RECORD, metadata={"n": "mixed"}, title=None)]).to_arrow()
    one, two = table.to_pylist()
    assert list(one) == list(Record.__slots__)[: len(one)]
    assert (one["id"], one["seq"], one["created_at"], one["embedded"]) == ("a", 7, NOON, True)
    assert [json.loads(row["metadata"]) for row in (one, two)] == [{"n": 1}, {"n": "mixed"}]
    assert two["title"] is None


def test_an_empty_list_has_the_same_types() -> None:
    assert Records().to_arrow().schema == Records([RECORD]).to_arrow().schema
    assert hits().to_arrow().schema == hits(HIT).to_arrow().schema
    assert list(hits().to_pandas().columns) == list(hits(HIT).to_pandas().columns)
    assert hits().to_pandas()["relevance"].dtype == "float64"
    assert hits().to_pandas()["text"].dtype == object


def test_results_become_frames_of_pandas_with_their_values() -> None:
    frame = hits(HIT, replace(HIT, id="b", metadata={})).to_pandas()
    assert list(frame["id"]) == ["a", "b"]
    assert list(frame["metadata"]) == [{"n": 1}, {}]
    assert frame["similarity"].isna().all()
    assert frame["similarity"].dtype == "float64"
    assert Records([RECORD]).to_pandas()["created_at"][0] == NOON


def test_what_only_some_searches_return_is_a_column_where_it_is_returned() -> None:
    row = {"raw": b"\xff", "day": NOON.date(), "nan": float("nan"), "other": 1j}
    table = hits(replace(HIT, row=row, group="g"), HIT).to_arrow()
    assert {"row", "group"} < set(table.column_names)
    assert json.loads(table.column("row")[0].as_py())["day"] == "2024-03-01"
    assert table.column("group").to_pylist() == ['"g"', None]
    assert not {"row", "group", "explanation"} & set(hits(HIT).to_arrow().column_names)


def test_an_explained_hit_becomes_a_row() -> None:
    with evervec.open("memory:", embedder="noop") as ev:
        ev.add("note", "Tea is grown on hills", id="tea")
        table = ev.search("tea", mode="text", explain=True).to_arrow()
    assert isinstance(json.loads(table.column("explanation")[0].as_py()), dict)


def test_a_list_is_shown_as_a_short_table() -> None:
    assert repr(hits(HIT, replace(HIT, id="long id", text="many\n words " * 900))) == "\n".join(
        [
            "2 hits by text search",
            "relevance  kind  id       text",
            "0.250      note  a        Title: Text",
            "0.250      note  long id  Title: many words many words many words many words many wor…",
        ]
    )
    assert repr(Records()) == "0 records"
    assert repr(Records([RECORD])).splitlines()[0] == "1 record"


def test_hundreds_of_results_show_the_first_ten_and_a_count() -> None:
    many = Records([replace(RECORD, id=str(n), text="x" * 10_000) for n in range(1500)])
    lines = repr(many).splitlines()
    assert (len(lines), lines[0], lines[-1]) == (13, "1,500 records", "… 1,490 more")
    assert max(map(len, lines)) < 120
    assert many._repr_html_().count("<tr>") == 11
    assert "1,490 more" in many._repr_html_()


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[object] = []
        self.said = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.said += data


@pytest.mark.parametrize("name", ["id", "kind", "title", "text"])
def test_hostile_content_is_shown_and_not_obeyed(name: str) -> None:
    given = hits(replace(HIT, **{name: HOSTILE}))  # type: ignore[arg-type]
    given.via = HOSTILE
    shown, page = repr(given), given._repr_html_()
    assert shown.replace("\n", "").isprintable()
    assert len(shown.splitlines()) == 3
    assert page.isprintable()
    read = _Tags()
    read.feed(page)
    assert read.tags == {"p", "table", "thead", "tbody", "tr", "th", "td"}
    assert read.attributes == []
    assert """<script>alert("x")</script>""" in read.said


def test_results_are_lists_as_before() -> None:
    given = hits(HIT, HIT)
    assert given == [HIT, HIT]
    assert given[:1] == [HIT]
    assert Records([RECORD]) == [RECORD]
    for copied in (copy.deepcopy(given), pickle.loads(pickle.dumps(given))):
        assert (copied, copied.via, type(copied)) == (given, "text", Hits)


def test_without_its_package_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for package in ("pyarrow", "pandas"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SettingsError, match=r"to_arrow needs .*pip install 'evervec\[parquet\]'"):
        hits().to_arrow()
    with pytest.raises(SettingsError, match=r"to_pandas needs .*pip install 'pandas'"):
        hits().to_pandas()
