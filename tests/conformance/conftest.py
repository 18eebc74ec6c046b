"""Suites about the store alone run once for each store, not again for each index over it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.engines import OWN_PAIRS, apart
from support.job_bench import Bench
from support.qstash import CRON_SECRET, CURRENT_KEY, TOKEN, Broker, broker
from support.service import Served, serving
from support.world import World

OF_THE_STORE = frozenset(
    {
        "test_care", "test_claim", "test_closing", "test_deadlines", "test_delete_version", "test_dispatch", "test_enqueue",
        "test_fail_release_renew", "test_failures", "test_fairness", "test_history", "test_keys", "test_locks", "test_own_vectors", "test_quotas",
        "test_records_listing", "test_recover", "test_save", "test_selection", "test_serving", "test_stats", "test_summary",
        "test_text_search", "test_timeline", "test_traces", "test_transaction", "test_typed_records",
        "test_work_by_hand",
    }
)  # fmt: skip


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    spared = {item for item in items if item.path.stem in OF_THE_STORE and _is_apart(item)}
    config.hook.pytest_deselected(items=list(spared))
    items[:] = [item for item in items if item not in spared]


def _is_apart(item: pytest.Item) -> bool:
    assert isinstance(item, pytest.Function)
    given = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return any(isinstance(pair, tuple) and len(pair) == 2 and apart(pair[1]) for pair in given)


@pytest.fixture
def qstash(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    with broker() as found:
        monkeypatch.setenv("QSTASH_URL", found.url)
        monkeypatch.setenv("QSTASH_TOKEN", TOKEN)
        monkeypatch.setenv("QSTASH_CURRENT_SIGNING_KEY", CURRENT_KEY)
        monkeypatch.setenv("CRON_SECRET", CRON_SECRET)
        yield found


@pytest.fixture
def served(world: World) -> Iterator[Served]:
    with serving() as serve:
        yield serve(world.ev)


_BENCHES = [(pair, False) for pair in OWN_PAIRS] + [
    (pair, True) for pair in OWN_PAIRS if pair[0] == "postgres"
]


@pytest.fixture(
    scope="module", params=_BENCHES, ids=[pair[0] + "-told" * told for pair, told in _BENCHES]
)
def bench(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    """A store of each engine for jobs in any state; PostgreSQL also with leases that only their
    claims tell."""
    pair, told = request.param
    world = World(pair, Path(tmp_path_factory.mktemp("bench")))
    yield Bench(world, told=told)
    world.close()
