"""Every query that a store asks for by name is there, once, and every one that is there is asked for."""

import importlib
import inspect
import re
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import fields
from functools import cache
from importlib.resources import files

import duckdb
import pytest

from evervec.indexes.sqlite import SqliteIndex
from evervec.model.jobs import Job
from evervec.model.usage import Limits, Spend
from evervec.queue.transitions import JobState
from evervec.stores.duckdb import DuckdbStore
from evervec.stores.duckdb import schema as duckdb_schema
from evervec.stores.named import PARTS, Queries
from evervec.stores.postgres import PostgresStore
from evervec.stores.service_values import Asked, StoredEntry, StoredKey
from evervec.stores.sql import job_writer, tickets
from evervec.stores.sql.job_rows import JobValues
from evervec.stores.sql.record_rows import RecordValues, Row
from evervec.stores.sql.service import Service
from evervec.stores.sql.shared import Shared, Workers
from evervec.stores.sql.store import SqlStore
from evervec.stores.sqlite import SqliteStore
from evervec.stores.sqlite import schema as sqlite_schema
from evervec.stores.sqlite.engine import SQL, unnumbered
from evervec.stores.values import Candidate, Found, LockHolder, Note, Typed

STORES: dict[str, type[SqlStore]] = {
    "sqlite": SqliteStore,
    "postgres": PostgresStore,
    "duckdb": DuckdbStore,
}
_NAME = re.compile(r"^-- name: *(\w+) *$", re.MULTILINE)
_USE = re.compile(r"\b(?:SQL|sql)\.(\w+)")


def _folders(engine: str) -> tuple[str, ...]:
    return ("evervec.stores.sql", f"evervec.stores.{engine}")


@cache
def _used(engine: str) -> dict[str, str]:
    """Names that the code of a store asks for, with the file that does."""
    return {
        name: file.name
        for folder in _folders(engine)
        for file in files(folder).iterdir()
        if file.name.endswith(".py")
        for name in _USE.findall(file.read_text("utf-8"))
    }


def _classes(store: type[SqlStore]) -> list[type]:
    """The store, its engine, and the classes of its parts."""
    engine = importlib.import_module(f"{store.__module__.rpartition('.')[0]}.engine").Engine
    return [store, engine, Shared, Workers, Service, *vars(store.parts).values()]


def _queries(store: type[SqlStore]) -> Queries:
    _, engine, *_ = _classes(store)
    queries: Queries = vars(engine)["sql"]
    return queries


def _asked_by(part: type, method: str) -> set[str]:
    """What a method asks for, with those of its parents that it calls."""
    found: set[str] = set()
    for parent in part.__mro__:
        made = vars(parent).get(method)
        if not parent.__module__.startswith("evervec.") or not inspect.isfunction(made):
            continue
        source = inspect.getsource(made)
        found |= set(_USE.findall(source))
        if f"super().{method}(" not in source:
            break
    return found


@pytest.mark.parametrize("engine", STORES)
def test_every_query_that_the_code_of_a_store_asks_for_is_there(engine: str) -> None:
    store = STORES[engine]
    sql = _queries(store)
    asked = {
        name for part in _classes(store) for method in dir(part) for name in _asked_by(part, method)
    }
    assert len(asked) > 100
    missing = [name for name in sorted(asked) if not isinstance(vars(sql).get(name), str)]
    assert missing == []
    with pytest.raises(AttributeError, match="no query named 'no_such'"):
        sql.no_such  # noqa: B018


@pytest.mark.parametrize("engine", STORES)
def test_no_part_is_a_tower_of_classes(engine: str) -> None:
    for part in _classes(STORES[engine]):
        ours = [c for c in part.__mro__ if c.__module__.startswith("evervec.")]
        assert len(ours) <= 3, ours


@cache
def _own(folder: str) -> list[tuple[str, str]]:
    """The queries in a folder: name, and text with its comments."""
    found = []
    for part in PARTS:
        file = files(folder).joinpath(f"{part}.sql")
        if file.is_file():
            _, *parts = _NAME.split(file.read_text("utf-8"))
            found += list(zip(parts[::2], parts[1::2], strict=True))
    return found


def _names(engine: str) -> set[str]:
    return {name for name, _ in _own(f"evervec.stores.{engine}")}


