from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import evervec
from evervec import Evervec
from evervec.server.dashboard import live
from support.browser import Running, Visitor, running_browser
from support.service import Serve, Served, serving


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Live pages look for changes ten times as often: most of what their tests wait for."""
    monkeypatch.setattr(live, "LEAST_SECONDS", live.LEAST_SECONDS / 10)
    monkeypatch.setattr(live, "MOST_SECONDS", live.MOST_SECONDS / 10)


@pytest.fixture
def ev(tmp_path: Path) -> Iterator[Evervec]:
    with evervec.open(tmp_path / "store.db", embedder="hashing") as opened:
        yield opened


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts services in this process, which end with the test."""
    with serving() as starter:
        yield starter


@pytest.fixture
def served(ev: Evervec, serve: Serve) -> Served:
    """A service without a worker."""
    return serve(ev)


@pytest.fixture(scope="session")
def browser() -> Iterator[Running]:
    """One for all tests of this process: it takes longer to start than most pages to test."""
    with running_browser() as browser:
        yield browser


@pytest.fixture
def visit(browser: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Visitor]]:
    """Visitors with cookies of their own; what their pages must not do fails the test. Their pages
    follow the store more closely than elsewhere: most of such a test was waiting for it."""
    for name, value in (("LEAST_SECONDS", 0.1), ("MOST_SECONDS", 0.3), ("_SHARE", 1.0)):
        monkeypatch.setattr(f"evervec.server.dashboard.live.{name}", value)
    with ExitStack() as visitors:

        def visit(served: Served, **options: Any) -> Visitor:
            return visitors.enter_context(browser.visiting(served.url, **options))

        yield visit


@pytest.fixture
def visitor(served: Served, visit: Callable[..., Visitor]) -> Visitor:
    return visit(served)
