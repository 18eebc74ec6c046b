"""Pages and answers in a browser: nothing from elsewhere, no scripts, and headers that say so."""

import re
from html import escape
from html.parser import HTMLParser
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from evervec import Evervec
from evervec.server.app import make_app
from evervec.server.problems import error_classes
from evervec.server.routes.docs import docs_page
from support.service import Serve, Served


@pytest.fixture
def quiet(ev: Evervec, serve: Serve) -> Served:
    """A service without a worker."""
    return serve(ev)


class Page(HTMLParser):
    """What a page is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def values(self, *names: str) -> list[str]:
        return [
            value for _, attrs in self.tags for n, value in attrs.items() if n in names and value
        ]


def test_the_type_of_an_error_has_its_section_in_the_docs(quiet: Served) -> None:
    http = quiet.http()
    refused = http.post("/v1/records", json={"kind": "note", "text": ""})
    name = refused.json()["type"].removeprefix("urn:evervec:")
    assert refused.status_code == 422
    anchors = set(Page(http.get("/docs").text).values("id"))
    assert f"error-{name}" in anchors
    assert {f"error-{kind.__name__}" for kind in error_classes()} <= anchors


def test_the_docs_need_nothing_from_elsewhere_and_run_no_script(quiet: Served) -> None:
    quiet.key()
    http = quiet.http()
    shown = http.get("/docs")
    assert shown.headers["content-type"] == "text/html; charset=utf-8"
    policy = shown.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "script-src" not in policy
    page = Page(shown.text)
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "style", "iframe", "object", "embed", "img", "form", "base"}
    attributes = {name for _, attrs in page.tags for name in attrs}
    assert not [name for name in attributes if name.startswith("on") or name == "style"]
    links = page.values("href", "src", "action")
    own = ("./", "docs/style.css", "openapi.json")
    assert all(link.startswith("#") or link in own for link in links)
    anchors = {f"#{id}" for id in page.values("id")}
    assert {link for link in links if link.startswith("#")} <= anchors
    style = http.get("/docs/style.css")
    assert (style.status_code, style.headers["content-type"]) == (200, "text/css; charset=utf-8")
    assert "url(" not in style.text
    assert "@import" not in style.text


def test_the_docs_tell_every_operation_shape_and_parameter(quiet: Served) -> None:
    text = quiet.http().get("/docs").text
    described: Any = quiet.http().get("/openapi.json").json()
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            assert re.search(rf"{method.upper()}</span> <code>{re.escape(path)}</code>", text)
            assert escape(operation["summary"]) in text
    for name in described["components"]["schemas"]:
        assert f'id="schema-{name}"' in text


def test_whatever_a_description_says_stays_text() -> None:
    evil = "<script>alert(1)</script>`<b>`"
    text = docs_page(
        {
            "info": {"title": evil, "version": evil, "summary": evil},
            "paths": {
                evil: {
                    "get": {
                        "summary": evil,
                        "description": evil,
                        "parameters": [{"name": evil, "in": evil, "schema": {"type": evil}}],
                        "requestBody": {
                            "content": {evil: {"example": evil, "schema": {"enum": [evil]}}}
                        },
                        "responses": {evil: {"description": evil}},
                    }
                }
            },
            "components": {
                "schemas": {evil: {"examples": [evil], "properties": {evil: {"$ref": f"#/{evil}"}}}}
            },
        }
    )
    assert "script" not in {tag for tag, _ in Page(text).tags}
    assert "b" not in {tag for tag, _ in Page(text).tags}


def test_the_docs_find_their_style_where_they_are_mounted(ev: Evervec) -> None:
    outer = FastAPI()
    outer.mount("/deep/search", make_app(ev))
    with TestClient(outer, base_url="http://example.com") as http:
        page = Page(http.get("/deep/search/docs").text)
        (sheet,) = [attrs["href"] for tag, attrs in page.tags if tag == "link"]
        assert http.get(f"/deep/search/{sheet}").status_code == 200


def test_every_answer_has_the_headers_that_keep_browsers_out(quiet: Served) -> None:
    key = quiet.key()
    asked = [
        ("GET", "/healthz"), ("GET", "/docs"), ("GET", "/docs/style.css"), ("GET", "/v1/records"),
        ("GET", "/nothing"), ("PUT", "/v1/records"), ("POST", "/v1/records"), ("GET", "/metrics"),
        ("POST", "/internal/worker"), ("OPTIONS", "/v1/records"), ("GET", "/" + "a" * 40_000),
    ]  # fmt: skip
    for given in (key, None):
        for method, path in asked:
            headers = quiet.http(given).request(method, path).headers
            assert headers["x-content-type-options"] == "nosniff", path
            assert headers["referrer-policy"] == "no-referrer", path
            assert "frame-ancestors 'none'" in headers["content-security-policy"], path
            assert headers["cross-origin-resource-policy"] == "same-origin", path
            assert "access-control-allow-origin" not in headers, path
            if not path.startswith("/docs"):
                assert headers["cache-control"] == "no-store", path


def test_head_is_answered_wherever_get_is(ev: Evervec, quiet: Served) -> None:
    answered = [
        methods for route in quiet.app.routes if (methods := getattr(route, "methods", None))
    ]
    assert sum("GET" in methods for methods in answered) > 30
    assert all("HEAD" in methods for methods in answered if "GET" in methods)
    ev.add("note", "tea", id="1")
    http = quiet.http(quiet.key(role="admin"))
    for path in ("/favicon.ico", "/docs", "/openapi.json", "/healthz", "/metrics", "/v1/records",
                 "/v1/records/note/1", "/v1/jobs", "/"):  # fmt: skip
        whole, head = http.get(path), http.head(path)
        assert (head.status_code, head.content) == (200, b""), path
        assert head.headers["content-type"] == whole.headers["content-type"]
    assert http.head("/v1/records/note/2").status_code == 404
    assert http.head("/v1/search").status_code == 405
    assert "head" not in http.get("/openapi.json").json()["paths"]["/v1/records"]
