"""The overview: the state in words, charts, and how to begin."""

import pytest

from evervec import Evervec
from support.pages import Operator
from support.service import Served
from support.world import add_all, fail_for_good


@pytest.fixture
def admin(served: Served) -> Operator:
    return Operator(served)


def test_an_empty_store_shows_how_to_begin(served: Served, admin: Operator) -> None:
    shown = admin.read("/")
    assert "There are no records yet" in shown.text
    assert "evervec add note" in shown.text
    assert f"curl -X POST {served.url}/v1/records" in shown.text
    copied = [attrs["data-copy"] for _, attrs in shown.tags if "data-copy" in attrs]
    ids = {attrs.get("id") for _, attrs in shown.tags}
    assert copied
    assert set(copied) <= ids


def test_the_state_is_said_first_and_then_drawn(ev: Evervec, admin: Operator) -> None:
    add_all(ev, "note", "a", "b", "c")
    ev.process_all()
    shown = admin.read("/")
    assert "There are no records yet" not in shown.text
    assert shown.text.index("searchable") < shown.text.index("Throughput")
    for chart in ("Freshness", "Throughput", "Depth", "Spend"):
        assert chart in shown.text
    assert sum(row["done"] for row in admin.rows("/")) == 3


@pytest.mark.parametrize(
    ("range", "points"), [("hour", 60), ("day", 144), ("week", 168), ("month", 120)]
)
def test_the_range_of_the_charts_is_in_the_address(
    ev: Evervec, admin: Operator, range: str, points: int
) -> None:
    ev.add("note", "a", id="1")
    assert abs(len(admin.rows("/", range=range)) - points) <= 1
    current = [
        attrs["href"]
        for tag, attrs in admin.read("/", range=range).tags
        if tag == "a" and attrs.get("aria-current") == "true"
    ]
    assert current == [f"/?range={range}"]


def test_an_unknown_range_is_refused_with_those_that_are_known(admin: Operator) -> None:
    assert "'hour', 'day', 'week' or 'month'" in admin.read("/", status=422, range="year").text


def test_trouble_is_said_with_a_link_to_the_page_about_it(ev: Evervec, admin: Operator) -> None:
    ev.add("note", "a", id="1")
    fail_for_good(ev, "1")
    shown = admin.read("/")
    assert "failed" in shown.text
    assert "/ui/failures" in shown.links


def test_each_tenant_sees_its_own_numbers(ev: Evervec, served: Served) -> None:
    add_all(ev, "note", "a", "b")
    ev.process_all()
    reader = Operator(served, served.key("other", "reader"))
    assert "There are no records yet" in reader.read("/").text
    assert sum(row["done"] for row in reader.rows("/")) == 0
    assert reader.get("/", tenant="default").status_code == 403
    admin = Operator(served, served.key(role="admin"))
    assert sum(row["done"] for row in admin.rows("/")) == 2
    assert sum(row["done"] for row in admin.rows("/", tenant="other")) == 0
