"""Requests that other sites make a browser send."""

from collections.abc import Iterator

import pytest

import evervec
from evervec.server.dashboard.paths import SIGN_IN
from support.dashboard import OF_VISITS, Person, actions, filled, person
from support.service import Served, serving

ANY = dict.fromkeys(
    ("id", "kind", "fingerprint", "name", "version", "tenant", "worker", "table", "job_id"), "1"
) | {"versions.step": "switch"}
OWN = [path for path in actions() if path not in OF_VISITS]


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    """One service for all that is refused: none of it changes anything."""
    with (
        evervec.open("memory:", embedder="hashing", server_open_rate=1e6) as ev,
        serving() as serve,
    ):
        yield serve(ev)


@pytest.fixture(scope="module")
def admin(shared: Served) -> Person:
    return person(shared, shared.key(role="admin"))


@pytest.mark.parametrize("path", [*OWN, "/ui/sign-out"])
def test_an_action_needs_the_token_of_its_own_session(
    shared: Served, admin: Person, path: str
) -> None:
    other = person(shared, shared.key(role="admin", agent="b"))
    address = filled(path, ANY)
    for wrong in ("", other.token, admin.token[:-1], "é", "0" * 64):
        refused = admin.send(address, form_token=wrong)
        assert refused.status_code == 403, path
        assert "this form has expired" in refused.text
    assert admin.http.post(address, data={"next": "/"}).status_code == 403


@pytest.mark.parametrize("path", [*OWN, "/ui/sign-out", "/ui/theme", SIGN_IN])
def test_a_form_from_another_site_is_refused(admin: Person, path: str) -> None:
    foreign = [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Origin": f"{admin.http.base_url}".rstrip("/") + "0"},
        {"Origin": "http://127.0.0.1.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "same-origin, cross-site"},
        {"Sec-Fetch-Site": ""},
    ]
    for headers in foreign:
        refused = admin.send(filled(path, ANY), headers)
        assert refused.status_code == 403, (path, headers)


def test_a_form_of_this_site_is_accepted_behind_a_proxy_that_changes_the_host(
    admin: Person,
) -> None:
    headers = {
        "Host": "inner:8000",
        "Origin": "https://ev.example",
        "Sec-Fetch-Site": "same-origin",
    }
    assert admin.send("/ui/theme", headers, theme="dark").status_code == 303


@pytest.mark.parametrize("path", [path for path in actions() if path != SIGN_IN])
def test_nothing_is_done_by_a_link(admin: Person, path: str) -> None:
    """An action is never done by GET, nor by a POST that a form on another site could not send
    without asking."""
    address = filled(path, ANY)
    token = admin.token
    for method in ("GET", "HEAD"):
        answer = admin.http.request(method, address, params={"form_token": token})
        assert answer.status_code in (200, 404, 405, 422), path
        assert answer.status_code != 200 or not answer.history
        assert "evervec_notice" not in answer.cookies
    for body_type in ("text/plain", "application/json", "multipart/form-data; boundary=x"):
        headers = {"Content-Type": body_type}
        answer = admin.http.post(address, content=f"form_token={token}", headers=headers)
        assert answer.status_code == 415, path


def test_a_key_alone_sends_no_form(served: Served) -> None:
    """Pages can be read with a key in a header, but actions need a session."""
    http = served.http(served.key(role="admin"))
    assert http.get("/", headers={"Accept": "text/html"}).status_code == 200
    assert http.post("/ui/sign-out", data={"form_token": ""}).status_code == 403


def test_a_visitor_of_a_service_without_keys_has_a_token_too(served: Served) -> None:
    visitor, other = person(served), person(served)
    assert visitor.token
    assert visitor.token == visitor.token  # of the cookie, not of the page
    assert visitor.token != other.token
    assert visitor.send("/ui/sign-out", form_token=other.token).status_code == 403
    assert visitor.send("/ui/sign-out").status_code == 303
