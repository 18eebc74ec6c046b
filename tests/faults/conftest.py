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


@pytest.fixture(params=["sqlite", "postgres"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Where the store lies: a file, and a database."""
    if request.param == "sqlite":
        yield tmp_path / "notes.db"
        return
    url = DATABASES.borrow()
    yield url
    DATABASES.give_back(url)


@pytest.fixture
def ev(path: Place) -> Iterator[Evervec]:
    """The test's own view of the store that its children work on."""
    with open_store(path) as opened:
        yield opened
