"""Every query that a store asks for by name is there, once, and every one that is there is asked for."""

import importlib
import inspect
import re
from collections import Counter
from importlib.resources import files

import pytest

from evervec.stores.duckdb import DuckdbStore
from evervec.stores.named import PARTS, Queries
from evervec.stores.postgres import PostgresStore
from evervec.stores.sql.service import Service
from evervec.stores.sql.shared import Shared
from evervec.stores.sql.store import SqlStore
from evervec.stores.sql.workers import Workers
from evervec.stores.sqlite import SqliteStore

STORES: dict[str, type[SqlStore]] = {
    "sqlite": SqliteStore,
    "postgres": PostgresStore,
    "duckdb": DuckdbStore,
}
_NAME = re.compile(r"^-- name: *(\w+) *$", re.MULTILINE)
_USE = re.compile(r"\b(?:SQL|sql)\.(\w+)")


def _folders(engine: str) -> tuple[str, ...]:
    return ("evervec.stores.sql", f"evervec.stores.{engine}")


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


@pytest.mark.parametrize("engine", STORES)
def test_no_query_is_there_twice_or_for_nobody(engine: str) -> None:
    found = Counter(
        name
        for folder in _folders(engine)
        for part in PARTS
        for name in _NAME.findall(files(folder).joinpath(f"{part}.sql").read_text("utf-8"))
    )
    assert [name for name, times in found.items() if times > 1] == []
    used = _used(engine)
    named_by_other_queries = {"job_columns", "record_columns", "key_columns"}
    assert [n for n in found if n not in used and n not in named_by_other_queries] == []


def test_a_shared_query_takes_the_form_of_each_engine() -> None:
    def asked(store: type[SqlStore]) -> str:
        return re.sub(r"\s+", " ", _queries(store).forget_records)

    assert "evervec_records" in asked(SqliteStore)
    assert "in (select value from json_each(?1))" in asked(SqliteStore)
    assert "evervec.records" in asked(PostgresStore)
    assert "= any ($1::bigint[])" in asked(PostgresStore)
    assert "in (select unnest($1::bigint[]))" in asked(DuckdbStore)
