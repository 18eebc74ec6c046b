"""Search, records, map and versions in a real browser."""

import pytest

from evervec import Evervec
from support.browser import Scheme, Visitor, expect
from support.service import Serve, Served


@pytest.fixture
def library(ev: Evervec, serve: Serve) -> Served:
    """A service with records of two kinds, and a change of the model that is under way."""
    text = "\n\n".join(f"Tea number {n} is grown on hills. " * 30 for n in range(4))
    for n in range(30):
        ev.add("note", f"{n}: {text}", id=f"a/{n}", title=f"Tea {n}",
               metadata={"topic": f"t{n % 9}", "year": 2000 + n})  # fmt: skip
    ev.add("page", "A tea house in the hills of Kyoto.", id="house")
    ev.process_all()
    ev.migrate("hashing:64", version="next", kind="note")
    ev.process_all()
    return serve(ev)


LOOKS = (
    "/ui/search",
    "/ui/search?q=tea+hills&kind=note&field=year&test=gte&value=2010",
    "/ui/search?q=tea+hills&version=hashing-256&other=next",
    "/ui/search?q=tea&filter=x",
    "/ui/records",
    "/ui/records?field=topic&test=eq&value=t1",
    "/ui/records/note/a%2F1",
    "/ui/map",
    "/ui/map?colour=field:topic",
    "/ui/map?colour=age",
    "/ui/versions",
)


@pytest.mark.parametrize(
    "schemes",
    [("light",), pytest.param(("light", "dark"), marks=pytest.mark.long)],
    ids="-".join,
)
def test_every_page_is_sound(
    library: Served, visitor: Visitor, schemes: tuple[Scheme, ...]
) -> None:
    visitor.expected = ("status of 422",)  # of the filter that is none
    page = visitor.sign_in(library.key(role="admin"))
    for path in LOOKS:
        page.goto(path)
        for details in page.locator("main details > summary").all():
            details.click()
        visitor.assert_sound(*schemes)


def test_a_search_is_narrowed_explained_and_copied(library: Served, visitor: Visitor) -> None:
    page = visitor.sign_in(library.key(role="reader"), "/ui/search")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("tea house Kyoto")
    page.keyboard.press("Enter")
    first = page.get_by_role("article").first
    expect(first).to_contain_text("house")
    first.get_by_text("Why, and where").click()
    expect(first).to_contain_text("rank 1 by")
    page.get_by_label("Copy as curl").click()
    expect(page.locator(".copied")).to_be_visible()
    page.get_by_role("article").first.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("house")
    visitor.assert_sound()


def test_a_record_is_deleted_from_its_page(ev: Evervec, library: Served, visitor: Visitor) -> None:
    page = visitor.sign_in(library.key(role="writer"), "/ui/records/note/a%2F1")
    page.get_by_label("Type a/1 to confirm").fill("a/1")
    page.get_by_role("button", name="Delete this record").click()
    expect(page.get_by_text("is deleted: searches no longer find it")).to_be_visible()
    assert ev.get("note", "a/1") is None
    visitor.assert_sound()


def test_a_point_of_the_map_leads_to_its_record(library: Served, visitor: Visitor) -> None:
    page = visitor.sign_in(library.key(role="reader"), "/ui/map?kind=page")
    page.locator(".map circle").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("house")
    visitor.assert_sound()


def test_a_version_is_switched_to_and_back(ev: Evervec, library: Served, visitor: Visitor) -> None:
    page = visitor.sign_in(library.key(role="admin"), "/ui/versions")
    for do, heading in (("Switch", "Switched to next"), ("Roll back", "Rolled back from next")):
        page.get_by_text(f"{do} …").click()
        page.get_by_label("Type next to confirm").first.fill("next")
        page.get_by_role("button", name=do, exact=True).click()
        expect(page.get_by_role("heading", name=heading)).to_be_visible()
    assert ev.search("tea", kind="note").version == "hashing-256"
    visitor.assert_sound()
