"""Keys: made, rotated and revoked only with an admin's key given again, and shown once."""

import logging
import re
from typing import Any

import pytest

from evervec import Evervec
from evervec.server.keys import Key, Keys
from support.dashboard import Person, person
from support.service import Served

MADE = re.compile(r'<pre id="new-key">(ev_[0-9a-f]{12}_[\w-]{43})</pre>')
ONCE = re.compile(r'name="once" value="([0-9a-f]+)"')


@pytest.fixture
def key(served: Served) -> str:
    return served.key(role="admin", agent="anna")


@pytest.fixture
def admin(served: Served, key: str) -> Person:
    return person(served, key)


def once(who: Person, path: str = "/ui/keys") -> str:
    found = ONCE.search(who.get(path).text)
    assert found
    return found[1]


def valid(ev: Evervec, text: str) -> Key | None:
    return Keys(ev.store).check([text])[text]


def test_a_new_key_is_shown_once(served: Served, ev: Evervec, admin: Person, key: str) -> None:
    form: dict[str, Any] = {"tenant": "acme", "agent": "crawler", "role": "reader", "days": "30"}
    form |= {"admin_key": key, "once": once(admin)}
    answer = admin.send("/ui/keys", **form)
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    made = MADE.search(answer.text)
    assert made
    found = valid(ev, made[1])
    assert found is not None
    assert (found.tenant, found.agent, found.role) == ("acme", "crawler", "reader")
    assert found.expires_at is not None
    assert key not in answer.text
    again = admin.send("/ui/keys", **form)
    assert again.status_code == 409, "a reload makes no second key"
    listed = admin.get("/ui/keys").text
    assert found.prefix in listed
    assert made[1] not in listed
    audit = admin.get("/ui/audit").text
    assert f"confirmed with {key[:15]}" in audit
    assert made[1] not in audit


@pytest.mark.parametrize("given", ["none", "wrong", "reader", "token", "revoked"])
def test_without_an_admins_key_nothing_changes(
    served: Served, ev: Evervec, admin: Person, key: str, given: str
) -> None:
    keys = Keys(ev.store)
    target = keys.create("acme", "b", "writer")
    old = keys.create("default", "old", "admin")
    keys.revoke(old.info.id)
    texts = {
        "none": "",
        "wrong": key[:-1] + ("a" if key[-1] != "a" else "b"),
        "reader": keys.create("default", "r", "reader").key,
        "token": admin.http.cookies["evervec_session"],
        "revoked": old.key,
    }
    before = len(keys.list())
    form: dict[str, Any] = {"tenant": "acme", "role": "admin", "admin_key": texts[given]}
    form |= {"once": once(admin), "confirm": target.info.id}
    for path in (
        "/ui/keys",
        f"/ui/keys/{target.info.id}/rotate",
        f"/ui/keys/{target.info.id}/revoke",
    ):
        assert admin.send(path, **form).status_code == 403
    assert len(keys.list()) == before
    assert valid(ev, target.key) is not None
    assert admin.get("/ui/audit", action="key.revoke").text.count("refused") == 1


def test_a_key_is_rotated(served: Served, ev: Evervec, admin: Person, key: str) -> None:
    old = Keys(ev.store).create("acme", "crawler", "writer")
    page = f"/ui/keys/{old.info.id}"
    form: dict[str, Any] = {"hours": "2", "admin_key": key, "once": once(admin, page)}
    made = MADE.search(admin.send(f"{page}/rotate", **form).text)
    assert made
    new = valid(ev, made[1])
    assert new is not None
    assert (new.tenant, new.agent, new.role) == ("acme", "crawler", "writer")
    assert valid(ev, old.key) is not None, "for two hours more"
    assert admin.send(f"{page}/rotate", hours="-1", admin_key=key, once="x").status_code == 422


def test_a_key_is_revoked_with_its_id_typed(
    served: Served, ev: Evervec, admin: Person, key: str
) -> None:
    old = Keys(ev.store).create("acme", "crawler", "writer")
    path = f"/ui/keys/{old.info.id}/revoke"
    assert admin.send(path, admin_key=key, confirm="no").status_code == 422
    assert valid(ev, old.key) is not None
    assert admin.send(path, admin_key=key, confirm=old.info.id).status_code == 303
    assert valid(ev, old.key) is None
    assert "revoked" in admin.get(f"/ui/keys/{old.info.id}").text
    assert admin.send(path, admin_key=key, confirm=old.info.id).status_code == 422


