"""Tenants: what each has, its limits and its pause, page by page, for platform admins."""

import json
from typing import Any
from urllib.parse import quote

import pytest

from evervec import Evervec, Limits
from support.dashboard import Person, person
from support.service import Served

HOSTILE = "<script>alert(1)</script>\"' & \u202ea/b"


@pytest.fixture
def admin(served: Served) -> Person:
    return person(served, served.key(role="admin"))


def test_usage_and_limits_are_listed(served: Served, ev: Evervec, admin: Person) -> None:
    ev.of("acme").add("note", "tea", id="1")
    ev.of("acme").set_limits(Limits(records=1000))
    ev.of("globex").queue.pause(own=True)
    page = admin.get("/ui/tenants").text
    assert "of 1,000" in page
    assert '<span class="tag warn">paused</span>' in page
    rows = [
        json.loads(line) for line in admin.get("/ui/tenants", format="ndjson").text.splitlines()
    ]
    assert [(row["tenant"], row["records"], row["paused"]) for row in rows] == [
        ("acme", 1, False),
        ("globex", 0, True),
    ]


def test_many_tenants_come_in_pages(served: Served, ev: Evervec, admin: Person) -> None:
    for n in range(120):
        ev.of(f"t{n:03}").set_limits(Limits(records=n))
    names, address = [], "/ui/tenants?format=ndjson"
    for _ in range(5):
        answer = admin.http.get(address)
        names += [json.loads(line)["tenant"] for line in answer.text.splitlines()]
        if "link" not in answer.headers:
            break
        address = answer.links["next"]["url"] + "&format=ndjson"
    assert names == [f"t{n:03}" for n in range(120)]
    page = admin.get("/ui/tenants", q="t11").text
    assert page.count('data-key="tenant-') == 10
    assert "Next tenants" not in page
    assert "No tenant's name begins" in admin.get("/ui/tenants", q="x").text


def test_limits_are_edited_and_recorded(served: Served, ev: Evervec, admin: Person) -> None:
    answer = admin.send("/ui/tenants/acme/limits", records="1,500", money="2.5", weight="3")
    assert answer.status_code == 303
    assert ev.store.tenants.own_limits("acme") == Limits(weight=3, records=1500, money=2.5)
    page = admin.get("/ui/tenants/acme").text
    assert 'value="1500"' in page
    assert "acme: weight 3, records 1500, money 2.5" in admin.get("/ui/audit").text
    admin.send("/ui/tenants/acme/limits")
    assert ev.store.tenants.own_limits("acme") == Limits()


@pytest.mark.parametrize("given", [{"records": "many"}, {"weight": "0"}, {"money": "nan"}])
def test_wrong_limits_are_refused(
    served: Served, ev: Evervec, admin: Person, given: dict[str, Any]
) -> None:
    assert admin.send("/ui/tenants/acme/limits", **given).status_code == 422
    assert ev.store.tenants.own_limits("acme") == Limits()


def test_a_tenant_is_paused_and_resumed(served: Served, ev: Evervec, admin: Person) -> None:
    admin.send("/ui/tenants/acme/pause")
    assert ev.store.jobs.paused("acme")
    assert not ev.store.jobs.paused("other")
    admin.send("/ui/tenants/acme/resume")
    assert not ev.store.jobs.paused("acme")


def test_a_hostile_name_is_only_text_and_can_be_acted_on(
    served: Served, ev: Evervec, admin: Person
) -> None:
    ev.of(HOSTILE).add("note", "tea", id="1")
    page = admin.get("/ui/tenants").text
    assert "<script>alert" not in page
    path = f"/ui/tenants/{quote(HOSTILE, safe='')}"
    assert path in page
    assert admin.http.get(path).status_code == 200
    assert admin.send(f"{path}/pause").status_code == 303
    assert ev.store.jobs.paused(HOSTILE)


@pytest.mark.parametrize("role", ["reader", "writer"])
def test_others_see_no_tenants(served: Served, ev: Evervec, role: str) -> None:
    other = person(served, served.key("acme", role))
    for path in ("/ui/tenants", "/ui/tenants/acme"):
        assert other.get(path).status_code == 403
    for action in ("limits", "pause", "resume"):
        assert other.send(f"/ui/tenants/acme/{action}", records="9").status_code == 403
    assert ev.store.tenants.own_limits("acme") == Limits()
    assert "/ui/tenants" not in other.get("/").text