@pytest.mark.parametrize("engine", STORES)
def test_no_query_is_there_twice_or_for_nobody(engine: str) -> None:
    for folder in _folders(engine):
        names = Counter(name for name, _ in _own(folder))
        assert [name for name, times in names.items() if times > 1] == []
    used = _used(engine)
    named_by_other_queries = {"job_columns", "record_columns", "key_columns"}
    assert _names(engine) - used.keys() - named_by_other_queries == set()


def test_a_shared_query_serves_two_engines_or_more() -> None:
    for name in _names("sql"):
        users = [e for e in STORES if name not in _names(e) and name in _used(e)]
        assert len(users) > 1 or name.endswith(("_columns", "_row")), name


@pytest.mark.parametrize("engine", STORES)
def test_a_query_that_differs_between_engines_says_why(engine: str) -> None:
    elsewhere = set().union(*(_names(e) for e in ("sql", *STORES) if e != engine))
    unexplained = [
        name
        for name, text in _own(f"evervec.stores.{engine}")
        if name in elsewhere and not text.strip().startswith("--")
    ]
    assert unexplained == []


def _fields(made: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(made))


_JOB = "job_id tenant kind id version op seq"
COLUMNS: dict[str, tuple[str, ...]] = {
    # classes that are made of a row
    "known_records": _fields(Row)[:17],
    "standing": ("job_id", *_fields(JobState)),
    "candidates": _fields(Candidate),
    "found": _fields(Found),
    "typed": Typed._fields,
    "limits": _fields(Limits),
    "spend": _fields(Spend),
    "key_columns": _fields(StoredKey),
    "audit": ("noted_at", *_fields(StoredEntry)[1:]),
    "note": Note._fields,
    "lock_holder": LockHolder._fields,
    "asked": Asked._fields,
    "stray_boxes": job_writer._StrayBox._fields,
    "rivals": job_writer._Rival._fields,
    "settled": ("tenant", "kind", "id", *tickets.TicketState._fields),
    # rows that the code unpacks
    "job_columns": (
        *_JOB.split(), "claimed_seq", "status", "priority", "attempts", "max_attempts", "error",
        "token", "created_at", "scheduled_for", "started_at", "completed_at", "lease_expires_at",
        "record", "worker", "crashes",
    ),
    "claim_columns": (
        *_JOB.split(), "priority", "attempts", "max_attempts", "error", "created_at",
        "scheduled_for", "completed_at", "record", "crashes",
    ),
    "load": (
        "op", "seq", "state", "title", "text", "metadata", "weight", "updated_at", "chunks", "box",
        "trace", "box_seq", "record_seq",
    ),
    "record_columns": (
        "tenant", "kind", "id", "seq", "title", "text", "metadata", "weight", "created_at",
        "updated_at", "data", "embedded",
    ),
    "expected": (
        "record", "tenant", "kind", "id", "state", "seq", "ledger_seq", "points_seq", "doubtful",
        "chunks", "cut_since", "status",
    ),
    "digests": ("id", "state", "hash", "metadata", "weight", "updated_at", "busy"),
    "reveal_state": ("record", "state", "seq", "created_at", "version", "born"),
    "owed": ("record", "op", "box", "box_seq"),
    "reopen": ("record", "tenant", "kind", "state"),
    "to_appear": (
        "record", "tenant", "op", "priority", "scheduled_for", "seq", "max_attempts", "box",
    ),
    "history": (
        "attempt", "seq", "worker", "started_at", "finished_at", "outcome", "error",
        "chunks_embedded", "chunks_reused", "tokens", "embedded_at", "version_name",
    ),
    "collections": (
        "version", "kind", "state", "chunker", "app", "cut_since", "name", "provider", "model",
        "dimensions", "base", "gain", "days",
    ),
    "holdings": ("kind", "name", "items", "last_sync_at"),
    "workers": ("worker", "version", "started_at", "seen_at", "held", "done", "paused"),
    "spent": ("tokens", "money"),
    "cached": ("hash", "vector"),
    "ledgers": ("record", "chunks"),
    "weights": ("tenant", "weight"),
}  # fmt: skip


def _columns(query: str) -> tuple[str, ...]:
    """The names of the columns that a query selects; of a packed one, of each row in it."""
    text = re.sub(r"--.*", "", query).strip()
    text = re.sub(r"json_group_array\(json_array\(([^()]+)\)\)", r"\1", text)
    depth, columns = 0, [""]
    for word in re.findall(r"\w+|\W", text.removeprefix("select")):
        depth += (word == "(") - (word == ")")
        if word == "from" and not depth:
            break
        if word == "," and not depth:
            columns.append("")
        else:
            columns[-1] += word
    return tuple(re.split(r"\W+", column.strip())[-1] for column in columns)


