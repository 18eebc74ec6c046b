"""The audit log: filtered, page by page, downloaded, for platform admins only."""

import csv
import io
import re
from pathlib import Path

import pytest

import evervec
from evervec import Evervec
from evervec.server.audit import Audit
from evervec.server.dashboard.pages import audit
from support.dashboard import Person, person
from support.service import Served


@pytest.fixture
def admin(served: Served) -> Person:
    return person(served, served.key(role="admin"))


def note_many(ev: Evervec, count: int, action: str = "job.retry", tenant: str = "acme") -> None:
    log = Audit(ev.store)
    for n in range(count):
        log.note("anna", tenant, action, f"job {n}")


def test_every_action_is_suggested() -> None:
    """Those that the code notes; a name with braces stands for several."""
    folder = Path(evervec.__file__).parent
    text = "".join(path.read_text() for path in folder.rglob("*.py"))
    noted = set(re.findall(r'\b(?:audit|audited|write_audit)\((?:ev, )?f?"([^"]+)"', text))
    assert len(noted) > 25
    for name in noted:
        pattern = re.sub(r"\\{.*?\\}", "[a-z]+", re.escape(name))
        assert any(re.fullmatch(pattern, each) for each in audit.ACTIONS), name
    assert list(audit.ACTIONS) == sorted(audit.ACTIONS)


def test_entries_are_listed_and_filtered(served: Served, ev: Evervec, admin: Person) -> None:
    note_many(ev, 2)
    note_many(ev, 1, "key.revoke", "globex")
    page = admin.get("/ui/audit").text
    assert page.count('data-key="entry-') == 4  # with the sign-in
    assert admin.get("/ui/audit", action="key.revoke").text.count('data-key="entry-') == 1
    assert admin.get("/ui/audit", tenant="acme").text.count('data-key="entry-') == 2
    assert "Nothing matches" in admin.get("/ui/audit", key="ev_000000000000").text


def test_older_entries_are_on_the_next_page(served: Served, ev: Evervec, admin: Person) -> None:
    note_many(ev, 250)
    seen, address = [], "/ui/audit?format=csv"
    while address:
        answer = admin.http.get(address)
        seen += [row["target"] for row in csv.DictReader(io.StringIO(answer.text))]
        following = answer.links.get("next", {}).get("url")
        address = f"{following}&format=csv" if following else ""
    *seen, sign_in = seen
    assert seen == [f"job {n}" for n in reversed(range(250))]
    assert "agent a" in sign_in


def test_a_rare_filter_searches_a_part_of_the_log_at_a_time(
    served: Served, ev: Evervec, admin: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_SEARCHED", 10)
    note_many(ev, 1, "key.revoke")
    note_many(ev, 25)
    address, pages = "/ui/audit?action=key.revoke", 0
    while "job 0" not in (text := admin.http.get(address).text):
        assert "Search older entries" in text
        address = text.partition('<p class="row"><a class="button" href="')[2].partition('"')[0]
        address = address.replace("&amp;", "&")
        pages += 1
    assert pages == 2


def test_cells_are_no_formulas(served: Served, ev: Evervec, admin: Person) -> None:
    Audit(ev.store).note("=1+1", "acme", "job.retry", "@SUM(A1)")
    answer = admin.get("/ui/audit", format="csv")
    row, _ = csv.DictReader(io.StringIO(answer.text))
    assert (row["agent"], row["target"]) == ("'=1+1", "'@SUM(A1)")
    assert answer.headers["content-disposition"] == 'attachment; filename="audit.csv"'


def test_hostile_entries_are_only_text(served: Served, ev: Evervec, admin: Person) -> None:
    hostile = "<script>alert(1)</script>\"'\u202e" + "x" * 900
    Audit(ev.store).note(hostile, hostile, hostile, hostile, hostile)
    page = admin.get("/ui/audit", tenant=hostile[:200]).text + admin.get("/ui/audit").text
    assert "<script>alert" not in page


@pytest.mark.parametrize("role", ["reader", "writer"])
def test_others_see_no_audit_log(served: Served, ev: Evervec, role: str) -> None:
    note_many(ev, 1)
    other = person(served, served.key("acme", role))
    for params in ({}, {"tenant": "acme"}, {"format": "csv"}):
        answer = other.get("/ui/audit", **params)
        assert answer.status_code == 403
        assert "job 0" not in answer.text
