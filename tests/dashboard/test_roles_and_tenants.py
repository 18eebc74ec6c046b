"""Nobody sees or does on a page what their key does not allow. The pages and actions are those of
the application, so a new one is tested too."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from evervec.server.dashboard.paths import SIGN_IN
from evervec.server.keys import Role
from support.dashboard import (
    OF_VISITS,
    Person,
    actions,
    address,
    events,
    field_names,
    filled,
    names_of_fields,
    pages,
    parameters,
    person,
    role_for,
)
from support.furnished import furnish, furnished, rows_of
from support.service import Serve, Served

SECRET = "zebra"
"""in everything that the other tenant has"""
OWN = [path for path in actions() if path not in OF_VISITS]
SHOWN = [path for path in pages() if path != SIGN_IN]
ADMINS = {path for path in SHOWN if role_for(path) is Role.ADMIN}
CHANGED_BY_READING = {"api_keys", "keys", "audit"}


class Neighbours:
    """Two tenants of one service."""

    def __init__(self, served: Served, path: Path) -> None:
        self.served = served
        self.ours = furnish(served.ev.of("ours"), path, "giraffe")
        self.theirs = furnish(served.ev.of("theirs"), path, SECRET)
        self.path = path

    def person(self, role: str, tenant: str = "ours") -> Person:
        return person(self.served, self.served.key(tenant, role, agent=role))

    def rows(self) -> dict[str, object]:
        """All that the store has of the other tenant, less what reading it changes."""
        found = rows_of(self.path, "theirs")
        return {name: rows for name, rows in found.items() if name not in CHANGED_BY_READING}


@pytest.fixture
def neighbours(tmp_path: Path, serve: Serve) -> Iterator[Neighbours]:
    with furnished(tmp_path, rate_per_second=1e6, rate_burst=10**6) as ev:
        served = serve(ev)
        yield Neighbours(served, tmp_path / "store.db")
        served.close()


def addresses(path: str, values: dict[str, object]) -> list[str]:
    """A page's address with another tenant's values in its path, and in each of its parameters."""
    bare = filled(path, values)
    names = parameters(path)
    assert "tenant" in names or path in ADMINS, path
    queries = [f"{name}={quote(str(values.get(name, values['id'])))}" for name in sorted(names)]
    return [bare, *(f"{bare}?{query}" for query in queries), f"{bare}?{'&'.join(queries)}"]


def test_no_address_shows_another_tenants_data(neighbours: Neighbours) -> None:
    writer = neighbours.person("writer")
    for path in SHOWN:
        values = {**neighbours.theirs, "path": "x"}
        mixed = {**neighbours.ours, "id": neighbours.theirs["id"]}
        for asked in (*addresses(path, values), filled(path, mixed)):
            for format in ("", "csv", "ndjson"):
                separator = "&" if "?" in asked else "?"
                answer = writer.get(f"{asked}{separator}format={format}" if format else asked)
                assert answer.status_code < 500, (asked, answer.text)
                shown = answer.text.replace(quote(SECRET), "").lower()
                for given in (values["id"], values["kind"], values["q"]):
                    shown = shown.replace(str(given), "")  # what was asked for is said again
                assert SECRET not in shown, (asked, format)
        foreign = writer.get(filled(path, values), tenant="theirs")
        assert foreign.status_code in (403, 404, 406), path


def test_no_live_page_shows_another_tenants_data(neighbours: Neighbours) -> None:
    reader = neighbours.person("reader")
    for path in SHOWN:
        with reader.watch(filled(path, neighbours.ours)) as stream:
            if stream.status_code == 200:
                assert SECRET not in next(events(stream)), path


def test_no_action_changes_another_tenants_data(neighbours: Neighbours) -> None:
    writer = neighbours.person("writer")
    before = neighbours.rows()
    assert any(before.values())
    values = neighbours.theirs
    every = {name: str(values.get(name, values["id"])) for name in field_names()}
    del every["form_token"], every["next"]
    token = writer.token
    for path in OWN:
        for fields in (every, {**every, "id": str(values["jobs.id"])}, {}):
            for tenant in ("", "?tenant=theirs"):
                sent = {"form_token": token, **fields}
                done = writer.http.post(filled(path, values) + tenant, data=sent)
                assert done.status_code < 500, (path, done.text)
                assert not tenant or done.status_code in (403, 422), path
                assert SECRET not in done.headers.get("set-cookie", ""), path
    assert neighbours.rows() == before


def test_a_reader_is_offered_no_action_and_can_do_none(neighbours: Neighbours) -> None:
    reader = neighbours.person("reader")
    token, before = reader.token, rows_of(neighbours.path, "ours")
    for path in OWN:
        refused = reader.send(filled(path, neighbours.ours), form_token=token)
        assert refused.status_code == 403, path
        assert "not allowed with a reader&#39;s key" in refused.text, path
    for path in SHOWN:
        shown = reader.get(address(path, neighbours.ours))
        assert shown.status_code in (200, 403), (path, shown.text)
        sent = set(re.findall(r'<form[^>]*method="post"[^>]*action="([^"?]+)', shown.text))
        assert sent <= OF_VISITS, path
    after = rows_of(neighbours.path, "ours")
    assert {k: v for k, v in after.items() if k not in CHANGED_BY_READING} == {
        k: v for k, v in before.items() if k not in CHANGED_BY_READING
    }


def test_a_writer_cannot_do_what_needs_an_admin(neighbours: Neighbours) -> None:
    """What concerns all tenants is for platform admins."""
    writer = neighbours.person("writer")
    for path in sorted(ADMINS):
        assert writer.get(filled(path, neighbours.ours)).status_code == 403, path
    token = writer.token
    for path in OWN:
        if path.startswith(("/ui/tenants", "/ui/keys", "/ui/versions", "/ui/workers")):
            assert role_for(path, "POST") is Role.ADMIN, path
        if role_for(path, "POST") is Role.ADMIN:
            assert (
                writer.send(filled(path, neighbours.ours), form_token=token).status_code == 403
            ), path


def test_every_page_is_shown_to_an_admin(neighbours: Neighbours) -> None:
    admin = neighbours.person("admin", "default")
    for path in SHOWN:
        for params in ({}, {"tenant": "theirs"}):
            if params and path in ADMINS:
                continue
            shown = admin.get(address(path, neighbours.theirs, **params))
            assert shown.status_code == (404 if needs_tenant(path) and not params else 200), path


def needs_tenant(path: str) -> bool:
    """Whether the page is of something that belongs to one tenant."""
    return path.startswith("/ui/records/{")


def test_the_navigation_leads_only_where_the_role_may_go(neighbours: Neighbours) -> None:
    for role in ("reader", "writer", "admin"):
        someone = neighbours.person(role)
        (bar,) = re.findall(r"<nav aria-label=\"Pages\".*?</nav>", someone.get("/").text, re.DOTALL)
        links = re.findall(r'href="([^"]+)"', bar)
        assert links
        assert [link for link in links if someone.get(link).status_code != 200] == [], role


@pytest.mark.parametrize(
    "hostile",
    [
        "%00",
        "..%2f..%2fetc%2fpasswd",
        "%ff%fe",
        "-1",
        "9" * 40,
        "000000001" + "0" * 5000,
        "a" * 3000,
        "%0d%0aX:y",
        "'--",
        "{{7*7}}",
    ],
)
def test_no_address_breaks_a_page(neighbours: Neighbours, hostile: str) -> None:
    admin = neighbours.person("admin")
    for path in SHOWN:
        bare = re.sub(r"{[^}]+}", hostile, path)
        names = parameters(path) | names_of_fields(admin.get(address(path, neighbours.ours)).text)
        queries = [f"{name}={hostile}" for name in sorted(names)]
        others = [query for query in queries if not query.startswith("q=")]
        searches = [f"q=tea&{query}" for query in others if "q" in names]
        for query in ["", *queries, *searches, "&".join(queries)[:60_000]]:
            asked = f"{bare}?{query}"
            answer = admin.get(asked)
            assert answer.status_code < 500, (asked, answer.text)
            assert "x: y" not in str(answer.headers).lower()
            assert ">49<" not in answer.text
