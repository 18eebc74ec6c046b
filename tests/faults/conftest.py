from collections.abc import Iterator
from pathlib import Path

import pytest

from evervec import Evervec
from support.fault_checks import open_store
from support.processes import Start, children


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts child processes, which end with the test."""
    with children(tmp_path) as starter:
        yield starter


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "notes.db"


@pytest.fixture
def ev(path: Path) -> Iterator[Evervec]:
    """The test's own view of the store that its children work on."""
    with open_store(path) as opened:
        yield opened
