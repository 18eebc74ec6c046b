import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from evervec import Evervec
from support.fault_checks import open_store
from support.places import Place
from support.postgres import DATABASES, GIVEN
from support.processes import Start, children


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts child processes, which end with the test."""
    with children(tmp_path) as starter:
        yield starter


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if _applies(item)]


def _applies(item: pytest.Item) -> bool:
    """Not to DuckDB, which lets in one process alone, where a store is shared with children;
    not to a server that was given, or is another user's, what would stop it."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    needs = set(getattr(item, "fixturenames", ()))
    given = bool(os.environ.get(GIVEN))
    return not (
        (params.get("path") == "duckdb" and "start" in needs)
        or (given and "own_server" in needs)
        or ((given or os.getuid() != 0) and "freeze" in needs)
    )


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