def test_who_revokes_the_own_key_is_signed_out(
    served: Served, ev: Evervec, admin: Person, key: str
) -> None:
    other = Keys(ev.store).create("default", "other", "admin")
    id = key[3:15]
    admin.send(f"/ui/keys/{id}/revoke", admin_key=other.key, confirm=id)
    answer = admin.get("/ui/keys")
    assert answer.status_code == 303
    assert "/ui/sign-in" in answer.headers["location"]


def test_the_first_key_is_an_admins(served: Served, ev: Evervec) -> None:
    visitor = person(served)
    page = visitor.get("/ui/keys").text
    assert "This service has no keys" in page
    assert "admin_key" not in page
    form: dict[str, Any] = {"tenant": "default", "role": "writer", "once": once(visitor)}
    assert visitor.send("/ui/keys", **form).status_code == 409
    assert not Keys(ev.store).any()
    answer = visitor.send("/ui/keys", **{**form, "role": "admin"})
    made = MADE.search(answer.text)
    assert made
    assert "sign in with it" in answer.text
    assert visitor.get("/ui/keys").status_code == 303
    assert person(served, made[1]).get("/ui/keys").status_code == 200


@pytest.mark.parametrize("role", ["reader", "writer"])
def test_others_see_and_make_no_keys(served: Served, ev: Evervec, key: str, role: str) -> None:
    other = person(served, served.key("acme", role))
    id = key[3:15]
    assert other.get("/ui/keys").status_code == 403
    assert other.get(f"/ui/keys/{id}").status_code == 403
    form: dict[str, Any] = {
        "tenant": "acme",
        "role": "admin",
        "admin_key": key,
        "once": "1",
        "confirm": id,
    }
    for path in ("/ui/keys", f"/ui/keys/{id}/rotate", f"/ui/keys/{id}/revoke"):
        assert other.send(path, **form).status_code == 403
    assert valid(ev, key) is not None


def test_keys_are_listed_in_pages_of_one_tenant_or_all(
    served: Served, ev: Evervec, admin: Person
) -> None:
    for n in range(130):
        Keys(ev.store).create("acme" if n % 2 else "globex", f"agent{n}", "reader")
    first = admin.get("/ui/keys")
    assert first.text.count('data-key="key-') == 100
    found = re.search(r'href="(/ui/keys\?before=[0-9a-f]{12})"', first.text)
    assert found
    assert admin.http.get(found[1]).text.count('data-key="key-') == 31
    assert admin.get("/ui/keys", tenant="acme").text.count('data-key="key-') == 65


def test_hostile_names_are_only_text(served: Served, ev: Evervec, admin: Person, key: str) -> None:
    hostile = "<script>alert(1)</script>\"'\u202e"
    form: dict[str, Any] = {"tenant": hostile, "agent": hostile, "role": "reader", "admin_key": key}
    answer = admin.send("/ui/keys", **form, once=once(admin))
    made = MADE.search(answer.text)
    assert made
    for page in (
        answer.text,
        admin.get("/ui/keys").text,
        admin.get(f"/ui/keys/{made[1][3:15]}").text,
    ):
        assert "<script>alert" not in page
        assert "&lt;script&gt;" in page
    for wrong in ("", "x" * 1000, "a\0b"):
        assert admin.send("/ui/keys", **{**form, "tenant": wrong}).status_code == 422


def test_no_key_is_ever_logged(
    served: Served, admin: Person, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        form: dict[str, Any] = {
            "tenant": "acme",
            "role": "reader",
            "admin_key": key,
            "once": once(admin),
        }
        made = MADE.search(admin.send("/ui/keys", **form).text)
        admin.send("/ui/keys", **{**form, "admin_key": key[:-1], "once": "2"})
    assert made
    assert key[16:] not in caplog.text
    assert made[1][16:] not in caplog.text


@pytest.mark.parametrize("id", ["000000000000", "x", "%00", "%2e%2e", "a" * 500])
def test_an_unknown_key_is_not_found(served: Served, admin: Person, key: str, id: str) -> None:
    assert admin.http.get(f"/ui/keys/{id}").status_code == 404
    form: dict[str, Any] = {"hours": "1", "admin_key": key, "once": "1"}
    assert admin.send(f"/ui/keys/{id}/rotate", **form).status_code == 404
