"""Attached tables: whatever program writes them, the index follows."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

import evervec
from evervec import Evervec, InvalidArgument
from support import postgres
from support.world import ScriptedEmbedder

ARTICLES = (
    "create table articles (id integer primary key, title text, body text, author text, "
    "rank real, team text, seen integer)"
)


class App:
    """The application's own connection; it knows nothing of evervec."""

    def __init__(self, engine: str, folder: Path) -> None:
        self.engine = engine
        self.url = str(folder / "app.db") if engine == "sqlite" else postgres.DATABASES.create()
        self.conn: Any = (
            sqlite3.connect(self.url, isolation_level=None)
            if engine == "sqlite"
            else psycopg.connect(self.url, autocommit=True)
        )
        self.execute(ARTICLES)

    def execute(self, query: str, values: Sequence[Any] = ()) -> Any:
        if self.engine == "postgres":
            query = query.replace("?", "%s")
        return self.conn.execute(query, values)

    def executemany(self, query: str, rows: Sequence[Sequence[Any]]) -> None:
        for row in rows:
            self.execute(query, row)

    def logged(self) -> int:
        count: int = self.execute(f"select count(*) from {self.table('changes')}").fetchone()[0]
        return count

    def table(self, name: str) -> str:
        return f"evervec_{name}" if self.engine == "sqlite" else f"evervec.{name}"

    def triggers(self) -> list[str]:
        query = (
            "select name from sqlite_schema where type = 'trigger'"
            if self.engine == "sqlite"
            else "select tgname from pg_trigger where not tgisinternal"
        )
        return [name for (name,) in self.execute(query).fetchall()]

    def drop_trigger(self, name: str) -> None:
        on = "" if self.engine == "sqlite" else " on articles"
        self.execute(f"drop trigger {name}{on}")


