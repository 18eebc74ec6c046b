"""Walks by chance through all that changes a record or its points; then the index is exact."""

from pathlib import Path

import pytest

from evervec.indexes import blocks, matrix, sketch_parts
from evervec.stores.sqlite import postings, word_blocks
from support.engines import OWN_PAIRS, STORES
from support.walking import Walk
from support.world import World


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few records are many: sketches are used and kept in parts, and so are words."""
    monkeypatch.setattr(matrix, "_MANY", 64 * 6)
    monkeypatch.setattr(sketch_parts, "ROWS", 4)
    monkeypatch.setattr(blocks, "_VECTORS_SHARE", 1 << 17)
    monkeypatch.setattr(postings, "ROWS", 4)
    monkeypatch.setattr(word_blocks, "_FEW_UNSORTED", 8)


def walk(pair: tuple[str, str], folder: Path, seed: int, *, forgets: bool = False) -> None:
    settings = {} if forgets else {"keep_done_days": 10_000}
    world = World(pair, folder, **settings)
    shared = STORES[pair[0]].shared and pair[0] != "duckdb"
    try:
        Walk(world, seed, handles=1 + shared, forgets=forgets).go(100)
    finally:
        world.close()


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.usefixtures("small")
def test_after_any_walk_the_index_is_exact(tmp_path: Path, seed: int) -> None:
    walk(("memory", "sqlite"), tmp_path, seed, forgets=seed % 4 == 3)


@pytest.mark.parametrize("pair", [*OWN_PAIRS, ("memory", "qdrant-memory"), ("sqlite", "lancedb")],
                         ids="-".join)  # fmt: skip
@pytest.mark.usefixtures("small")
def test_after_a_walk_on_any_engine_the_index_is_exact(
    tmp_path: Path, pair: tuple[str, str]
) -> None:
    walk(pair, tmp_path, 101)
