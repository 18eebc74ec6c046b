"""Keys of attached tables: each row is indexed exactly, or set aside, named, and in nobody's way."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import evervec
from evervec import Evervec
from evervec.records.drafts import LONGEST_ID, LONGEST_NAME
from support.application import App
from support.world import ScriptedEmbedder

LONG = Random(7).randbytes(1300).hex()
"""longer than an id may be, as long as a key in PostgreSQL, and nothing that it could compress"""


@pytest.fixture(params=["sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    app = App(request.param, tmp_path)
    app.execute("create table pages (url text primary key, body text, team text)")
    yield app
    app.close()


@pytest.fixture
def ev(app: App) -> Iterator[Evervec]:
    with evervec.open(app.url, embedder=ScriptedEmbedder()) as ev:
        yield ev


def attach(ev: Evervec, tenant: str | None = None) -> None:
    ev.attach("pages", kind="page", id="url", text="body", tenant=tenant)


def ids(ev: Evervec) -> list[str]:
    ev.process_all()
    return [record.id for record in ev.records("page", limit=1000)]


def insert(app: App, *urls: str, team: str | None = None) -> None:
    app.executemany("insert into pages values (?, ?, ?)", [(u, f"text {u}", team) for u in urls])


def told(ev: Evervec, caplog: pytest.LogCaptureFixture) -> list[str]:
    """The alerts of this sweep, and of those since the last call."""
    ev._housekeeping.alert()
    lines = [line for line in caplog.messages if line.startswith(("[ALERT]", "[CLEAR]"))]
    caplog.clear()
    return lines


def test_the_longest_key_is_indexed_and_a_longer_one_is_in_nobodys_way(
    app: App, ev: Evervec
) -> None:
    attach(ev)
    insert(app, "a", LONG[:LONGEST_ID], LONG[: LONGEST_ID + 1], "z")
    ev.add("note", "by hand", id=1)
    assert ids(ev) == sorted(["a", LONG[:LONGEST_ID], "z"])
    assert ev.get("note", 1).embedded  # type: ignore[union-attr]
    assert app.logged() == 0
    (trouble,) = ev.attachments.troubles()
    assert trouble.startswith("1 row of pages cannot be indexed")
    assert f"has {LONGEST_ID + 1} bytes" in trouble


def test_rows_that_were_there_before_are_set_aside_too(app: App, ev: Evervec) -> None:
    insert(app, "a", LONG, "z")
    attach(ev)
    assert ids(ev) == ["a", "z"]
    (attached,) = ev.attachments.attached()
    assert attached.backfilled
    assert str(LONG[:20]) in str(ev.attachments.set_aside(attached.attachment))


def test_a_row_that_is_set_aside_is_told_once_and_cleared_when_it_is_gone(
    app: App, ev: Evervec, caplog: pytest.LogCaptureFixture
) -> None:
    attach(ev)
    ev.process_all()
    insert(app, LONG, "x" + LONG, "fine")
    ev.process_all()
    assert sum("is skipped" in line for line in caplog.messages) == 1
    (alert,) = told(ev, caplog)
    assert alert.startswith("[ALERT] some rows of pages cannot be indexed")
    app.execute("update pages set body = 'changed'")
    ev.process_all()
    assert told(ev, caplog) == []
    app.execute("delete from pages where url = ?", (LONG,))
    ev.process_all()
    assert told(ev, caplog) == [], "another one is still there"
    app.execute("update pages set url = 'short' where url = ?", ("x" + LONG,))
    assert ids(ev) == ["fine", "short"]
    (clear,) = told(ev, caplog)
    assert clear.startswith("[CLEAR]")
    assert list(ev.attachments.troubles()) == []
    (attached,) = ev.attachments.attached()
    assert ev.attachments.set_aside(attached.attachment) is None
    assert app.execute(f"select unfit from {app.table('attached')}").fetchall() == [(None,)]


def test_a_tenant_that_cannot_be_one_is_set_aside_and_shown_to_no_other(
    app: App, ev: Evervec
) -> None:
    attach(ev, tenant="team")
    insert(app, "mine", team="")
    insert(app, "theirs", LONG, team="blue")
    insert(app, "nobodys", team="t" * (LONGEST_NAME + 1))
    insert(app, "blank", team=" ")
    assert ids(ev) == ["mine"]
    assert ids(ev.of("blue")) == ["theirs"]
    (all_of_it,) = ev.attachments.troubles()
    assert all_of_it.startswith("3 rows")
    (of_blue,) = ev.attachments.troubles("blue")
    assert of_blue.startswith("1 row of pages")
    assert list(ev.attachments.troubles("default")) == []


def test_a_key_that_the_store_refuses_is_found_by_bisection(app: App, ev: Evervec) -> None:
    attach(ev)
    ev.process_all()
    if app.engine == "sqlite":
        app.execute(
            "create trigger refuse before insert on evervec_records when new.id = 'n-7' "
            "begin select raise(abort, 'not this one'); end"
        )
    else:
        app.execute("alter table evervec.records add check (id <> 'n-7')")
    insert(app, *(f"n-{n}" for n in range(20)))
    assert sorted(ids(ev)) == sorted(f"n-{n}" for n in range(20) if n != 7)
    (attached,) = ev.attachments.attached()
    assert "'n-7' (the store rejected it)" in str(ev.attachments.set_aside(attached.attachment))


def test_tables_that_cannot_be_followed_do_not_stop_other_work(
    app: App, ev: Evervec, caplog: pytest.LogCaptureFixture
) -> None:
    attach(ev)
    ev.process_all()
    changes = app.table("changes")
    app.execute(f"alter table {changes} rename to changes_elsewhere")
    ev.add("note", "by hand", id=1)
    with pytest.raises(evervec.StoreError):  # once nothing else is left to do
        ev.process_all()
    assert ev.get("note", 1).embedded  # type: ignore[union-attr]
    with evervec.open(app.url, embedder=ScriptedEmbedder(), alert_away_seconds=0) as other:
        with pytest.raises(evervec.StoreError):
            other.process_all()
        *others, alert = told(other, caplog)
    assert alert.startswith("[ALERT] attached tables cannot be synced")
    # SQLite has rewritten the triggers
    assert ["was altered" in other for other in others] == [True] * (app.engine == "sqlite")
    app.execute(
        f"alter table {'' if app.engine == 'sqlite' else 'evervec.'}changes_elsewhere "
        f"rename to {changes.replace('evervec.', '')}"
    )
    insert(app, "a")
    assert ids(ev) == ["a"]
    assert ev.tables()[0].trouble is None


def test_a_table_that_lost_its_triggers_or_its_name_is_told_and_cleared(
    app: App, ev: Evervec, caplog: pytest.LogCaptureFixture
) -> None:
    attach(ev)
    insert(app, "a")
    ev.process_all()
    assert told(ev, caplog) == []
    app.execute("alter table pages rename to sheets")
    (alert,) = told(ev, caplog)
    assert "[ALERT] the table pages is now named sheets" in alert
    assert told(ev, caplog) == []
    assert [t for t in ev.attachments.troubles() if "pages is now named sheets" in t]
    app.execute("create table pages (url text primary key, body text, team text)")
    assert told(ev, caplog) == [], "still the same episode"
    (trouble,) = ev.attachments.troubles()
    assert "pages lacks the trigger" in trouble, "those of its name are on the other table"
    app.execute("drop table pages")
    app.execute("alter table sheets rename to pages")
    (clear,) = told(ev, caplog)
    assert clear.startswith("[CLEAR]")
    app.execute("drop table pages")
    (alert,) = told(ev, caplog)
    assert alert.startswith("[ALERT]")
