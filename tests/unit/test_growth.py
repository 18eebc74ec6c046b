"""Twice the input takes at most twice the work, whatever a client sends.

Work is counted, not timed: lines of Python, steps of SQLite's machine, characters that are given
to what takes the square of them, bytes that are copied. Each input is doubled with all bounds
lifted, so that it is the work itself that is looked at.
"""

import asyncio
import base64
import json
import random
import sqlite3
import unicodedata
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from math import isqrt
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from evervec import DeadlineExceeded, EvervecError
from evervec.chunking import ContentChunker, SizeChunker, structure
from evervec.chunking.structure import blocks
from evervec.files.html import read_html
from evervec.indexes import facts
from evervec.indexes.facts import facts_of
from evervec.model.deadlines import deadline
from evervec.model.filters import Conditions, matches, parse_filter, read_filter
from evervec.model.jobs import Attempt, Outcome, Ticket
from evervec.records.drafts import make_draft
from evervec.records.writer import save_each
from evervec.search.hits import best_piece
from evervec.search.matched_words import coverage, matched_words
from evervec.server import answers
from evervec.server.answers import asked_seq, asked_wait, read_cursor
from evervec.server.dashboard import filter_bar, page_routes
from evervec.server.dashboard.job_filter import qualifiers
from evervec.server.dashboard.page_routes import as_json
from evervec.server.dashboard.pages.map import grouping_fields
from evervec.server.dashboard.tables import Table, download
from evervec.server.problems import Problem
from evervec.server.requests import read_json
from evervec.server.routes import batch
from evervec.server.routes.jobs import JobsOut
from evervec.server.routes.records import HistoryOut
from evervec.settings import Settings
from evervec.stores.duckdb.filters import Filter as DuckDBFilter
from evervec.stores.postgres.filters import Filter as PostgresFilter
from evervec.stores.sql import words as folding
from evervec.stores.sql.stems import Stems
from evervec.stores.sql.words import part_of_text, terms
from evervec.stores.sqlite.filters import Filter as SqliteFilter
from support.steps import python_steps

T = TypeVar("T")
Work = Callable[[int], int]
"""the work that an input of a size takes"""

SMALL = 200
_NO_BOUND: dict[str, Any] = dict.fromkeys(
    (
        "metadata_bytes", "metadata_values", "metadata_depth", "filter_conditions",
        "filter_values", "filter_chars", "query_chars", "text_chars", "title_chars",
        "server_depth", "server_values",
    ),
    1 << 40,
)  # fmt: skip
UNBOUNDED = replace(Settings(), **_NO_BOUND)


def assert_linear(work: Work, small: int = SMALL) -> None:
    taken = [work(small * times) for times in (1, 2, 4, 8)]
    for less, more in pairwise(taken):
        assert more <= 2.2 * less + 200, taken


