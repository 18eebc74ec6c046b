"""The overview: the state in words, charts, and how to begin."""

import re
import shlex
import subprocess
from html import unescape
from pathlib import Path

import pytest

from evervec import Evervec
from evervec.server.keys import Role
from support.command import runner
from support.pages import Operator
from support.service import Served
from support.world import add_all, fail_for_good


@pytest.fixture
def admin(served: Served) -> Operator:
    return Operator(served)


def test_an_empty_store_shows_how_to_begin(served: Served, admin: Operator) -> None:
    shown = admin.read("/")
    assert shown.text.count("There are no records yet") == 1
    assert "`" not in shown.text
    assert "add --no-embed note first.txt" in shown.text
    assert f"curl -X POST {served.url}/v1/records" in shown.text
    copied = [attrs["data-copy"] for _, attrs in shown.tags if "data-copy" in attrs]
    ids = {attrs.get("id") for _, attrs in shown.tags}
    assert copied
    assert set(copied) <= ids


def test_the_command_of_an_empty_store_adds_to_this_store(
    ev: Evervec, served: Served, admin: Operator, tmp_path: Path
) -> None:
    """Wherever it is run: the record must not go to another store of the same name."""
    (text,) = re.findall(r'<pre id="begin-1">(.*?)</pre>', admin.get("/").text, re.DOTALL)
    first, second = unescape(text).splitlines()
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    subprocess.run(first, shell=True, check=True, cwd=elsewhere)
    program, *words = shlex.split(second)
    assert program == "evervec"
    runner(elsewhere)(*words)
    assert [record.text.strip() for record in ev.records("note")] == ["The first note"]
    assert "There are no records yet" not in admin.read("/").text
    assert "1 record waits" in admin.read("/").text


@pytest.mark.parametrize("path", ["/", "/ui/records", "/ui/search", "/ui/versions", "/ui/workers"])
def test_only_platform_admins_learn_where_the_store_is(
    served: Served, tmp_path: Path, path: str
) -> None:
    for role, knows in ((Role.WRITER, False), (Role.ADMIN, True)):
        someone = Operator(served, served.key(role=role))
        assert (f"--store={tmp_path / 'store.db'}" in someone.read(path).text) is knows


def test_a_password_of_the_store_is_not_shown(ev: Evervec, admin: Operator) -> None:
    ev.store.url = "postgresql://bo:secret@db.example/app?sslkey=secret"
    shown = admin.read("/").text
    assert "db.example" in shown
    assert "secret" not in shown


def test_the_state_is_said_first_and_then_drawn(ev: Evervec, admin: Operator) -> None:
    add_all(ev, "note", "a", "b", "c")
    ev.process_all()
    shown = admin.read("/")
    assert "There are no records yet" not in shown.text
    assert shown.text.index("searchable") < shown.text.index("Throughput")
    for chart in ("Freshness", "Throughput", "Depth", "Spend"):
        assert chart in shown.text
    assert sum(row["done"] for row in admin.rows("/")) == 3


@pytest.mark.parametrize(
    ("range", "points"), [("hour", 60), ("day", 144), ("week", 168), ("month", 120)]
)
def test_the_range_of_the_charts_is_in_the_address(
    ev: Evervec, admin: Operator, range: str, points: int
) -> None:
    ev.add("note", "a", id="1")
    assert abs(len(admin.rows("/", range=range)) - points) <= 1
    current = [
        attrs["href"]
        for tag, attrs in admin.read("/", range=range).tags
        if tag == "a" and attrs.get("aria-current") == "true"
    ]
    assert current == [f"/?range={range}"]


def test_an_unknown_range_is_refused_with_those_that_are_known(admin: Operator) -> None:
    assert "'hour', 'day', 'week' or 'month'" in admin.read("/", status=422, range="year").text


def test_trouble_is_said_with_a_link_to_the_page_about_it(ev: Evervec, admin: Operator) -> None:
    ev.add("note", "a", id="1")
    fail_for_good(ev, "1")
    shown = admin.read("/")
    assert "failed" in shown.text
    assert "/ui/failures" in shown.links


def test_each_tenant_sees_its_own_numbers(ev: Evervec, served: Served) -> None:
    add_all(ev, "note", "a", "b")
    ev.process_all()
    reader = Operator(served, served.key("other", "reader"))
    assert "There are no records yet" in reader.read("/").text
    assert sum(row["done"] for row in reader.rows("/")) == 0
    assert reader.get("/", tenant="default").status_code == 403
    admin = Operator(served, served.key(role="admin"))
    assert sum(row["done"] for row in admin.rows("/")) == 2
    assert sum(row["done"] for row in admin.rows("/", tenant="other")) == 0
