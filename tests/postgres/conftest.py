from collections.abc import Iterator
from pathlib import Path

import pytest

from support.engines import STORES
from support.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A world in PostgreSQL."""
    world = World(("postgres", "pgvector"), tmp_path)
    yield world
    world.close()


@pytest.fixture
def url(world: World) -> str:
    """The address of its database."""
    return STORES["postgres"].url(world.folder)
