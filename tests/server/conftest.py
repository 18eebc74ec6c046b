from collections.abc import Iterator
from pathlib import Path

import pytest

import evervec
from evervec import Evervec
from evervec.server import requests
from support.service import Serve, Served, serving


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
    """A service with a worker inside."""
    return serve(ev, workers=1)


@pytest.fixture
def brief_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    """For clients that send nothing more once they were refused: the service does not wait for it."""
    monkeypatch.setattr(requests, "_LINGER_SECONDS", 0.05)
