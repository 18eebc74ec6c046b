"""The weight of a tenant is looked up without waiting for the store."""

import pytest

from evervec.errors import StoreError
from evervec.model.usage import Limits
from evervec.server import weights as module
from evervec.server.weights import Weights
from support.world import Clock


class Store:
    """Has weights, counts how often they are read, and may be away."""

    def __init__(self, **weights: int) -> None:
        self.weights = weights
        self.reads = 0
        self.away = False

    def limits(self, tenant: str) -> Limits:
        self.reads += 1
        if self.away:
            raise StoreError("away")
        return Limits(weight=self.weights.get(tenant))


def test_a_weight_is_read_after_a_request_and_again_some_seconds_later() -> None:
    store, clock = Store(a=7), Clock()
    weights = Weights(store.limits, clock)
    assert (weights.of("a"), store.reads) == (1, 0)
    for _ in range(100):
        weights.refresh("a")
        weights.refresh("other")
    assert (weights.of("a"), weights.of("other"), store.reads) == (7, 1, 2)
    store.weights["a"] = 2
    clock.move(5)
    weights.refresh("a")
    assert (weights.of("a"), store.reads) == (2, 3)


def test_while_the_store_is_away_weights_stay_and_it_is_not_asked_for_each_request() -> None:
    store, clock = Store(a=7), Clock()
    weights = Weights(store.limits, clock)
    weights.refresh("a")
    store.away = True
    for _ in range(3):
        clock.move(5)
        for _ in range(10):
            weights.refresh("a")
    assert (weights.of("a"), store.reads) == (7, 4)


def test_those_that_were_away_longest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_KNOWN", 2)
    store = Store(a=2, b=3, c=4)
    weights = Weights(store.limits, Clock())
    for tenant in ("a", "b", "a", "c"):
        weights.refresh(tenant)
    assert [weights.of(tenant) for tenant in "abc"] == [2, 1, 4]
