"""Fixtures that every folder of tests can use."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("support")

from support import postgres, quick_disk  # noqa: E402
from support.engines import (  # noqa: E402
    APART_PAIRS,
    JOINED_PAIRS,
    PAIRS,
    SAVEPOINT_PAIRS,
    SHARED_PAIRS,
    USUAL_PAIRS,
)
from support.world import World  # noqa: E402

quick_disk.use()

settings.register_profile("evervec", deadline=None, max_examples=60, print_blob=True)
settings.register_profile("thorough", deadline=None, max_examples=3000, print_blob=True)
settings.load_profile("evervec")  # `pytest --hypothesis-profile=thorough` takes its time


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the run itself, not one of its processes
        postgres.make_folder()


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        postgres.remove_folder()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every-pair", action="store_true", help="every store with every index")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("every_pair"):
        return
    spared = {item for item in items if _is_spared(item)}
    config.hook.pytest_deselected(items=list(spared))
    items[:] = [item for item in items if item not in spared]


def _is_spared(item: pytest.Item) -> bool:
    """Whether it is about a pair that is left to `make pairs`, because others of its store and of
    its index run; not where a test is about what store and index do together."""
    if item.get_closest_marker("every_pair") or not hasattr(item, "callspec"):
        return False
    values = item.callspec.params.values()
    # a pair by itself, or first among what a test is given
    given = [*values, *(value[0] for value in values if isinstance(value, tuple) and value)]
    return any(value in PAIRS and value not in USUAL_PAIRS for value in given)


@pytest.fixture(params=PAIRS, ids="-".join)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Every store with every index over it."""
    yield from _world(request.param, tmp_path)


@pytest.fixture(params=SHARED_PAIRS, ids="-".join)
def shared_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Those that may be opened several times."""
    yield from _world(request.param, tmp_path)


@pytest.fixture(params=JOINED_PAIRS, ids="-".join)
def joined_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Those that can take part in the caller's own transaction."""
    yield from _world(request.param, tmp_path)


@pytest.fixture(params=SAVEPOINT_PAIRS, ids="-".join)
def savepoint_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Those of them where a part of a transaction can be undone."""
    yield from _world(request.param, tmp_path)


@pytest.fixture(params=APART_PAIRS, ids="-".join)
def apart_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Those whose index lies outside the store."""
    yield from _world(request.param, tmp_path)


@pytest.fixture
def duckdb_world(tmp_path: Path) -> Iterator[World]:
    """One world in a DuckDB file, for what only its connections have."""
    yield from _world(("duckdb", "duckdb"), tmp_path)


@pytest.fixture
def file_world(tmp_path: Path) -> Iterator[World]:
    """One world in an SQLite file, for what only its connections have."""
    yield from _world(("sqlite", "sqlite"), tmp_path)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[World]:
    """One world in memory, for what has nothing to do with engines."""
    yield from _world(("memory", "sqlite"), tmp_path)


def _world(pair: tuple[str, str], folder: Path) -> Iterator[World]:
    world = World(pair, folder)
    yield world
    world.close()
