"""Whatever people and programs store is text: in a real browser it runs nothing, on no page."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evervec.server.dashboard.paths import SIGN_IN
from support.browser import Visitor
from support.dashboard import address, pages
from support.furnished import FAILING, furnish, furnished
from support.service import Serve, Served

HOSTILE = (
    '"><script>window.ran=1</script><img src=x onerror=window.ran=1>'
    "'-->]]></title></textarea></style>{{7*7}}${7*7}<b>\u202ejavascript:window.ran=1\ufeff&amp;%0a"
)
SOUND = """
() => [
  window.ran,
  document.querySelectorAll("script").length,
  document.querySelectorAll("main img, main iframe, main object, main style, [style]").length,
  [...document.querySelectorAll("*")].filter((each) =>
    [...each.attributes].some((given) => given.name.startsWith("on"))).length,
  [...document.querySelectorAll("a, form")].filter((each) =>
    !new URL(each.getAttribute("href") || each.getAttribute("action") || "", location.href)
      .href.startsWith(location.origin)).length,
]
"""


class Hostile:
    """A service whose store is full of markup."""

    def __init__(self, served: Served, folder: Path) -> None:
        ev = served.ev.of(HOSTILE)
        self.served = served
        self.values = furnish(ev, folder / "store.db", HOSTILE)
        ev.add("note", f"{FAILING} {HOSTILE}", id=f"second {HOSTILE}")
        served.ev.process_all()
        self.key = served.key(HOSTILE, "admin", agent=HOSTILE)
        self.addresses = [
            address(path, self.values, tenant=HOSTILE) for path in pages() if path != SIGN_IN
        ]


@pytest.fixture
def hostile(tmp_path: Path, serve: Serve) -> Iterator[Hostile]:
    with furnished(tmp_path, rate_per_second=1e6, rate_burst=10**6) as ev:
        served = serve(ev)
        yield Hostile(served, tmp_path)
        served.close()


def test_no_page_runs_or_misplaces_what_is_stored(
    hostile: Hostile, visit: Callable[..., Visitor]
) -> None:
    visitor = visit(hostile.served)
    page = visitor.sign_in(hostile.key)
    for asked in hostile.addresses:
        answer = page.goto(asked)
        assert answer
        assert answer.status == 200, (asked, page.inner_text("main"))
        assert page.evaluate(SOUND) == [None, 1, 0, 0, 0], asked
        visitor.assert_quiet()