def steps_of(make: Callable[[int], T], do: Callable[[T], object]) -> Work:
    """Lines of Python that the work takes, without those that make the input."""

    def work(size: int) -> int:
        made = make(size)

        def refused_or_not() -> None:
            with suppress(EvervecError, Problem):
                do(made)

        return python_steps(refused_or_not)

    return work


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def cursor(place: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


FILTERS: dict[str, Callable[[int], Any]] = {
    "fields": lambda n: {f"f{i}": i for i in range(n)},
    "empty fields": lambda n: {f"f{i}": {} for i in range(n)},
    "ranges": lambda n: {f"f{i}": {"gt": i, "lte": i} for i in range(n)},
    "numbers": lambda n: {"a": list(range(n))},
    "texts": lambda n: {"a": [f"{i}" for i in range(n)]},
    "nulls": lambda n: {"a": [None] * n},
    "mixed": lambda n: {"a": [i if i % 2 else f"{i}" for i in range(n)], "b": [True] * n},
    "a long text": lambda n: {"a": "x" * n},
    "a long name": lambda n: {"x" * n: 1},
    "nested": lambda n: {"a": nested(n)},
    "an unknown operation": lambda n: {"a": {f"o{i}": i for i in range(n)}},
    "alternatives": lambda n: {"or": [{f"f{k}": k} for k in range(n)]},
    "combined": lambda n: {
        "not": {"and": [{"or": [{"a": k}, {"not": {"b": k}}]} for k in range(n)]}
    },
}
METADATA: dict[str, Callable[[int], Any]] = {
    "nested numbers": lambda n: {"o": {f"k{i}": i for i in range(n)}},
    "fields": lambda n: {f"k{i}": i for i in range(n)},
    "a list": lambda n: {"a": list(range(n))},
    "lists in a list": lambda n: {"a": [[i] for i in range(n)]},
    "depth": lambda n: {"a": nested(min(n, 800))},
    "a long text": lambda n: {"a": "é" * n},
    "NUL": lambda n: {"a": ["x" * i + "\0" for i in range(20)] * (n // 20)},
}
QUERIES: dict[str, Callable[[int], str]] = {
    "words": lambda n: " ".join(f"w{i}" for i in range(n)),
    "the same word": lambda n: "tea " * n,
    "one long word": lambda n: "a" * n,
    "quotes": lambda n: '"' * n,
    "phrases": lambda n: '"a b" ' * n,
    "a long phrase": lambda n: '"' + "a b " * n + '"',
    "an open phrase": lambda n: "a " * n + '"' + "b " * n,
    "underscores": lambda n: "a_" * n,
    "blanks": lambda n: "a" + " " * n,
    "marks": lambda n: "\u0301\u0327" * n,
    "signs": lambda n: "%_\\" * n,
}
TEXTS: dict[str, Callable[[int], str]] = {
    "headings with blanks": lambda n: "\n\n".join(["# a" + " " * 150 + "b"] * (n // 20)),
    "one heading with blanks": lambda n: "# a" + " " * n + "b\n\ntext",
    "ornaments": lambda n: "\n\n".join(["## a " + "{#b} ## " * 20] * (n // 20)),
    "headings": lambda n: "## a\n\nb\n\n" * n,
    "deep headings": lambda n: "".join(f"{'#' * (i % 6 + 1)} a{i}\n\n" for i in range(n)),
    "fences that never close": lambda n: "\n".join(
        ["`" * i for i in range(isqrt(4 * n), 3, -1)] + ["~~~ x"] * n
    ),
    "open fences": lambda n: "```x\n" * n,
    "fences": lambda n: "```\na\n```\n" * n,
    "rules": lambda n: "a\n---\n" * n,
    "items": lambda n: "- a\n" * n,
    "blanks": lambda n: " " * n + "x",
    "lines of blanks": lambda n: (" " * 40 + "\n") * n + "x",
    "marks": lambda n: "a" + "\u0301" * n,
    "dots": lambda n: ". " * n,
    "quotes": lambda n: ".'" * n,
    "letters": lambda n: "".join(random.Random(1).choices("abcdefgh", k=n)),
    "flags": lambda n: "\U0001f1e9\U0001f1ea" * n,
    "joined": lambda n: "\U0001f468\u200d" * n,
}
HEADERS: dict[str, Callable[[int], str]] = {
    "waits": lambda n: "wait , " * n,
    "a wait with blanks": lambda n: "wait" + " " * n + "= " + " " * n + "x",
    "digits": lambda n: 'wait="' + "7" * n,
    "tags": lambda n: '"1", ' * n,
    "blanks": lambda n: " " * n + '"7"' + " " * n,
}
CURSORS: dict[str, Callable[[int], str]] = {
    "a number": lambda n: cursor([10 ** (n // 2)]),
    "numbers": lambda n: cursor(list(range(n))),
    "texts": lambda n: cursor(["a" * n, "b" * n]),
    "depth": lambda n: base64.b64encode(b"[" * n).decode(),
    "no base64": lambda n: "!" * n,
    "padding": lambda n: "=" * n,
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters(name: str) -> None:
    make = FILTERS[name]
    assert_linear(steps_of(make, lambda given: read_filter(given, UNBOUNDED)))
    if name in ("nested", "an unknown operation"):
        return

    from evervec.indexes.lancedb import filters as lancedb  # here: it takes a second

    def clauses(conditions: Conditions) -> None:
        SqliteFilter(conditions, 0)
        DuckDBFilter(conditions, 0)
        PostgresFilter(conditions, 0)
        lancedb.clause(conditions)

    assert_linear(steps_of(lambda n: parse_filter(make(n)), clauses))


def test_a_list_is_compared_with_a_list_in_one_pass() -> None:
    def both(n: int) -> tuple[Any, Any]:
        return {"a": [f"y{i}" for i in range(n)]}, parse_filter({"a": [f"x{i}" for i in range(n)]})

    assert_linear(steps_of(both, lambda given: matches(*given)))


@pytest.mark.parametrize("name", METADATA)
def test_metadata(name: str) -> None:
    make = METADATA[name]
    assert_linear(steps_of(make, lambda given: make_draft("x", {"metadata": given}, UNBOUNDED)))
    assert_linear(steps_of(make, facts_of))
    assert_linear(
        steps_of(lambda n: json.dumps(make(n)).encode(), lambda body: read_json(body, UNBOUNDED))
    )


@pytest.mark.parametrize(
    "filter",
    [{"zz": {"gte": 0}}, {"o": 5}, {"a": [1, 2, "x"]}, {"a": {"ne": 3}}, {"k1": None}],
    ids=json.dumps,
)
@pytest.mark.parametrize("name", METADATA)
def test_sqlite_looks_into_metadata_once(name: str, filter: dict[str, Any]) -> None:
    given = SqliteFilter(parse_filter(filter), 0)

    def work(n: int) -> int:
        count = 0

        def tick() -> int:
            nonlocal count
            count += 1
            return 0

        with closing(sqlite3.connect(":memory:")) as db:
            db.execute("create table evervec_records (record, metadata)")
            metadata = json.dumps(METADATA[name](n), ensure_ascii=False).replace("\\u0000", "")
            db.execute("insert into evervec_records values (1, ?)", (metadata,))
            db.set_progress_handler(tick, 1)
            db.execute(
                f"select record from evervec_records as r where 1{given.clause}", given.values
            ).fetchall()
        return count

    assert_linear(work)


def test_a_filter_reads_metadata_once() -> None:
    """PostgreSQL and DuckDB for all fields together, SQLite for each; none for each value."""
    conditions = parse_filter({"a": list(range(500)), "b": ["x"] * 500, "c": {"gt": 1, "lt": 9}})
    for made in (DuckDBFilter, PostgresFilter):
        given = made(conditions, 0)
        assert given.clause.count("r.metadata") == 1
        assert len(given.values) <= 8
    assert SqliteFilter(conditions, 0).clause.count("r.metadata") == 4


# queries and normalisation
@pytest.mark.parametrize("name", QUERIES)
def test_queries(name: str) -> None:
    make = QUERIES[name]
    assert_linear(steps_of(make, lambda query: (terms(query), part_of_text(query))))
    words = [len(folding.fold(term).split()) for term in terms(make(5000))]
    assert all(words)
    assert sum(words) <= 64
    assert sum(count for count in words if count > 1) <= 16
    assert len(part_of_text(make(5000)) or "") <= 128


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("look", [best_piece, coverage, matched_words])
def test_looking_for_the_words_of_a_query_in_a_text(name: str, look: Any) -> None:
    """With as many words in the text as in the query: none is looked for in all pieces."""

    def both(n: int) -> tuple[str, str]:
        return QUERIES[name](n), " ".join(f"t{i}" for i in range(20 * n))

    given = partial(look, size=4 * UNBOUNDED.chunk_tokens) if look is best_piece else look
    assert_linear(steps_of(both, lambda asked: given(*asked)))


@pytest.mark.parametrize(
    "text",
    [
        lambda n: "a" + "\u0301\u0327" * n,
        lambda n: "\uff9e\u0301\u0327" * n,
        lambda n: "\u05b0\u0591" * n + "x",
        lambda n: "\u1112\u1161\u11ab" * n,
        lambda n: "\u5317\u4eac" * n,
        lambda n: ("é" * 100 + " ") * n,
    ],
    ids=["latin", "kana", "hebrew", "jamo", "han", "words"],
)
def test_normalisation_gets_pieces_of_a_bounded_length(
    monkeypatch: pytest.MonkeyPatch, text: Callable[[int], str]
) -> None:
    """It takes the square of the marks in a row, so each call is charged that."""
    charged = 0

    def normalize(form: Any, piece: str) -> str:
        nonlocal charged
        charged += len(piece) ** 2
        return unicodedata.normalize(form, piece)

    counting = SimpleNamespace(normalize=normalize, combining=unicodedata.combining)
    monkeypatch.setattr(folding, "unicodedata", counting)

    def work(n: int) -> int:
        nonlocal charged
        charged = 0
        made = text(n)
        return python_steps(lambda: folding.fold(made)) + charged

    assert_linear(work, 2000)


def test_a_text_folded_in_pieces_is_the_same_as_in_one() -> None:
    rng = random.Random(3)
    letters = ["é", "o\u0308", "ß", "Ǆ", "ﬁ", "한", "\u1112\u1161\u11ab", "中", "ก", " ", "-", "a"]
    for _ in range(50):
        text = "".join(rng.choices(letters, k=2000))
        assert folding.fold(text).split() == folding._fold(text).split()


def test_what_is_remembered_of_words_and_names_has_a_bound() -> None:
    """A client chooses them, and could choose long ones."""
    stems = Stems()
    with closing(stems):
        assert stems.of(["running", "x" * 65, "runs"]) == ["run", "x" * 65, "run"]
        assert not [word for word in stems._known if len(word) > 64]
    before = facts._remembered.cache_info().currsize
    assert facts.present("x" * 201) == f'"{"x" * 201}"'
    assert facts._remembered.cache_info().currsize == before


# texts
@pytest.mark.parametrize("name", TEXTS)
def test_texts(name: str) -> None:
    for cut in (ContentChunker(64).split, SizeChunker(64).split, blocks):
        assert_linear(steps_of(TEXTS[name], lambda text, cut=cut: list(cut(text))))  # type: ignore[misc]


def test_the_other_end_of_a_fence_is_the_next_that_can_be() -> None:
    rng = random.Random(5)
    for _ in range(200):
        lines = [
            "`~"[rng.random() < 0.3] * rng.randint(3, 7) + rng.choice(["", " x"]) for _ in range(12)
        ]
        marks = list(structure._FENCE.finditer("\n".join(lines)))
        for place, end in enumerate(structure._closings(marks)):
            fence = marks[place].group(2)
            later = (n for n in range(place + 1, 12) if marks[n].group(2).startswith(fence))
            first = next(later, None)
            assert end == (None if first is None or marks[first].group(3).strip() else first)


@pytest.mark.parametrize("unit", ["<b> </b>", "<p> ", "a\n", "<br>", " "])
def test_pages(unit: str) -> None:
    assert_linear(steps_of(lambda n: unit * n, read_html))


# what routes read
@pytest.mark.parametrize("name", HEADERS)
def test_headers(name: str) -> None:
    assert_linear(steps_of(HEADERS[name], asked_wait))
    assert_linear(steps_of(HEADERS[name], asked_seq))


@pytest.mark.parametrize("name", CURSORS)
def test_cursors(name: str) -> None:
    assert_linear(steps_of(CURSORS[name], lambda given: read_cursor(given, int)))
    assert_linear(steps_of(CURSORS[name], lambda given: read_cursor(given, str, str)))


FORMS: dict[str, Callable[[int], bytes]] = {
    "fields": lambda n: b"&".join(b"k%d=v" % i for i in range(n)),
    "the same field": lambda n: b"ids=7&" * n,
    "an escaped value": lambda n: b"key=" + b"%41" * n,
    "escaped values": lambda n: b"k=%41%e2%82%ac&" * n,
    "separators": lambda n: b"&" * n + b"=" * n,
    "not ASCII": lambda n: b"key=" + "é".encode() * n,
}
LINES: dict[str, Callable[[int], str]] = {
    "qualifiers": lambda n: "id:1 " * n,
    "unknown ones": lambda n: " ".join(f"k{i}:v" for i in range(n)),
    "words": lambda n: "tea " * n,
    "a quote without an end": lambda n: 'error:"' + "a " * n,
    "quotes": lambda n: 'error:"' * n,
    "escapes": lambda n: 'error:"' + '\\"' * n,
    "colons": lambda n: ":" * n,
    "the same": lambda n: "kind:b " * n,
    "a long value": lambda n: 'kind:"' + "x" * n + '"',
    "blanks": lambda n: "kind:" + " " * n + "x",
}


@pytest.mark.parametrize("name", FORMS)
def test_forms(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_routes, "_MOST_FIELDS", 1 << 40)
    headers = [(b"content-type", b"application/x-www-form-urlencoded")]

    async def whole(body: bytes) -> bytes:
        return body

    def read(body: bytes) -> None:
        given: Any = SimpleNamespace(scope={"headers": headers}, body=partial(whole, body))
        asyncio.run(page_routes.read_form(given))

    assert_linear(steps_of(FORMS[name], read))


@pytest.mark.parametrize("name", LINES)
def test_lines_of_a_filter_bar(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filter_bar, "LONGEST", 1 << 40)
    known = qualifiers(is_admin=False)
    assert_linear(steps_of(LINES[name], lambda text: filter_bar.Line(text, known).errors))
    assert_linear(steps_of(LINES[name], lambda text: filter_bar.Line(text, known).with_()))


class Counted(bytes):
    """Bytes that count what is copied when they are put behind others."""

    copied = 0

    def __radd__(self, before: bytes) -> bytes:
        Counted.copied += len(before) + len(self)
        return bytes(before) + bytes(self)


def test_a_line_that_comes_byte_by_byte_is_not_copied_each_time() -> None:
    class Body:
        is_too_long = False
        problem = None

        def __init__(self, parts: Iterator[bytes]) -> None:
            self._parts = parts

        async def take(self, kept: int) -> bytes | None:
            return next(self._parts, None)

        def check_room(self) -> None:
            """There is room for everything."""

    async def lines(n: int) -> list[bytes]:
        made = object.__new__(batch._Batch)
        made._longest = 1 << 40
        made._settings = Settings()
        parts: Iterator[bytes] = (Counted(b"x" if i else b"a\nb") for i in range(n))
        found: AsyncIterator[list[bytes]] = made._lines(Body(parts))  # type: ignore[arg-type]
        return [line for group in [g async for g in found] for line in group]

    def work(n: int) -> int:
        Counted.copied = 0
        taken = python_steps(lambda: asyncio.run(lines(n)))
        return taken + Counted.copied

    assert asyncio.run(lines(4)) == [b"a", b"bxxx"]
    assert_linear(work)


# what pages and routes answer
ROWS: dict[str, Callable[[int], list[Any]]] = {
    "rows": lambda n: [{"id": k, "text": "tea"} for k in range(n)],
    "metadata": lambda n: [{"id": 1, "metadata": {f"k{k}": k for k in range(n)}}],
    "columns": lambda n: [{f"k{k}": k for k in range(n)}],
    "a long text": lambda n: [{"text": "=" * n}],
    "records": lambda n: [attempt(f"{k}") for k in range(n)],
    "nested": lambda n: [{"a": attempt("x")}] * n,
}


def attempt(error: str) -> Attempt:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Attempt(1, 1, "w", at, at, Outcome.DONE, error, 0, 0, 0, None)


@pytest.mark.parametrize("format", ["csv", "ndjson"])
@pytest.mark.parametrize("name", ROWS)
def test_downloads(name: str, format: str) -> None:
    assert_linear(
        steps_of(lambda n: Table("t", ROWS[name](n)), lambda made: download(made, format))
    )


def test_no_more_of_an_object_is_made_than_is_shown() -> None:
    few, many = (
        python_steps(lambda n=n: as_json(list(range(n)), 100))  # type: ignore[misc]
        for n in (1000, 100_000)
    )
    assert many <= few + 500
    assert as_json({"a": [1]}, 100) == json.dumps({"a": [1]}, indent=2)
    assert as_json({"a": "tea"}, 5) == '{\n  "…'


def test_a_download_copies_no_metadata() -> None:
    """The steps for a row do not grow with what is in it."""
    rows = [[{"id": 1, "metadata": {f"k{k}": k for k in range(n)}}] for n in (1, 10_000)]
    few, many = (python_steps(lambda made=made: download(Table("t", made), "csv")) for made in rows)  # type: ignore[misc]
    assert many <= few + 500


MAPS: dict[str, Callable[[int], list[str]]] = {
    "records": lambda n: [json.dumps({"topic": f"t{k % 5}", "n": k}) for k in range(n)],
    "fields of one": lambda n: [json.dumps({f"k{k}": k for k in range(n)})],
    "fields of all": lambda n: [json.dumps({f"{n} {k}": 1}) for k in range(n)],
    "long values": lambda n: [json.dumps({"a": "x" * n, "b": [1] * n})],
}


@pytest.mark.parametrize("name", MAPS)
def test_fields_of_a_map(name: str) -> None:
    assert_linear(steps_of(MAPS[name], grouping_fields))


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 100])
def test_a_list_is_encoded_in_portions_and_reads_the_same(size: int) -> None:
    found = [attempt(f"{k}") for k in range(size)]
    whole = answers.answer(HistoryOut, {"attempts": found})
    assert answers.answer_list(HistoryOut, "attempts", iter(found)).body == whole.body
    job = {"jobs": [], "cursor": "x"}
    assert (
        answers.answer_list(JobsOut, "jobs", [], {"cursor": "x"}).body
        == answers.answer(JobsOut, job).body
    )
    assert_linear(
        steps_of(
            lambda n: [attempt(f"{k}") for k in range(n)],
            lambda given: answers.answer_list(HistoryOut, "attempts", given),
        )
    )


def test_a_long_list_ends_with_the_deadline() -> None:
    with pytest.raises(DeadlineExceeded), deadline(0.0):
        answers.answer_list(HistoryOut, "attempts", [attempt("x")] * 100)
    with pytest.raises(DeadlineExceeded), deadline(0.0):
        download(Table("t", [{"a": 1}]), "csv")


def test_a_bad_draft_costs_few_transactions() -> None:
    class Store:
        calls = 0

        def save(self, tenant: str, kind: str, drafts: list[Any], conn: None) -> list[Ticket]:
            self.calls += 1
            if any(draft == 7 for draft in drafts):
                raise ValueError("seven")
            return [Ticket(kind, str(draft), 0, 0) for draft in drafts]

    store = Store()
    ends = list(save_each(store, "t", "k", list(range(1024))))  # type: ignore[arg-type]
    assert [isinstance(end, Ticket) for end in ends].index(False) == 7
    assert store.calls <= 2 * 10 + 1
