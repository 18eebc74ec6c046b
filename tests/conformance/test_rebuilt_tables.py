"""Tables that were rebuilt, renamed or robbed of their triggers are noticed, and attached again with
what was given before."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

import evervec
from evervec import Evervec, InvalidArgument
from support.application import ARTICLES, App
from support.processes import until
from support.world import ScriptedEmbedder


@pytest.fixture(params=["sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    app = App(request.param, tmp_path)
    yield app
    app.close()


@pytest.fixture
def ev(app: App) -> Iterator[Evervec]:
    with evervec.open(app.url, embedder=ScriptedEmbedder()) as ev:
        app.execute("insert into articles (id, body, author) values (1, 'one', 'a'), "
                    "(2, 'two', 'b'), (3, 'three', 'c')")  # fmt: skip
        ev.attach("articles", text="{body} by {author}", metadata=["author"], kind="article")
        ev.process_all()
        yield ev


def rebuild(app: App, definition: str = ARTICLES, name: str = "articles") -> None:
    """As Alembic's batch mode and Django's schema editor do on SQLite."""
    columns = "id, title, body, author, rank, team, seen"
    app.execute("begin")
    app.execute(definition.replace("table articles", "table new_articles"))
    app.execute(f"insert into new_articles ({columns}) select {columns} from articles")
    app.execute("drop table articles")
    app.execute(f"alter table new_articles rename to {name}")
    app.execute("commit")


def texts(ev: Evervec) -> dict[str, str]:
    ev.process_all()
    assert ev.verify().complete
    return {record.id: record.text for record in ev.records("article")}


def embedded(ev: Evervec) -> list[str]:
    assert isinstance(ev.embedder, ScriptedEmbedder)
    return ev.embedder.texts


def state(ev: Evervec) -> tuple[str, str]:
    (table,) = ev.tables()
    return table.state, str(table.trouble)


def test_a_rebuilt_table_is_noticed_everywhere_and_attached_again(app: App, ev: Evervec) -> None:
    assert state(ev) == ("attached", "None")
    rebuild(app)
    app.execute("update articles set body = 'changed' where id = 1")
    app.execute("delete from articles where id = 2")
    app.execute("insert into articles (id, body, author) values (4, 'four', 'd')")
    ev.process_all()
    asked = len(embedded(ev))

    found, told = state(ev)
    assert found == "broken"
    assert "lacks the trigger" in told
    assert "`evervec attach articles --again`" in told
    (trouble,) = ev.verify().troubles
    assert told in trouble
    ev._housekeeping.sweep()
    (alert,) = ev.alerts()
    assert (alert.name, alert.text) == ("table article", told)

    (again,) = ev.attach_again()
    assert (again.kind, again.template) == ("article", "{body} by {author}")
    assert state(ev)[0] == "backfilling"
    app.execute("insert into articles (id, body, author) values (5, 'five', 'e')")
    assert texts(ev) == {
        "1": "changed by a", "3": "three by c", "4": "four by d", "5": "five by e"
    }  # fmt: skip
    assert sorted(embedded(ev)[asked:]) == ["changed by a", "five by e", "four by d"]
    assert state(ev) == ("attached", "None")
    ev._housekeeping.alert()
    assert ev.alerts() == []
    assert ev.attach_again() == []


def test_a_dry_run_of_attaching_again_changes_nothing(app: App, ev: Evervec) -> None:
    rebuild(app)
    (planned,) = ev.attach_again("articles", dry_run=True)
    assert planned.sql
    assert planned.estimate is not None
    assert planned.estimate.records == 3
    assert state(ev)[0] == "broken"


def test_a_table_that_is_whole_can_be_attached_again_and_costs_nothing(
    app: App, ev: Evervec
) -> None:
    asked = len(embedded(ev))
    for name in ("articles", "article"):
        (again,) = ev.attach_again(name)
        assert again.table == "articles"
        assert len(texts(ev)) == 3
    assert len(embedded(ev)) == asked
    with pytest.raises(InvalidArgument, match="'nothing' is not attached: `evervec tables`"):
        ev.attach_again("nothing")


def test_a_renamed_table_is_found_by_its_triggers(app: App, ev: Evervec) -> None:
    app.execute('alter table articles rename to "Old Papers"')
    app.execute("""update "Old Papers" set body = 'changed' where id = 1""")
    assert "the table articles is now named" in state(ev)[1]
    assert "Old Papers" in state(ev)[1]
    (again,) = ev.attach_again("articles")
    app.execute("""update "Old Papers" set body = 'too' where id = 2""")
    assert texts(ev) == {"1": "changed by a", "2": "too by b", "3": "three by c"}
    (table,) = ev.tables()
    assert (table.table, table.rows, table.embedded) == (again.table, 3, 3)


def test_a_change_of_the_schema_that_concerns_no_trigger_is_no_trouble(
    app: App, ev: Evervec
) -> None:
    app.execute("alter table articles rename column seen to looked_at")
    app.execute("alter table articles add column more text")
    app.execute("create table others (id integer primary key, article integer references articles)")
    app.execute("alter table others rename to remarks")
    assert state(ev) == ("attached", "None")


def test_a_table_that_is_renamed_and_renamed_back_is_followed(app: App, ev: Evervec) -> None:
    app.execute("alter table articles rename to papers")
    app.execute("alter table papers rename to articles")
    assert state(ev) == ("attached", "None")


def test_a_table_rebuilt_under_another_name_needs_that_name(app: App, ev: Evervec) -> None:
    rebuild(app, name="papers")
    found, told = state(ev)
    assert found == "broken"
    assert "the table articles is gone" in told
    assert "--again --to NAME" in told
    with pytest.raises(InvalidArgument, match="table 'articles' does not exist"):
        ev.attach_again()
    ev.attach_again("articles", to="papers")
    app.execute("delete from papers where id = 3")
    assert texts(ev) == {"1": "one by a", "2": "two by b"}
    with pytest.raises(InvalidArgument, match="name the table"):
        ev.attach_again(to="papers")


def test_a_column_that_is_gone_is_named_with_its_use(app: App, ev: Evervec) -> None:
    app.execute("alter table articles rename column author to writer")
    told = state(ev)[1]
    assert "no longer has the column author (used as template and metadata)" in told
    assert "writer" in told
    ev._housekeeping.sweep()
    assert ev.alerts()[0].text == told
    with pytest.raises(InvalidArgument, match="articles has no column 'author'; it has id, title"):
        ev.attach_again()
    assert ev.get("article", "1") is not None
    ev.attach("articles", text="{body} by {writer}", metadata=["writer"], kind="article")
    assert texts(ev)["1"] == "one by a"


def test_another_primary_key_is_noticed_and_not_attached(app: App, ev: Evervec) -> None:
    if app.engine == "postgres":
        app.execute("alter table articles drop constraint articles_pkey")
    else:
        rebuild(app, ARTICLES.replace("id integer primary key, title text",
                                      "id integer, title text primary key"))  # fmt: skip
    assert "id is no longer a key of articles" in state(ev)[1]
    with pytest.raises(InvalidArgument, match="id is not a key of articles"):
        ev.attach_again()
    assert len(ev.records("article")) == 3


@pytest.mark.parametrize("app", ["postgres"], indirect=True)
def test_a_key_of_another_type_is_attached_again(app: App, ev: Evervec) -> None:
    app.execute("alter table articles alter column id type text")
    assert "the type of the key of articles changed" in state(ev)[1]
    asked = len(embedded(ev))
    ev.attach_again()
    app.execute("insert into articles (id, body, author) values ('x', 'new', 'd')")
    assert texts(ev)["x"] == "new by d"
    assert embedded(ev)[asked:] == ["new by d"]


@pytest.mark.parametrize("app", ["sqlite"], indirect=True)
def test_a_trigger_that_sqlite_rewrote_for_another_column_is_noticed(app: App, ev: Evervec) -> None:
    """It watches the renamed column now, and not the new one with the old name."""
    app.execute("alter table articles rename column author to writer")
    app.execute("alter table articles add column author text")
    assert "was altered" in state(ev)[1]
    ev.attach_again()
    app.execute("update articles set author = 'new' where id = 1")
    assert texts(ev)["1"] == "one by new"


def test_one_broken_table_hides_no_other(app: App, ev: Evervec) -> None:
    app.execute("create table others (id integer primary key, body text)")
    app.execute("insert into others values (1, 'other')")
    ev.attach("others", text="body")
    app.execute("create table thirds (id integer primary key, body text)")
    ev.attach("thirds", text="body")
    rebuild(app)
    app.execute("drop table others")
    assert {t.kind: t.state for t in ev.tables()} == {
        "article": "broken", "others": "broken", "thirds": "backfilling"
    }  # fmt: skip
    with pytest.raises(InvalidArgument, match="'others' does not exist"):
        ev.attach_again()
    ev.process_all()
    assert {t.kind: t.state for t in ev.tables()} == {
        "article": "attached", "others": "broken", "thirds": "attached"
    }  # fmt: skip


@pytest.mark.parametrize("app", ["postgres"], indirect=True)
def test_a_table_that_cannot_be_read_now_does_not_stop_the_list(app: App, ev: Evervec) -> None:
    """A schema migration locks it, in a transaction that lasts."""
    with psycopg.connect(app.url) as migration:
        migration.execute("lock table articles in access exclusive mode")
        (table,) = ev.tables()
        assert (table.state, table.rows, table.embedded) == ("attached", None, 3)


@pytest.mark.parametrize("app", ["postgres"], indirect=True)
def test_a_transaction_that_is_open_meanwhile_is_waited_for(app: App, ev: Evervec) -> None:
    """No trigger fired for what it wrote."""
    rebuild(app)
    with psycopg.connect(app.url) as writer, ThreadPoolExecutor(1) as threads:
        writer.execute("insert into articles (id, body, author) values (4, 'four', 'd')")
        again = threads.submit(ev.attach_again)
        waits = (
            "select count(*) from pg_locks where not granted and relation = 'articles'::regclass"
        )
        until(lambda: app.execute(waits).fetchone()[0])
        writer.commit()
        assert len(again.result()) == 1
    assert texts(ev)["4"] == "four by d"


def test_defaults_are_those_of_the_command_line(app: App, ev: Evervec) -> None:
    planned = ev.attach("articles", text="body", dry_run=True)
    assert (planned.kind, planned.key) == ("articles", ("id",))
    assert planned.estimate is not None
    assert (planned.estimate.records, planned.estimate.seconds) == (3, None)
    if app.engine == "postgres":
        for name, kind in (("public.articles", "articles"), ('public."articles"', "articles")):
            assert ev.attach(name, text="body", dry_run=True).kind == kind


def test_rows_beyond_the_sample_are_estimated(app: App, ev: Evervec, monkeypatch: Any) -> None:
    monkeypatch.setattr("evervec.versions.estimate._ROWS", 10)
    app.executemany("insert into articles (id, body) values (?, 'four words of text')",
                    [(n,) for n in range(10, 107)])  # fmt: skip
    planned = ev.attach("articles", text="body", dry_run=True)
    assert planned.estimate is not None
    assert (planned.estimate.records, planned.estimate.chunks) == (100, 100)