@pytest.fixture(params=["sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    app = App(request.param, tmp_path)
    yield app
    app.conn.close()


@pytest.fixture
def ev(app: App) -> Iterator[Evervec]:
    with evervec.open(app.url, embedder=ScriptedEmbedder()) as ev:
        yield ev


def attach(ev: Evervec, **given: Any) -> evervec.Attachment:
    options = {"kind": "article", "text": ["title", "body"], "metadata": ["author"], **given}
    return ev.attach("articles", **options)


def texts(ev: Evervec, kind: str = "article") -> dict[str, str]:
    ev.process_all()
    assert ev.verify().clean
    return {record.id: record.text for record in ev.records(kind, limit=1000)}


def embedded(ev: Evervec) -> list[str]:
    assert isinstance(ev.embedder, ScriptedEmbedder)
    return ev.embedder.texts


def test_rows_that_are_there_and_rows_that_come_are_found(app: App, ev: Evervec) -> None:
    app.execute(
        "insert into articles (id, title, body, author) values (1, 'Tea', 'grows on hills', 'a')"
    )
    attach(ev)
    app.execute("insert into articles (id, title, body) values (2, 'Coffee', 'likes shade')")
    assert texts(ev) == {"1": "Tea\n\ngrows on hills", "2": "Coffee\n\nlikes shade"}
    (hit,) = ev.search("hills", k=1)
    assert (hit.id, hit.metadata) == ("1", {"author": "a"})


def test_updates_deletes_and_new_keys_are_followed(app: App, ev: Evervec) -> None:
    attach(ev)
    app.executemany("insert into articles (id, body) values (?, ?)",
                    [(n, f"text {n}") for n in range(1, 6)])  # fmt: skip
    assert len(texts(ev)) == 5
    app.execute("update articles set body = 'changed' where id = 1")
    app.execute("update articles set id = 20 where id = 2")
    app.execute("delete from articles where id = 3")
    app.execute("begin")
    app.execute("delete from articles where id = 4")
    app.execute("insert into articles (id, body) values (4, 'replaced')")
    app.execute("commit")
    app.execute("insert into articles (id, body) values (5, 'x') "
                "on conflict (id) do update set body = 'upserted'")  # fmt: skip
    if app.engine == "sqlite":
        app.execute("insert or replace into articles (id, body) values (4, 'replaced')")
    assert texts(ev) == {"1": "changed", "20": "text 2", "4": "replaced", "5": "upserted"}
    app.execute("delete from articles")
    assert texts(ev) == {}


def test_only_watched_columns_make_work_and_metadata_embeds_nothing(app: App, ev: Evervec) -> None:
    attach(ev, weight="rank")
    app.execute("insert into articles (id, body, author, rank) values (1, 'text', 'a', 0.5)")
    texts(ev)
    asked = len(embedded(ev))
    app.execute("update articles set seen = 7")
    assert app.logged() == 0
    app.execute("update articles set body = 'text', author = 'a'")
    assert app.logged() == 0
    app.execute("update articles set author = 'b', rank = 2.0")
    texts(ev)
    record = ev.get("article", 1)
    assert record is not None
    assert (record.metadata, record.weight) == ({"author": "b"}, 1.0)
    assert len(embedded(ev)) == asked


def test_what_is_rolled_back_never_was(app: App, ev: Evervec) -> None:
    attach(ev)
    app.execute("begin")
    app.execute("insert into articles (id, body) values (1, 'kept')")
    app.execute("savepoint s")
    app.execute("insert into articles (id, body) values (2, 'undone')")
    app.execute("rollback to s")
    app.execute("commit")
    app.execute("begin")
    app.execute("update articles set body = 'undone'")
    app.execute("rollback")
    assert texts(ev) == {"1": "kept"}
    assert embedded(ev) == ["kept"]


def test_a_tenant_column_says_whose_a_row_is(app: App, ev: Evervec) -> None:
    attach(ev, tenant="team")
    app.execute("insert into articles (id, body, team) values (1, 'secret', 'red'), "
                "(2, 'open', null)")  # fmt: skip
    ev.process_all()
    red = Evervec(ev.store, ev.index, ev.embedder, "red", ev.settings)
    assert [r.id for r in red.records("article")] == ["1"]
    assert [r.id for r in ev.records("article")] == ["2"]
    app.execute("update articles set team = 'blue' where id = 1")
    ev.process_all()
    assert red.records("article") == []
    assert red.search("secret") == []
    blue = Evervec(ev.store, ev.index, ev.embedder, "blue", ev.settings)
    assert [r.id for r in blue.records("article")] == ["1"]


def test_keys_of_several_columns_and_odd_names(app: App, ev: Evervec) -> None:
    app.execute('create table "odd ""name" ("der Schlüssel" text, n int, "te,xt" text, x int, '
                'primary key ("der Schlüssel", n))')  # fmt: skip
    app.execute("""insert into "odd ""name" values ('a"b', 1, 'first', 1)""")
    ev.attach('odd "name', kind="o'dd", id=["der Schlüssel", "n"], text="te,xt", metadata=["x"])
    app.execute("""insert into "odd ""name" values ('日本', 2, 'second', 2)""")
    found = texts(ev, "o'dd")
    assert {tuple(json.loads(id)): text for id, text in found.items()} == {
        ('a"b', "1"): "first", ("日本", "2"): "second"
    }  # fmt: skip
    app.execute("""delete from "odd ""name" where n = 1""")
    assert list(texts(ev, "o'dd").values()) == ["second"]


@pytest.mark.parametrize("app", ["sqlite"], indirect=True)
def test_keys_without_a_declared_type_and_rows_without_key(app: App, ev: Evervec) -> None:
    app.execute("create table loose (k, body text)")
    ev.attach("loose", kind="loose", id="k", text="body")
    app.execute("insert into loose values (1, 'number'), ('1x', 'word'), (null, 'none')")
    assert texts(ev, "loose") == {"1": "number", "1x": "word"}


def test_a_template_and_a_title(app: App, ev: Evervec) -> None:
    attach(ev, text="{body} by {author}", title="title")
    app.execute("insert into articles values (1, 'Head', 'words', 'me', 1, null, 0)")
    assert texts(ev) == {"1": "words by me"}
    (hit,) = ev.search("words")
    assert hit.title == "Head"


def test_rows_without_text_are_no_records(app: App, ev: Evervec) -> None:
    attach(ev)
    app.execute("insert into articles (id, title, body) values (1, '', null), (2, null, ' ')")
    assert texts(ev) == {}
    assert ev.queue.stats().failed == 0
    app.execute("update articles set body = 'now' where id = 1")
    assert texts(ev) == {"1": "now"}
    app.execute("update articles set body = null where id = 1")
    assert texts(ev) == {}


def test_attached_anew_with_other_columns_all_rows_are_done_anew(app: App, ev: Evervec) -> None:
    app.execute("insert into articles (id, title, body) values (1, 'head', 'body')")
    attach(ev)
    assert texts(ev) == {"1": "head\n\nbody"}
    attach(ev, text="title")
    assert texts(ev) == {"1": "head"}


def test_a_dry_run_shows_the_sql_and_changes_nothing(app: App, ev: Evervec) -> None:
    planned = attach(ev, dry_run=True)
    assert any(app.table("changes") in statement for statement in planned.sql)
    assert app.triggers() == []
    assert ev.tables.by_kind() == {}


def test_detached_it_leaves_no_trace(app: App, ev: Evervec) -> None:
    attach(ev)
    app.execute("insert into articles (id, body) values (1, 'text')")
    texts(ev)
    assert ev.detach("articles") == 1
    app.execute("insert into articles (id, body) values (2, 'unseen')")
    assert texts(ev) == {}
    assert app.triggers() == []
    assert app.logged() == 0
    with pytest.raises(InvalidArgument, match="is not attached"):
        ev.detach("articles")


def test_what_is_not_there_is_named(ev: Evervec) -> None:
    with pytest.raises(InvalidArgument, match="no table 'nothing'"):
        ev.attach("nothing", kind="x", text="y")
    with pytest.raises(InvalidArgument, match="no column 'boody'; it has id, title"):
        attach(ev, text="boody")


def test_what_changed_since_is_told(app: App, ev: Evervec) -> None:
    planned = attach(ev)
    assert ev.tables.trouble(planned) is None
    app.drop_trigger(app.triggers()[0])
    assert "lacks the trigger" in str(ev.tables.trouble(planned))
    attach(ev)
    app.execute("alter table articles rename column author to writer")
    assert "no column author any more" in str(ev.tables.trouble(planned))
    app.execute("drop table articles")
    assert "is gone" in str(ev.tables.trouble(planned))


def test_a_backfill_goes_on_where_it_was(app: App, ev: Evervec) -> None:
    app.executemany("insert into articles (id, body) values (?, ?)",
                    [(n, f"text {n}") for n in range(2500)])  # fmt: skip
    attach(ev)
    assert ev.tables.backfill(-100) == 1000
    again = Evervec(ev.store, ev.index, ev.embedder, ev.tenant, ev.settings)
    assert (again.tables.backfill(-100), again.tables.backfill(-100)) == (1000, 500)
    assert again.tables.backfill(-100) == 0
    assert ev.queue.stats().pending == 2500


def test_a_search_can_give_the_rows_themselves(app: App, ev: Evervec) -> None:
    attach(ev)
    app.execute("insert into articles values (1, 'Tea', 'grows', 'a', 0.5, 'red', 7)")
    ev.process_all()
    (hit,) = ev.search("tea", rows=True)
    assert hit.row == {"id": 1, "title": "Tea", "body": "grows", "author": "a", "rank": 0.5,
                       "team": "red", "seen": 7}  # fmt: skip
    assert ev.search("tea")[0].row is None


def test_verify_compares_the_table_too(app: App, ev: Evervec) -> None:
    attach(ev)
    app.executemany("insert into articles (id, body) values (?, ?)",
                    [(n, f"text {n}") for n in range(10)])  # fmt: skip
    assert len(texts(ev)) == 10
    for name in app.triggers():
        app.drop_trigger(name)
    app.execute("insert into articles (id, body) values (20, 'unseen')")
    app.execute("update articles set body = 'changed' where id in (1, 2)")
    app.execute("delete from articles where id in (3, 4, 5)")
    assert ev.verify().clean, "what cannot be followed is told by status"
    ev.tables.source.attach(attach(ev, dry_run=True))  # type: ignore[union-attr]
    app.execute(f"update {app.table('attached')} set position = null")
    report = ev.verify()
    assert (report.missing, report.stale, report.orphaned) == (1, 2, 3)
    assert ev.verify(repair=True).repaired == 6
    assert texts(ev) == {row[0]: row[1] for row in app.execute(
        "select cast(id as text), body from articles")}  # fmt: skip
