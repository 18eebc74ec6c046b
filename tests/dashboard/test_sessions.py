"""Sessions: what the cookie is, what ends it, and where it leads."""

import itertools
import re
from collections.abc import Iterator
from datetime import timedelta
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any, Protocol

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

import evervec
from evervec import Evervec
from evervec.server.app import make_app
from evervec.server.audit import Audit
from evervec.server.dashboard.paths import SIGN_IN
from evervec.server.keys import Keys
from evervec.stores.service_values import AuditChoice
from support.dashboard import events, pages, person
from support.service import Serve, Served


class Answer(Protocol):
    """An answer of either kind of client."""

    @property
    def headers(self) -> Any: ...


def cookie(answer: Answer, name: str = "evervec_session") -> dict[str, str]:
    """The attributes of a cookie that an answer sets."""
    for line in answer.headers.get_list("set-cookie"):
        for given, morsel in SimpleCookie(line).items():
            if given == name:
                found = {k: str(v) for k, v in morsel.items() if v}
                return {**found, "": morsel.value}
    raise AssertionError(answer.headers)


def test_the_cookie_is_not_the_key_and_no_script_can_read_it(served: Served) -> None:
    key = served.key(role="reader")
    answer = served.http().post(SIGN_IN, data={"key": key})
    made = cookie(answer)
    assert made[""] != key
    assert Keys(served.ev.store).check([made[""]])[made[""]]
    del made[""]
    assert made == {"path": "/", "max-age": "43200", "httponly": "True", "samesite": "lax"}


def test_each_signing_in_makes_a_new_session_whatever_cookie_was_there(served: Served) -> None:
    key = served.key(role="reader")
    planted = served.http().post(SIGN_IN, data={"key": key})
    http = served.http()
    http.cookies.set("evervec_session", cookie(planted)[""])
    first = cookie(http.post(SIGN_IN, data={"key": key}))[""]
    second = cookie(http.post(SIGN_IN, data={"key": key}))[""]
    assert len({first, second, cookie(planted)[""]}) == 3


def test_a_cookie_that_somebody_made_up_opens_nothing(served: Served) -> None:
    served.key()
    for made_up in ("x", "ev_000000000000_x", '"', "\\", "a" * 9000):
        http = served.http()
        answer = http.get(
            "/", headers={"Cookie": f"evervec_session={made_up}", "Accept": "text/html"}
        )
        assert answer.status_code == 303
        assert answer.headers["location"].startswith(SIGN_IN)


@pytest.mark.parametrize("path", [path for path in pages() if path != SIGN_IN])
def test_no_page_is_shown_without_a_session(served: Served, path: str) -> None:
    served.key()
    http = served.http()
    asked = http.get(path, headers={"Accept": "text/html"})
    assert (asked.status_code, "<main" in asked.text) == (303, False)
    assert http.get(path).status_code == 401
    live = http.get(path, headers={"Accept": "text/event-stream"})
    assert (live.status_code, live.text) == (204, "")


def test_a_session_opens_the_dashboard_and_nothing_else(served: Served) -> None:
    """Other routes could be called by other sites, without a token of a form."""
    someone = person(served, served.key(role="admin"))
    for path in ("/v1/records", "/v1/queue", "/metrics", "/v1/keys"):
        assert someone.get(path).status_code == 401


def test_signing_out_ends_the_session_for_good(served: Served) -> None:
    someone = person(served, served.key(role="reader"))
    kept = dict(someone.http.cookies)
    assert someone.send("/ui/sign-out").status_code == 303
    someone.http.cookies.update(kept)
    assert someone.get("/").status_code == 303
    assert person(served, served.key(role="reader")).get("/").status_code == 200


def test_signing_in_and_out_are_in_the_audit_log(served: Served) -> None:
    made = Keys(served.ev.store).create("acme", "ann", "reader")
    wrong = served.http().post(SIGN_IN, data={"key": made.key[:-1] + "-"})
    assert wrong.status_code == 401
    someone = person(served, made.key)
    cookie = someone.http.cookies["evervec_session"]
    session = Keys(served.ev.store).check([cookie])[cookie]
    assert session is not None
    assert someone.send("/ui/sign-out").status_code == 303
    end, begin = Audit(served.ev.store).list(AuditChoice(), 10)
    assert (begin.action, begin.key_id, begin.agent, begin.tenant) == (
        "session.begin", made.info.id, "ann", "acme",
    )  # fmt: skip
    assert begin.target == f"{session.id} of {made.info.label}"
    assert begin.client == "127.0.0.1"
    assert begin.request_id
    assert (end.action, end.key_id, end.agent, end.tenant) == (
        "session.end", session.id, "ann", "acme",
    )  # fmt: skip
    assert made.key not in begin.target + end.target


