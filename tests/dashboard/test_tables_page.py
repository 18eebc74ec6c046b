"""Tables: the state of what is attached, attached again after a dry run, and detached."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from evervec import Evervec
from support.dashboard import Person, person
from support.service import Served


@pytest.fixture
def app(ev: Evervec, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """An application's connection, with a table for each tenant column and one without."""
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as conn:
        conn.execute("create table articles (id integer primary key, title text, body text)")
        conn.execute("create table faq (id integer primary key, body text, org text)")
        conn.execute("insert into articles values (1, 'Tea', 'grows'), (2, 'Tide', 'moves')")
        conn.execute("insert into faq values (1, 'how', 'acme'), (2, 'why', 'globex')")
        ev.attach("articles", text="body", title="title")
        ev.attach("faq", text="Q: {body}", tenant="org")
        ev.process_all()
        yield conn


def drop_triggers(conn: sqlite3.Connection, table: str) -> None:
    found = conn.execute(
        "select name from sqlite_master where type = 'trigger' and tbl_name = ?", (table,)
    )
    for (name,) in found.fetchall():
        conn.execute(f'drop trigger "{name}"')


@pytest.fixture
def admin(served: Served) -> Person:
    return person(served, served.key(role="admin"))


def test_an_empty_page_says_how_to_begin(served: Served, admin: Person) -> None:
    assert "attach articles --text body" in admin.get("/ui/tables").text


def test_state_and_what_was_given_are_shown(
    served: Served, app: sqlite3.Connection, admin: Person
) -> None:
    page = admin.get("/ui/tables").text
    assert page.count('<span class="tag good"') == 2
    assert "Q: {body}" in page
    assert "all rows belong to default" in page
    drop_triggers(app, "faq")
    page = admin.get("/ui/tables").text
    assert "1 table is no longer followed" in page
    assert "lacks the trigger" in page
    assert "<code>evervec attach faq --again</code>" in page


def test_no_page_waits_for_a_count_of_all_records(
    served: Served,
    ev: Evervec,
    app: sqlite3.Connection,
    admin: Person,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes the longer the more records there are."""
    mine = person(served, served.key("acme", "reader"))
    counting = threading.Event()

    def waits(*_: object) -> list[object]:
        assert counting.wait(60)
        return []

    with monkeypatch.context() as slow:
        slow.setattr(ev.store.versions, "all", waits)
        slow.setattr(ev.store.versions, "holdings", waits)
        for somebody in (admin, mine):
            page = somebody.get("/ui/tables").text
            assert "being counted …" in page
            assert "<bdi>faq</bdi>" in page
        counting.set()
    assert "being counted …" not in admin.get("/ui/tables").text


def test_a_table_is_attached_again_after_a_dry_run(
    served: Served, ev: Evervec, app: sqlite3.Connection, admin: Person
) -> None:
    drop_triggers(app, "articles")
    app.execute("update articles set body = 'is green' where id = 1")
    plan = admin.get("/ui/tables/again", kind="articles")
    assert "create trigger" in plan.text
    assert "about 2" in plan.text
    assert [t.state for t in ev.tables() if t.kind == "articles"] == ["broken"]
    answer = admin.send("/ui/tables/again", kind="articles")
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/tables")
    ev.process_all()
    record = ev.get("articles", "1")
    assert record is not None
    assert record.text == "is green"
    assert "table.attach" in admin.get("/ui/audit").text


def test_a_renamed_table_is_attached_under_its_new_name(
    served: Served, ev: Evervec, app: sqlite3.Connection, admin: Person
) -> None:
    drop_triggers(app, "articles")
    app.execute("alter table articles rename to posts")
    assert admin.get("/ui/tables/again", kind="articles").status_code == 422
    assert admin.get("/ui/tables/again", kind="articles", to="posts").status_code == 200
    admin.send("/ui/tables/again", kind="articles", to="posts")
    assert {t.table: t.state for t in ev.tables()}["posts"] != "broken"


def test_a_table_is_detached_only_with_its_name_typed(
    served: Served, ev: Evervec, app: sqlite3.Connection, admin: Person
) -> None:
    assert admin.send("/ui/tables/detach", kind="articles", confirm="x").status_code == 422
    assert len(ev.tables()) == 2
    assert admin.send("/ui/tables/detach", kind="articles", confirm="articles").status_code == 303
    assert [t.kind for t in ev.tables()] == ["faq"]
    assert ev.get("articles", "1") is None
    admin.send("/ui/tables/detach", kind="faq", confirm="faq", keep="1")
    assert ev.tables() == []
    assert ev.of("acme").get("faq", "1") is not None
    assert admin.send("/ui/tables/detach", kind="faq", confirm="faq").status_code == 422
    assert "faq, records are kept" in admin.get("/ui/audit").text


@pytest.mark.parametrize("role", ["reader", "writer"])
def test_a_tenant_sees_its_tables_without_others_rows(
    served: Served, ev: Evervec, app: sqlite3.Connection, role: str
) -> None:
    app.execute("insert into faq values (987654321, 'secret', 'glo' || char(0) || 'bex')")
    ev.process_all()
    mine = person(served, served.key("acme", role))
    page = mine.get("/ui/tables").text
    assert "<bdi>faq</bdi>" in page
    assert "articles" not in page, "a table of another tenant"
    assert "Q: {body}" not in page
    assert "987654321" not in page
    assert "<dd>1</dd>" in page, "only its own records are counted"
    assert "Attach again" not in page
    nobody = person(served, served.key("initech", role))
    assert "faq" not in nobody.get("/ui/tables").text
    assert mine.get("/ui/tables/again", kind="faq").status_code == 403
    assert mine.send("/ui/tables/again", kind="faq").status_code == 403
    assert mine.send("/ui/tables/detach", kind="faq", confirm="faq").status_code == 403
    assert len(ev.tables()) == 2


def test_an_admin_sees_the_tables_of_one_tenant(
    served: Served, app: sqlite3.Connection, admin: Person
) -> None:
    assert "articles" not in admin.get("/ui/tables", tenant="acme").text
    assert "articles" in admin.get("/ui/tables", tenant="default").text


def test_a_name_that_means_several_tables_changes_none(
    served: Served, ev: Evervec, app: sqlite3.Connection, admin: Person
) -> None:
    ev.attach("articles", text="title", kind="titles")
    assert admin.get("/ui/tables/again", kind="articles").status_code == 409
    assert admin.send("/ui/tables/again", kind="articles").status_code == 409
    assert admin.send("/ui/tables/detach", kind="articles", confirm="articles").status_code == 409
    assert len(ev.tables()) == 3
    assert admin.send("/ui/tables/detach", kind="titles", confirm="titles").status_code == 303
    assert {t.kind for t in ev.tables()} == {"articles", "faq"}


def test_hostile_names_are_only_text(served: Served, ev: Evervec, app: sqlite3.Connection) -> None:
    hostile = "<script>alert(1)</script>'"
    name = hostile.replace('"', '""')
    app.execute(f'create table "{name}" (id integer primary key, body text)')
    ev.attach(hostile, text="body", kind=hostile)
    admin = person(served, served.key(role="admin"))
    page = admin.get("/ui/tables").text + admin.get("/ui/tables/again", kind=hostile).text
    assert "<script>alert" not in page
    answer = admin.send("/ui/tables/detach", kind=hostile, confirm=hostile)
    assert answer.status_code == 303
    assert len(ev.tables()) == 2
