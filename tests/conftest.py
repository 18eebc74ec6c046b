"""Fixtures that every folder of tests can use."""

import atexit
import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("support")
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # else its pipelines report to its makers

from support import chromium, postgres, quick_disk  # noqa: E402
from support.engines import (  # noqa: E402
    APART_PAIRS,
    JOINED_PAIRS,
    OWN_PAIRS,
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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A run without a browser must not look like one with it."""
    skipped = terminalreporter.stats.get("skipped", [])
    if left_out := [each for each in skipped if chromium.NO_BROWSER in str(each.longrepr)]:
        terminalreporter.section("NO BROWSER", red=True, bold=True)
        terminalreporter.line(f"{len(left_out)} tests of the dashboard did not run: {chromium.HOW}")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests stay until the end: the garbage collector need not look at them."""
    gc.disable()
    result = yield
    gc.freeze()
    # else DuckDB's bindings report objects that were not freed; only after pytest has collected
    # garbage for the last time, which would take seconds
    atexit.register(gc.unfreeze)
    gc.enable()
    return result


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave to `make pairs` what others of the same store or of the same index check.

    A test runs on every store over its own index. One that is about the index, by its mark or
    because it runs on indexes outside the store alone, also runs once on each of those. With
    `every_index` alone, Qdrant's server is left to the suites of the port, marked `index_port`: it
    and Qdrant in this process share their adapter, apart from what sends requests."""
    if config.getoption("every_pair"):
        return
    on_own = {_function(item) for item in items if _pairs(item) & _OWN}
    spared = {item for item in items if not _is_usual(item, _function(item) in on_own)}
    config.hook.pytest_deselected(items=list(spared))
    items[:] = [item for item in items if item not in spared]


_OWN, _USUAL = frozenset(OWN_PAIRS), frozenset(USUAL_PAIRS)
_IN_PROCESS = _USUAL - {("sqlite", "qdrant")}


def _is_usual(item: pytest.Item, on_own: bool) -> bool:
    if item.get_closest_marker("every_pair"):
        return True
    if not on_own or item.get_closest_marker("index_port"):
        return _pairs(item) <= _USUAL
    return _pairs(item) <= (_IN_PROCESS if item.get_closest_marker("every_index") else _OWN)


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _pairs(item: pytest.Item) -> set[object]:
    """The pairs of store and index among its parameters, alone or first in a tuple."""
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    firsts = [value[0] for value in values if isinstance(value, tuple) and value]
    given = [value for value in (*values, *firsts) if isinstance(value, tuple)]
    return {value for value in given if value in PAIRS}


@pytest.fixture(params=PAIRS, ids="-".join)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Every store over its own index; with `every_index`, `index_port` or `every_pair`, over others
    too."""
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
