"""The simulation of large deployments: it loses nothing, and fits what was measured."""

from pathlib import Path

import pytest

from benchmarks import sizing
from benchmarks.sizing import Deployment, checks, simulate, table


def test_predictions_fit_the_measurements() -> None:
    assert [line.what for line in checks() if not line.met] == []


@pytest.mark.parametrize("given", sizing.DEPLOYMENTS, ids=lambda given: f"{given.vectors:,}")
def test_every_record_of_a_simulated_load_is_written(given: Deployment) -> None:
    done = simulate(given)
    assert done.written == given.vectors
    assert simulate(given) == done, "the same seed gives the same load"


def test_more_gpus_are_faster_until_writing_or_building_is_the_bottleneck() -> None:
    hours = [simulate(Deployment(50_000_000, gpus)).hours for gpus in (1, 2, 4, 64, 128)]
    assert hours == sorted(hours, reverse=True)
    assert hours[0] > 1.25 * hours[1]
    assert hours[3] < 1.05 * hours[4]
    assert simulate(Deployment(1_000_000_000, 16)).bottleneck == "embedding"
    assert simulate(Deployment(1_000_000_000, 32)).bottleneck == "building the index"


def test_failures_cost_work_but_no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    calm = simulate(Deployment(200_000_000, 8))
    monkeypatch.setattr(sizing, "FAILURES", 2.0)
    stormy = simulate(Deployment(200_000_000, 8))
    assert stormy.written == calm.written
    assert stormy.lost > calm.lost
    assert stormy.hours > calm.hours


def test_the_page_shows_what_the_simulation_gives() -> None:
    page = Path(__file__).parents[2] / "docs" / "sizing.md"
    assert table() in page.read_text("utf-8"), "run `make bench ARGS=sizing` and copy the table"
