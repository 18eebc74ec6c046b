"""What every answer of the dashboard tells a browser: the strictest policy, and not to be framed."""

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Route

from evervec.server.dashboard.paths import SIGN_IN
from support.browser import Visitor
from support.dashboard import actions, address, filled, pages, person
from support.furnished import furnish, furnished
from support.service import Serve, Served

POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
}
BARE = {"default-src": "'none'", "frame-ancestors": "'none'"}
ANYTHING = dict.fromkeys(("id", "kind", "fingerprint", "tenant"), "1") | {"step": "switch"}
ASSETS = ("dashboard.css", "dashboard.js", "icon.svg")


def assert_strict(answer: httpx.Response) -> None:
    """A page may load its own files; whatever else there is may load nothing."""
    headers, asked = answer.headers, f"{answer.request.method} {answer.request.url}"
    parts = [part.split() for part in headers["content-security-policy"].split(";")]
    said = {name: " ".join(values) for name, *values in parts}
    assert headers["x-content-type-options"] == "nosniff", asked
    if headers.get("content-type", "").startswith(("text/html", "text/event-stream")):
        assert said == POLICY, asked
        assert headers["x-frame-options"] == "DENY", asked
        assert headers["cross-origin-opener-policy"] == "same-origin", asked
    else:
        assert said in (POLICY, BARE), asked


@pytest.fixture
def store(tmp_path: Path, serve: Serve) -> Iterator[tuple[Served, dict[str, object]]]:
    with furnished(tmp_path, rate_per_second=1e6, rate_burst=10**6) as ev:
        values = furnish(ev, tmp_path / "store.db", "giraffe")
        served = serve(ev)
        yield served, values
        served.close()


def test_every_page_has_the_strict_policy(store: tuple[Served, dict[str, object]]) -> None:
    served, values = store
    admin = person(served, served.key(role="admin"))
    for path in pages():
        for asked in (address(path, values), filled(path, {**values, **ANYTHING, "path": "x"})):
            for format in ("", "csv", "ndjson"):
                assert_strict(admin.get(asked, **({"format": format} if format else {})))


def test_a_page_can_be_asked_for_its_headers_alone(store: tuple[Served, dict[str, object]]) -> None:
    """As programs do that watch whether a service answers."""
    served, values = store
    admin = person(served, served.key(role="admin"))
    for accept in ("text/html", "text/event-stream"):
        answer = admin.http.head(filled("/ui/jobs", values), headers={"Accept": accept})
        assert (answer.status_code, answer.content) == (200, b"")
        assert_strict(answer)


def test_every_live_page_has_the_strict_policy(store: tuple[Served, dict[str, object]]) -> None:
    served, values = store
    admin = person(served, served.key(role="admin"))
    for path in pages():
        if path != SIGN_IN:
            with admin.watch(address(path, values)) as stream:
                assert_strict(stream)


def test_every_refusal_has_the_strict_policy(store: tuple[Served, dict[str, object]]) -> None:
    served, _ = store
    nobody, reader = person(served), person(served, served.key(role="reader"))
    for path in actions():
        for who in (nobody, reader):
            answer = who.http.post(filled(path, ANYTHING), data={"form_token": "wrong"})
            assert_strict(answer)
            assert answer.status_code in (303, 401, 403, 422), path
    for path in pages():
        assert_strict(nobody.get(filled(path, {**ANYTHING, "path": "x"})))
    for odd in ("/ui/nothing", "/ui/jobs/-1", "/?range=never", "/ui/%00"):
        assert_strict(reader.get(odd))
    assert_strict(reader.http.put("/ui/jobs"))


def test_assets_may_load_nothing_and_are_not_framed(served: Served) -> None:
    someone = person(served)
    text = someone.get("/").text
    for name in ASSETS:
        (place,) = {part for part in text.split('"') if part.endswith(f"/{name}")}
        for asked in (place, place.replace(name, "nothing.js")):
            assert_strict(someone.get(asked))


def framed(visitor: Visitor, served: Served, path: str, *, without_headers: bool = False) -> str:
    """What a page of another site shows in its frame."""
    other = "http://elsewhere.example/"

    def bare(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(body=answer.body(), status=answer.status, content_type="text/html")

    body = f'<p>harmless</p><iframe src="{served.url}{path}"></iframe>'
    visitor.context.route(
        f"{other}**", lambda route: route.fulfill(body=body, content_type="text/html")
    )
    if without_headers:
        visitor.context.route(f"{served.url}/**", bare)
    visitor.page.goto(other)
    visitor.page.wait_for_load_state()
    found: str = visitor.page.frames[1].content()
    visitor.findings.clear()  # of the other site
    return found


@pytest.mark.parametrize("path", ["/", "/ui/jobs", SIGN_IN, "/ui/nothing"])
def test_no_page_is_shown_in_a_frame(
    served: Served, visit: Callable[..., Visitor], path: str
) -> None:
    """Another site cannot lay a page of the dashboard under its own buttons."""
    assert "evervec" not in framed(visit(served), served, path)


def test_it_is_the_headers_that_refuse_a_frame(
    served: Served, visit: Callable[..., Visitor]
) -> None:
    assert "evervec" in framed(visit(served), served, SIGN_IN, without_headers=True)
