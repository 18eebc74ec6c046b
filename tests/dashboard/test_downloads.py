"""Lists as files: nothing in them is a formula, and nothing hidden leaves."""

import csv
import io
import json
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from evervec.server.dashboard.tables import Table, download

FORMULAS = ["=1+1", "+1", "-1+2", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1", "＋1", "－1", "＠a"]  # noqa: RUF001


@dataclass
class Row:
    name: str
    size: float
    at: datetime | None
    more: dict[str, object]
    token: str = "secret"


def read(body: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(body.decode())))


@pytest.mark.parametrize("text", FORMULAS)
def test_a_spreadsheet_takes_no_cell_for_a_formula(text: str) -> None:
    (header, row) = read(bytes(download(Table("x", [{text: text}]), "csv").body))
    assert header == row == [f"'{text}"]


def test_numbers_stay_numbers_and_other_values_are_readable() -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    rows = [Row("a,\"b'", -1.5, at, {"k": [1]}), Row("", 0, None, {})]
    shown = download(Table("x", rows, hidden=frozenset({"token"})), "csv")
    assert read(bytes(shown.body)) == [
        ["name", "size", "at", "more"],
        ["a,\"b'", "-1.5", "2026-01-02T00:00:00+00:00", '{"k": [1]}'],
        ["", "0", "", "{}"],
    ]
    assert b"secret" not in shown.body


def test_rows_may_have_different_fields() -> None:
    rows = [{"a": 1}, {"b": "x", "a": 2}]
    assert read(bytes(download(Table("x", rows), "csv").body)) == [
        ["a", "b"],
        ["1", ""],
        ["2", "x"],
    ]


def test_ndjson_has_one_object_on_each_line() -> None:
    rows = [{"text": "a\nb\u2028é"}, {"text": "</script>"}]
    answer = download(Table("x", rows, more="/ui/x?before=7"), "ndjson")
    lines = bytes(answer.body).decode().split("\n")
    assert [json.loads(line) for line in lines[:-1]] == rows
    assert answer.headers["link"] == '</ui/x?before=7>; rel="next"'
    assert answer.headers["content-disposition"] == 'attachment; filename="x.ndjson"'


def test_an_empty_list_is_an_empty_file() -> None:
    assert download(Table("x", []), "csv").body == b""
    assert download(Table("x", []), "ndjson").body == b""
