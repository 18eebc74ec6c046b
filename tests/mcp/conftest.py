from collections.abc import Iterator
from pathlib import Path

import pytest

import evervec
from evervec import Evervec
from support.service import Serve, Served, serving


@pytest.fixture(params=["auto", "legacy"])
def mode(request: pytest.FixtureRequest) -> str:
    """Both generations of the protocol: the current one, and the one with a handshake."""
    return str(request.param)


@pytest.fixture
def ev(tmp_path: Path) -> Iterator[Evervec]:
    with evervec.open(tmp_path / "store.db", embedder="hashing") as opened:
        yield opened


@pytest.fixture
def working(ev: Evervec) -> Iterator[Evervec]:
    """A store with a worker."""
    with ev.worker():
        yield ev


@pytest.fixture
def serve() -> Iterator[Serve]:
    with serving() as starter:
        yield starter


@pytest.fixture
def served(ev: Evervec, serve: Serve) -> Served:
    """A service with a worker inside."""
    return serve(ev, workers=1)
