"""A store in trouble, as an operator who has never seen it finds it: everything is said on the first
page, and mended from the pages that it leads to, while a worker runs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from support.browser import Visitor, expect
from support.service import Serve
from support.showcase import answer, showcase


@pytest.mark.long
def test_every_trouble_is_found_and_mended_from_the_pages(
    tmp_path: Path, serve: Serve, visit: Callable[..., Visitor]
) -> None:
    with showcase(tmp_path, in_trouble=True) as (ev, providers):
        served = serve(ev, workers=1)
        visitor = visit(served)
        page = visitor.sign_in(served.key(role="admin", agent="operator"))
        state = page.locator("#live")
        for said in ("answered 503", "jobs wait; none is lost", "changes are missed", "failed"):
            expect(state).to_contain_text(said)

        answer(providers)  # the provider is back, as its status page says
        page.get_by_role("link", name="See workers").first.click()
        page.get_by_role("button", name="Probe now").click()
        expect(page.locator(".notice")).to_be_visible()

        page.get_by_role("link", name="Tables").click()
        page.get_by_role("link", name="Attach again").or_(
            page.get_by_role("button", name="Attach again")
        ).first.click()
        page.get_by_role("button", name="Attach again", exact=True).click()
        expect(page.locator(".notice")).to_contain_text("attached again")

        page.get_by_role("link", name="Failures").click()
        page.locator("main").get_by_text("Retry").first.click()
        page.get_by_role("button", name="Retry").click()
        expect(page.locator(".notice")).to_be_visible()

        visitor.go("/")
        expect(state).not_to_contain_text("answered 503")
        expect(state).not_to_contain_text("changes are missed")
        served.close()