def test_revoking_a_key_ends_its_sessions_and_their_live_pages(served: Served) -> None:
    key = served.key(role="admin")
    someone, other = person(served, key), person(served, served.key(role="admin", agent="b"))
    with someone.watch() as stream, other.watch() as kept:
        ending, following = events(stream), events(kept)
        assert next(ending)
        assert next(following)
        Keys(served.ev.store).revoke(key)
        with pytest.raises(httpx.RemoteProtocolError):
            list(ending)
        served.ev.add("note", "another", id="n1")
        assert next(following)
    assert someone.get("/").status_code == 303
    with someone.watch() as refused:
        assert refused.status_code == 204


def test_an_expired_session_leads_back_to_its_page(
    tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    with evervec.open(tmp_path / "store.db", embedder="hashing", session_hours=2) as ev:
        served = serve(ev)
        someone = person(served, served.key(role="reader"))
        assert someone.get("/").status_code == 200
        now = ev.store.now
        monkeypatch.setattr(ev.store, "now", lambda: now() + 2 * 3600 + 1)
        again = someone.get("/", tenant="default")
        assert again.headers["location"] == f"{SIGN_IN}?next=%2F%3Ftenant%3Ddefault"
        served.close()


def test_a_token_for_some_kinds_does_not_open_the_dashboard(served: Served) -> None:
    keys = Keys(served.ev.store)
    parent = keys.create("default", "a", "writer").key
    (found,) = keys.check([parent]).values()
    assert found
    token = keys.token(found, "writer", "default", ["note"], timedelta(hours=1), 10).key
    refused = served.http().post(SIGN_IN, data={"key": token}, headers={"Accept": "text/html"})
    assert refused.status_code == 403
    assert "evervec_session" not in refused.cookies


def test_signing_in_leads_nowhere_but_to_pages_of_this_dashboard(served: Served) -> None:
    key = served.key()
    elsewhere = [
        "https://evil.example", "//evil.example", "/\\evil.example", "\\\\evil.example",
        "/ui/\\..\\evil", "javascript:alert(1)", "http:evil.example", "http:/evil.example",
        " //evil.example", "\t//evil.example", "/v1/records", "ui/jobs", "//[", "/ui/é",
        "/ui/x\r\nSet-Cookie: a=b", "/ui/x\nLocation: //evil.example", "///evil.example",
        "/%09/evil.example", ".evil.example", "@evil.example", "",
        "/ui/../v1/records", "/ui/../..//evil.example", "/ui/%2e%2e/v1", "/ui/jobs/.%2E/..", "/ui/.",
    ]  # fmt: skip
    for next in elsewhere:
        answer = served.http().post(SIGN_IN, data={"key": key, "next": next})
        assert answer.headers["location"] == "/", next
        assert "a=b" not in str(answer.headers)
        shown = served.http().get(SIGN_IN, params={"next": next})
        assert 'name="next" value="/"' in shown.text, next
    for next in ("/", "/?tenant=a", "/ui/jobs?q=a%20b", "/ui/records/note/..%2Fb"):
        answer = served.http().post(SIGN_IN, data={"key": key, "next": next})
        assert answer.headers["location"] == next


def test_cookies_of_other_applications_do_not_hide_the_session(served: Served) -> None:
    someone = person(served, served.key(role="reader"))
    ours = f"evervec_session={someone.http.cookies['evervec_session']}"
    strange = ['{"a":1}', "a:b=1", "x", "=", "a=;;b", 'q="\\', "é=ü".encode().decode("latin-1")]
    for before, after in itertools.product(strange, strange):
        cookies = f"{before}; {ours}; {after}".encode("latin-1")
        answer = served.http().get("/", headers={b"Cookie": cookies, b"Accept": b"text/html"})
        assert answer.status_code == 200, (before, after)


def test_a_bomb_of_cookies_is_refused(served: Served) -> None:
    http = served.http()
    assert http.get("/", headers={"Cookie": "a=b;" * 3000}).status_code == 200
    assert http.get("/", headers={"Cookie": "a" * 40_000}).status_code == 431
    bomb = [("Cookie", f"c{n}=1") for n in range(200)]
    assert http.get("/", headers=bomb).status_code == 431


def test_a_notice_stays_text_in_one_header(served: Served) -> None:
    """A notice goes through a cookie to the next page."""
    someone = person(served)
    texts = ("a%0d%0aSet-Cookie:x=y", "<script>alert(1)</script>", "%00%ff", "%ud800")
    for hostile in (*texts, *(f"bad:{text}" for text in texts), *(f"{text}:bad" for text in texts)):
        someone.http.cookies.set("evervec_notice", hostile)
        answer = someone.get("/")
        assert answer.status_code == 200
        assert "x=y" not in str(answer.headers)
        assert "<script>alert" not in answer.text
        someone.http.cookies.clear()


def signed_in(key: str, app: FastAPI, root: str = "", peer: str = "10.0.0.7") -> Answer:
    """The answer to signing in through a proxy that says it is reached by TLS."""
    headers = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"}
    with TestClient(
        app, base_url="http://ev.example", client=(peer, 5000), follow_redirects=False
    ) as http:
        return http.post(root + SIGN_IN, data={"key": key}, headers=headers)


def mounting(ev: Evervec) -> FastAPI:
    outer = FastAPI()
    outer.mount("/deep/ev", make_app(ev))
    return outer


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[Evervec]:
    with evervec.open(
        tmp_path / "store.db", embedder="hashing", trusted_proxies="10.0.0.7"
    ) as opened:
        yield opened


def test_behind_a_trusted_proxy_the_cookie_is_for_this_host_by_tls_alone(proxied: Evervec) -> None:
    key = Keys(proxied.store).create("default", "a", "reader").key
    made = cookie(signed_in(key, make_app(proxied)), "__Host-evervec_session")
    assert (made["secure"], made["path"]) == ("True", "/")
    assert "domain" not in made
    untrusted = cookie(signed_in(key, make_app(proxied), peer="10.0.0.8"))
    assert "secure" not in untrusted


def test_a_cookie_without_the_prefix_is_ignored_by_tls(proxied: Evervec) -> None:
    """A neighbouring host could set it."""
    key = Keys(proxied.store).create("default", "a", "reader").key
    session = cookie(signed_in(key, make_app(proxied)), "__Host-evervec_session")[""]
    headers = {"X-Forwarded-Proto": "https", "Accept": "text/html"}
    with TestClient(make_app(proxied), client=("10.0.0.7", 5000), follow_redirects=False) as http:
        for name, status in (("evervec_session", 303), ("__Host-evervec_session", 200)):
            sent = {**headers, "Cookie": f"{name}={session}"}
            assert http.get("/", headers=sent).status_code == status


def test_mounted_in_another_application_everything_stays_below_its_path(proxied: Evervec) -> None:
    key = Keys(proxied.store).create("default", "a", "admin").key
    made = signed_in(key, mounting(proxied), "/deep/ev")
    assert made.headers["location"] == "/deep/ev/"
    session = cookie(made)
    assert (session["path"], session["secure"]) == ("/deep/ev", "True")
    sent = {
        "Cookie": f"evervec_session={session['']}", "X-Forwarded-Proto": "https",
        "Accept": "text/html",
    }  # fmt: skip
    with TestClient(mounting(proxied), client=("10.0.0.7", 5000), follow_redirects=False) as http:
        page = http.get("/deep/ev/", headers=sent)
        assert page.status_code == 200
        addresses = re.findall(r'(?:href|src|action)="([^"#]+)"', page.text)
        assert addresses
        assert [each for each in addresses if not each.startswith("/deep/ev/")] == []
        for address in addresses:
            if "/assets/" in address:
                assert http.get(address).status_code == 200
        away = http.get("/deep/ev/", headers={"Accept": "text/html"})
        assert away.headers["location"] == "/deep/ev/ui/sign-in?next=%2Fdeep%2Fev%2F"
        missing = http.get("/deep/ev/ui/nothing", headers=sent)
        assert (missing.status_code, "There is no such page" in missing.text) == (404, True)
