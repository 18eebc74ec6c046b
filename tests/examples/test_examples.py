"""Every example runs as its first lines say, on every store that it names."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.postgres import DATABASES

FOLDER = Path(__file__).parents[2] / "examples"
RUNS = [
    ("transaction_sqlite3.py", "sqlite", "['1']"),
    ("transaction_psycopg.py", "postgres", "['1']"),
    ("transaction_sqlalchemy.py", "sqlite", "['1', '3']"),
    ("transaction_sqlalchemy.py", "postgres", "['1', '3']"),
    ("transaction_django.py", "sqlite", "['1']"),
    ("transaction_django.py", "postgres", "['1']"),
]


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "shop.db")
        return
    url = DATABASES.borrow()
    yield url
    DATABASES.give_back(url)


@pytest.mark.parametrize(("name", "store", "printed"), RUNS, indirect=["store"])
def test_the_example_runs_and_prints_what_it_found(name: str, store: str, printed: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", FOLDER / name, store],
        check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout.strip() == printed


def test_every_example_is_run() -> None:
    assert {path.name for path in FOLDER.glob("*.py")} == {name for name, _, _ in RUNS}
