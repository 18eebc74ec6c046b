from collections.abc import Iterator
from pathlib import Path

import pytest

from evervec import Evervec
from support.fault_checks import open_store
from support.places import Place
from support.postgres import DATABASES
from support.processes import Start, children


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts child processes, which end with the test."""
    with children(tmp_path) as starter:
        yield starter


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share a store with children leave out DuckDB, which lets in one process alone."""
    items[:] = [item for item in items if not _shares_a_duckdb_file(item)]


def _shares_a_duckdb_file(item: pytest.Item) -> bool:
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return params.get("path") == "duckdb" and "start" in getattr(item, "fixturenames", ())


@pytest.fixture(params=["sqlite", "postgres", "duckdb"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Where the store lies: a file, a database, and a file for one process."""
    if request.param == "sqlite":
        yield tmp_path / "notes.db"
        return
    if request.param == "duckdb":
        yield f"duckdb:///{tmp_path}/notes.duckdb"
        return
    url = DATABASES.borrow()
    yield url
    DATABASES.give_back(url)


@pytest.fixture
def ev(path: Place) -> Iterator[Evervec]:
    """The test's own view of the store that its children work on."""
    with open_store(path) as opened:
        yield opened
