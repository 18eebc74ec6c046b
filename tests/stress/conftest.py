from collections.abc import Iterator
from pathlib import Path

import pytest

from support.oracle import Oracle
from support.processes import Start, children
from support.stress import SECONDS, Site, new_seed


@pytest.fixture
def seed() -> int:
    return new_seed()


@pytest.fixture
def oracle(request: pytest.FixtureRequest, seed: int) -> Oracle:
    again = f"EVERVEC_STRESS_SEED={seed} EVERVEC_STRESS_SECONDS={SECONDS:g}"
    print(f"seed {seed}")
    return Oracle(f"{again} repeats the choices of {request.node.name}")


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """The store and index that a test names by parameters."""
    site = Site(request.param, tmp_path)
    yield site
    site.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with children(tmp_path) as starter:
        yield starter
