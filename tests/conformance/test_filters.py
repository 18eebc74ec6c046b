"""Filters have one meaning: every operator with every value, combined, on every store and index."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from support.filters import matches
from support.world import World, work

VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2.5, 1e300, 2**53 + 1, "", "a", "ab", "b", "B", "ä", "1", "it's",
    "50%", "x" * 300, [], [1, "a"], [None], ["ab", True, 2.5], [["a"]], {"a": 1},
]  # fmt: skip
ASKED = [v for v in VALUES if not isinstance(v, (list, dict))]
RANGED = [v for v in ASKED if v is not None and not isinstance(v, bool)]


def single() -> Iterator[dict[str, Any]]:
    """Filters with one operator."""
    for value in ASKED:
        yield {"f": value}
        yield {"f": {"ne": value}}
    for place, pair in enumerate(pairwise(ASKED)):
        yield {"f": {"not_in": list(pair)}} if place % 2 else {"f": list(pair)}
    for value in RANGED[::2]:
        for op in ("gt", "gte", "lt", "lte"):
            yield {"f": {op: value}}
    for part in ("", "a", "b", "%", "'", "1", "x" * 250):
        yield {"f": {"contains": part}}
    yield from ({"f": []}, {"f": {"exists": True}}, {"f": {"exists": False}}, {"g": "a"}, {})


def combined() -> Iterator[dict[str, Any]]:
    """Each of these, by turns: negated; or another one; both combined and negated."""
    all = [wanted for wanted in single() if wanted]
    for place, one in enumerate(all):
        other = all[place - 7]
        yield (
            {"not": one},
            {"or": [one, {**other, "g": "even"}]},
            {"not": {"or": [{"and": [one, {"g": "odd"}]}, {"not": other}]}},
        )[place % 3]


EMPTY: list[dict[str, Any]] = [
    {"not": {"f": []}}, {"and": [{}]}, {"not": {"and": [{}]}}, {"or": [{}, {"g": "odd"}]},
]  # fmt: skip
"""everything, or nothing: programs that make filters give such"""


@pytest.mark.index_port
def test_every_filter_means_the_same_everywhere(world: World) -> None:
    rows = {str(n): {"f": v, "g": ("even", "odd")[n % 2]} for n, v in enumerate(VALUES)}
    rows["none"] = {}
    records = [{"id": id, "text": f"alpha {id}", "metadata": row} for id, row in rows.items()]
    list(world.ev.add_many("n", records))
    work(world.ev)
    asked = [*single(), *combined(), *EMPTY]
    for wanted in asked:
        assert {r.id for r in world.ev.records(filter=wanted)} == fitting(rows, wanted), wanted
    for wanted in [*asked[::3], *EMPTY]:
        hits = world.ev.search("alpha", 100, mode="semantic", filter=wanted)
        assert {hit.id for hit in hits} == fitting(rows, wanted), wanted


def fitting(rows: dict[str, dict[str, Any]], wanted: dict[str, Any]) -> set[str]:
    return {id for id, row in rows.items() if matches(row, wanted)}