@pytest.mark.parametrize("engine", STORES)
@pytest.mark.parametrize("name", COLUMNS)
def test_columns_come_in_the_order_in_which_they_are_read(engine: str, name: str) -> None:
    queries = vars(_queries(STORES[engine]))
    assert _columns(queries[name]) == COLUMNS[name]
    if f"{name}_short" in queries:
        assert _columns(queries[f"{name}_short"]) == COLUMNS[name]


def test_every_field_of_a_job_is_read() -> None:
    """A field with a default would else be None without notice."""
    wanted = {"id" if name == "record_id" else name for name in _fields(Job)}
    wanted -= {"embedding_version"}  # looked up by its number
    leased = {"claimed_seq", "status", "token", "started_at", "lease_expires_at", "worker"}
    assert set(COLUMNS["job_columns"]) == wanted
    assert set(COLUMNS["claim_columns"]) == wanted - leased  # the claim knows the rest


@pytest.mark.parametrize("folder", ["sql", *STORES])
def test_a_name_is_given_to_one_query(folder: str) -> None:
    names = [name for name, _ in _own(f"evervec.stores.{folder}")]
    assert len(names) == len(set(names))


def test_rows_are_written_in_the_order_of_their_classes() -> None:
    given = dict(_own("evervec.stores.sql"))

    def names(row: str) -> list[str]:
        text = re.sub(r"--.*", "", given[row])
        return [column.split()[0] for column in text.split(",")]

    assert names("record_row") == list(RecordValues._fields)
    assert names("job_row") == list(JobValues._fields)


def _statements(store: type[SqlStore]) -> dict[str, str]:
    """The queries that are whole statements, without what the code fills in."""
    return {
        name: re.sub(r"{\w+}", "", query)
        for name, query in vars(_queries(store)).items()
        if re.match(r"(select|insert|update|delete|with|merge)\b", re.sub(r"--.*\n", "", query))
    }


def test_sqlite_can_parse_every_query() -> None:
    with closing(sqlite3.connect(":memory:")) as conn:
        for statement in sqlite_schema.SCHEMA.statements(1):
            conn.execute(statement)
        statements = _statements(SqliteStore)
        assert len(statements) > 100
        for name, query in statements.items():
            if name != "delete_records":  # for the others: SQLite has no column of words
                parameters = max((int(n) for n in re.findall(r"\?(\d+)", query)), default=0)
                count = parameters or query.count("?")
                conn.execute(f"explain {query}", [None] * count)


def test_duckdb_can_parse_every_query() -> None:
    with closing(duckdb.connect(":memory:")) as conn:
        for statement in duckdb_schema.SCHEMA.statements(1):
            conn.execute(statement)
        for name, query in _statements(DuckdbStore).items():
            if "merge into" not in query:  # cannot be prepared
                conn.execute(f"prepare {name}_ as {query}")


def test_a_shared_query_takes_the_form_of_each_engine() -> None:
    def asked(store: type[SqlStore]) -> str:
        return re.sub(r"\s+", " ", _queries(store).forget_records)

    assert "evervec_records" in asked(SqliteStore)
    assert "in (select value from json_each(?1))" in asked(SqliteStore)
    assert "evervec.records" in asked(PostgresStore)
    assert "= any ($1::bigint[])" in asked(PostgresStore)
    assert "in (select unnest($1::bigint[]))" in asked(DuckdbStore)


@pytest.mark.parametrize(
    "query",
    [SQL.insert_record, SQL.put_job, SQL.index_text, SQL.put_ledger, SqliteIndex.sql.insert_points],
    ids=["insert_record", "put_job", "index_text", "put_ledger", "insert_points"],
)
def test_what_is_run_for_each_record_does_not_number_its_parameters(query: str) -> None:
    """Python 3.12.0 to 3.12.3 makes a warning for each value of a numbered one."""
    run = unnumbered(query)
    assert "?" in run
    assert not re.search(r"\?\d", run)
    assert run.count("?") == query.count("?")


def test_a_query_that_needs_numbers_keeps_them() -> None:
    for query in ("select ?1 where ?1", "select ?2, ?1", "select ?1, ?3", "select ?"):
        assert unnumbered(query) == query
    assert unnumbered("select ?1, ?2") == "select ?, ?"
