from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.world import KIND, World, work

Make = Callable[..., World]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Worlds whose collection serves and is empty."""
    made: list[World] = []

    def world(index: str, store: str = "sqlite", **settings: object) -> World:
        made.append(World((store, index), tmp_path, **settings))
        made[-1].ev.add(KIND, "gone", id="0")
        work(made[-1].ev)
        made[-1].ev.delete(KIND, "0")
        work(made[-1].ev)
        return made[-1]

    yield world
    for one in made:
        one.close()
