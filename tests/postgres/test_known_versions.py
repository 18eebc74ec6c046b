"""What a process knows of kinds and versions is read again after any change of them."""

import pytest

import evervec
from support.postgres import execute
from support.world import KIND, World


@pytest.mark.parametrize("last", range(1, 7))
def test_a_version_is_seen_though_the_store_s_numbers_repeat(
    world: World, url: str, last: int
) -> None:
    """As after a restore: a number comes again that was noted before."""
    execute(url, f"update evervec.meta set value = {last} where key = 'versions'")
    execute(url, "alter sequence evervec.numbers restart")
    assert world.ev.store.versions.collections() == []
    with evervec.open(url, embedder="hashing") as other:
        other.add(KIND, "alpha", id="1")
    assert [c.kind for c in world.ev.store.versions.collections()] == [KIND]
