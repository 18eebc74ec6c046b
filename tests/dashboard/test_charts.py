"""Charts: what their ticks say, and that it can be read on every screen."""

import re
from collections.abc import Callable

import pytest

from evervec import Evervec
from evervec.server.dashboard import charts
from evervec.server.dashboard.charts import Series
from evervec.server.dashboard.words import compact
from support.browser import Visitor, expect
from support.service import Served

_CUT_OFF = """
() => [...document.querySelectorAll(".chart .tick")].filter((each) => {
    const [tick, card] = [each, each.closest(".card")].map((node) => node.getBoundingClientRect());
    return tick.left < card.left || tick.right > card.right;
}).map((each) => each.textContent)
"""
_MEETING = """
() => [...document.querySelectorAll(".chart svg")].flatMap((chart) => {
    const ticks = [...chart.querySelectorAll(".tick")].map((each) => [each.textContent, each.getBBox()]);
    return ticks.flatMap(([one, a], n) => ticks.slice(n + 1)
        .filter(([, b]) => a.x < b.x + b.width && b.x < a.x + a.width
                        && a.y < b.y + b.height && b.y < a.y + a.height)
        .map(([other]) => `${one} and ${other}`));
})
"""
"""ticks on each other"""


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "0"), (8, "8"), (1_500, "1,500"), (9_999, "9,999"), (10_000, "10k"), (37_500, "37.5k"),
        (750_000, "750k"), (1_000_000, "1M"), (1_125_000, "1.125M"), (3e9, "3G"), (6e11, "600G"),
    ],
)  # fmt: skip
def test_a_tick_is_short(value: float, said: str) -> None:
    assert compact(value) == said


@pytest.mark.parametrize("most", [3, 47, 999, 12_345, 8_000_001, 123_456_789, 10**11])
def test_ticks_are_short_and_tips_exact(most: int) -> None:
    drawn = charts.bars("Tokens", ["12:00"], [Series("tokens", [most])])
    ticks = re.findall(r'<text class="tick"[^>]*end">([^<]*)<', drawn)
    assert len(ticks) == len(set(ticks)) == 5
    assert all(len(tick) <= 6 for tick in ticks), ticks
    assert f"tokens: {most:,}" in drawn


@pytest.mark.parametrize("width", [360, 640, 1280])
def test_every_tick_can_be_read(
    ev: Evervec, served: Served, visit: Callable[..., Visitor], width: int
) -> None:
    ev.add("note", "a first text", id="1")
    ev.process_all()
    visitor = visit(served, viewport={"width": width, "height": 740})
    for range in ("hour", "week", "month"):
        page = visitor.go(f"/?range={range}")
        expect(page.locator(".chart .tick").first).to_be_attached()
        assert page.evaluate(_CUT_OFF) == []
        assert page.evaluate(_MEETING) == []
