"""Attached tables: whatever program writes them, the index follows."""

import json
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

import evervec
from evervec import Evervec, InvalidArgument, Kind
from evervec.stores.sql.retries import CallersConflict
from support.application import ARTICLES, App
from support.world import ScriptedEmbedder


@pytest.fixture(params=["sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    app = App(request.param, tmp_path)
    yield app
    app.close()


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


def test_rows_are_not_deleted_by_a_filter_nor_records_beside_them(app: App, ev: Evervec) -> None:
    app.execute("insert into articles (id, title, body, author) values (1, 'Tea', 'hills', 'a')")
    attach(ev)
    ev.add("a note", "x", id=1, metadata={"author": "a"})
    ev.add("a note", "y", id=2, metadata={"author": "b"})
    ev.process_all()
    for kind in (None, "article"):
        for dry_run in (True, False):
            with pytest.raises(InvalidArgument, match="are the rows of articles"):
                ev.delete_where({"author": "a"}, kind, dry_run=dry_run)
    assert ev.count("a note") == 2
    assert ev.delete_where({"author": "c"}, dry_run=True) == 0
    assert ev.delete_where({"author": "b"}) == 1, "none of them is a row"
    assert ev.delete_where({"author": "a"}, "a note", dry_run=True) == 1


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


def test_age_runs_from_a_column(app: App, ev: Evervec) -> None:
    """Its changes alone embed nothing, and `verify` compares it."""
    app.execute("alter table articles add column changed timestamp")
    app.execute(
        "insert into articles (id, title, body, changed) "
        "values (1, 'Tea', 'grows', '2020-01-02 03:04:05'), (2, 'Tea', 'is old', null)"
    )
    attach(ev, updated_at="changed")
    ev.register(Kind("article", rescore="recent"))
    ev.process_all()
    moment = datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert ev.get("article", "1").updated_at == moment  # type: ignore[union-attr]
    assert ev.search("tea grows", mode="semantic")[-1].id == "1", "it is the older one"
    count = len(embedded(ev))
    app.execute("update articles set changed = '2021-01-02 03:04:05' where id = 1")
    ev.process_all()
    assert ev.get("article", "1").updated_at.year == 2021  # type: ignore[union-attr]
    assert len(embedded(ev)) == count
    assert ev.verify().clean
    table = app.table("records")
    app.execute(f"update {table} set updated_at = 0 where id = '1'")
    assert ev.verify().stale == 1
    ev.verify(repair=True)
    ev.process_all()
    assert ev.get("article", "1").updated_at.year == 2021  # type: ignore[union-attr]


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


def test_a_boolean_column_is_filtered_by_booleans(app: App, ev: Evervec) -> None:
    """SQLite has no booleans, and keeps 0 and 1."""
    app.execute("create table flags (id int primary key, body text, ok boolean)")
    ev.attach("flags", kind="flag", text="body", metadata=["ok"])
    app.execute("insert into flags values (1, 'a', true), (2, 'b', false), (3, 'c', null)")
    texts(ev, "flag")
    for value, id in ((True, "1"), (False, "2"), (None, "3")):
        (record,) = ev.records("flag", filter={"ok": value})
        assert (record.id, record.metadata) == (id, {"ok": value})


@pytest.mark.parametrize("app", ["sqlite"], indirect=True)
def test_keys_without_a_declared_type_and_rows_without_key(app: App, ev: Evervec) -> None:
    app.execute("create table loose (k unique, body text)")
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
    assert ev.attachments.by_kind() == {}


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
    with pytest.raises(InvalidArgument, match="table 'nothing' does not exist"):
        ev.attach("nothing", kind="x", text="y")
    with pytest.raises(InvalidArgument, match="no column 'boody'; it has id, title"):
        attach(ev, text="boody")


def test_what_changed_since_is_told(app: App, ev: Evervec) -> None:
    planned = attach(ev)
    assert ev.attachments.trouble(planned) is None
    app.drop_trigger(app.triggers()[0])
    assert "lacks the trigger" in str(ev.attachments.trouble(planned))
    attach(ev)
    app.execute("alter table articles rename column author to writer")
    assert "no longer has the column author" in str(ev.attachments.trouble(planned))
    app.execute("drop table articles")
    assert "is gone" in str(ev.attachments.trouble(planned))


def test_a_backfill_goes_on_where_it_was(app: App, ev: Evervec) -> None:
    app.executemany("insert into articles (id, body) values (?, ?)",
                    [(n, f"text {n}") for n in range(2500)])  # fmt: skip
    attach(ev)
    assert ev.attachments.backfill(-100) == 1000
    again = Evervec(ev.store, ev.index, ev.embedder, ev.tenant, ev.settings)
    assert (again.attachments.backfill(-100), again.attachments.backfill(-100)) == (1000, 500)
    assert ev.queue.stats().pending == 2500
    while again.attachments.backfill(-100):  # and now the records, none of which lacks its row
        pass
    assert again.attachments.attached()[0].backfilled
    assert ev.queue.stats().pending == 2500


def test_a_search_can_give_the_rows_themselves(app: App, ev: Evervec) -> None:
    attach(ev)
    app.execute("insert into articles values (1, 'Tea', 'grows', 'a', 0.5, 'red', 7)")
    ev.process_all()
    (hit,) = ev.search("tea", rows=True)
    assert hit.row == {"id": 1, "title": "Tea", "body": "grows", "author": "a", "rank": 0.5,
                       "team": "red", "seen": 7}  # fmt: skip
    assert ev.search("tea")[0].row is None


def test_a_search_gives_no_row_that_changed_hands_or_is_gone(app: App, ev: Evervec) -> None:
    attach(ev, tenant="team")
    app.execute("insert into articles (id, body, team) values (1, 'tea of red', 'red'), "
                "(2, 'tea of red', 'red'), (3, 'tea of red', 'red'), (4, 'tea', '')")  # fmt: skip
    ev.process_all()
    red, blue = ev.of("red"), ev.of("blue")
    assert {hit.id for hit in red.search("tea", rows=True)} == {"1", "2", "3"}
    app.execute("update articles set team = 'blue', body = 'tea of blue' where id = 1")
    app.execute("delete from articles where id = 2")
    assert [(hit.id, hit.row["team"]) for hit in red.search("tea", rows=True) if hit.row] == [
        ("3", "red")
    ]
    assert len(red.search("tea", rows=True)) == 1
    assert blue.search("tea", rows=True) == []
    assert [hit.id for hit in ev.search("tea", rows=True)] == ["4"]
    ev.process_all()
    assert [hit.id for hit in blue.search("tea", rows=True)] == ["1"]


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
    ev.attachments.source.attach(attach(ev, dry_run=True))  # type: ignore[union-attr]
    app.execute(f"update {app.table('attached')} set position = null")
    report = ev.verify()
    assert (report.missing, report.stale, report.orphaned) == (1, 2, 3)
    assert ev.verify(repair=True).repaired == 6
    assert texts(ev) == {row[0]: row[1] for row in app.execute(
        "select cast(id as text), body from articles")}  # fmt: skip


def test_deletes_that_went_unnoticed_are_found_when_it_is_attached_anew(
    app: App, ev: Evervec
) -> None:
    attach(ev)
    app.executemany("insert into articles (id, body) values (?, ?)",
                    [(n, f"text {n}") for n in range(5)])  # fmt: skip
    assert len(texts(ev)) == 5
    for name in app.triggers():
        app.drop_trigger(name)
    app.execute("delete from articles where id < 3")
    ev.process_all()
    assert len(ev.records("article")) == 5
    attach(ev)
    assert set(texts(ev)) == {"3", "4"}


def test_a_kind_can_move_to_another_table(app: App, ev: Evervec) -> None:
    attach(ev)
    app.execute("insert into articles (id, body) values (1, 'old place'), (2, 'both')")
    app.execute("create table essays (id integer primary key, body text)")
    app.execute("insert into essays values (2, 'both'), (3, 'new place')")
    texts(ev)
    ev.attach("essays", kind="article", text="body")
    assert texts(ev) == {"2": "both", "3": "new place"}
    app.execute("insert into articles (id, body) values (4, 'unseen')")
    assert set(texts(ev)) == {"2", "3"}


def test_detached_but_kept_records_stay_as_they_are(app: App, ev: Evervec) -> None:
    attach(ev)
    app.execute("insert into articles (id, body) values (1, 'kept'), (2, 'kept too')")
    assert len(texts(ev)) == 2
    app.execute("update articles set body = 'changed' where id = 1")
    app.execute("insert into articles (id, body) values (3, 'never read')")
    ev.attachments.follow()  # jobs for rows that nobody may read any more
    assert ev.detach("articles", keep_records=True) == 0
    assert texts(ev) == {"1": "kept", "2": "kept too"}
    assert ev.queue.stats().failed == 0


def test_work_for_a_table_that_changed_waits_and_says_why(app: App, ev: Evervec) -> None:
    attach(ev)
    app.execute("insert into articles (id, body, author) values (1, 'text', 'a')")
    app.execute("alter table articles rename column author to writer")
    ev.add("note", "another kind goes on", id="n")
    ev.process_all()
    assert ev.get("note", "n").embedded  # type: ignore[union-attr]
    job = ev.queue.status("article", "1")
    assert job is not None
    assert "no longer has the column author (used as metadata): attach it with columns" in str(
        job.error
    )
    app.execute("insert into articles (id, body, writer) values (2, 'more', 'b')")
    attach(ev, metadata=["writer"])
    assert set(texts(ev)) == {"1", "2"}


def test_verify_names_a_table_without_triggers_and_attaches_it_again(app: App, ev: Evervec) -> None:
    attach(ev)
    app.execute("insert into articles (id, body) values (1, 'one'), (2, 'two'), (3, 'three')")
    assert len(texts(ev)) == 3
    for name in app.triggers():
        app.drop_trigger(name)
    app.execute("update articles set body = 'changed' where id = 1")
    app.execute("delete from articles where id = 2")
    app.execute("insert into articles (id, body) values (4, 'four')")
    ev.process_all()
    report = ev.verify()
    assert report.faults == {"missing": 1, "stale": 1, "orphaned": 1}
    (trouble,) = report.troubles
    assert "articles as article: articles lacks the trigger" in trouble
    of_another = ev.verify(kind="page")
    assert (of_another.faults, of_another.troubles) == ({}, ())
    mended = ev.verify(repair=True)
    assert (mended.clean, mended.repaired, len(mended.troubles)) == (False, 4, 2)
    app.execute("insert into articles (id, body) values (5, 'five')")
    assert texts(ev) == {"1": "changed", "3": "three", "4": "four", "5": "five"}
    assert ev.verify().complete


def test_only_chosen_faults_of_a_table_are_repaired(app: App, ev: Evervec) -> None:
    attach(ev)
    app.execute("insert into articles (id, body) values (1, 'one'), (2, 'two')")
    assert len(texts(ev)) == 2
    for name in app.triggers():
        app.drop_trigger(name)
    app.execute("update articles set body = 'changed' where id = 1")
    app.execute("delete from articles where id = 2")
    ev.attachments.source.attach(attach(ev, dry_run=True))  # type: ignore[union-attr]
    app.execute(f"update {app.table('attached')} set position = null")
    assert ev.verify(repair=True, faults=["orphaned"]).repaired == 1
    ev.process_all()
    assert ev.verify().faults == {"stale": 1}
    assert [(r.id, r.text) for r in ev.records("article")] == [("1", "one")]


def test_a_job_that_read_its_row_before_the_repair_makes_another_pass(
    app: App, ev: Evervec
) -> None:
    """Nobody logged the change behind its back, and it looks as if a job would settle it."""
    attach(ev)
    app.execute("insert into articles (id, body) values (1, 'one')")
    assert len(texts(ev)) == 1
    app.execute("update articles set body = 'two'")
    batch, _ = ev.pipeline.prepare(ev.pipeline.claim(1))
    for name in app.triggers():
        app.drop_trigger(name)
    app.execute("update articles set body = 'three'")
    ev.verify(repair=True)
    ev.pipeline.embed(batch)
    ev.pipeline.write(batch)
    assert texts(ev) == {"1": "three"}


def test_verify_is_not_clean_while_a_table_is_gone_and_keeps_its_records(
    app: App, ev: Evervec
) -> None:
    attach(ev)
    app.execute("insert into articles (id, body) values (1, 'one')")
    assert len(texts(ev)) == 1
    app.execute("alter table articles rename to papers")
    for repair in (False, True):
        report = ev.verify(repair=repair)
        assert (report.faults, report.clean) == ({}, False)
        assert "the table articles is now named papers" in report.troubles[0]
    assert ev.get("article", "1")


def test_triggers_that_went_with_a_renamed_table_are_missed_on_the_new_one(
    app: App, ev: Evervec
) -> None:
    attach(ev)
    app.execute("insert into articles (id, body) values (1, 'one')")
    assert len(texts(ev)) == 1
    app.execute("alter table articles rename to papers")
    app.execute(ARTICLES)
    app.execute("insert into articles (id, body) values (1, 'another')")
    assert "lacks the trigger" in ev.verify(repair=True).troubles[0]
    app.execute("insert into articles (id, body) values (2, 'two')")
    assert texts(ev) == {"1": "another", "2": "two"}


def test_no_record_is_repaired_by_a_table_that_cannot_be_attached_again(
    app: App, ev: Evervec
) -> None:
    attach(ev)
    app.execute("insert into articles (id, body) values (1, 'one')")
    assert len(texts(ev)) == 1
    app.execute("drop table articles")
    app.execute(ARTICLES.replace(" primary key", ""))
    report = ev.verify(repair=True)
    assert (report.faults, report.repaired) == ({"orphaned": 1}, 0)
    assert "cannot be attached again: id is not a key of articles" in report.troubles[1]
    ev.process_all()
    assert ev.get("article", "1")


def test_rows_that_are_still_to_be_enqueued_are_told(app: App, ev: Evervec) -> None:
    app.execute("insert into articles (id, body) values (1, 'one')")
    attach(ev)
    report = ev.verify()
    assert (report.clean, report.complete) == (True, False)
    assert "existing rows are still being enqueued" in report.unchecked[0]
    assert len(texts(ev)) == 1
    assert ev.verify().complete


def test_only_a_key_can_be_the_id(app: App, ev: Evervec) -> None:
    app.execute("create table twins (a int, b int, body text, unique (a, b))")
    with pytest.raises(InvalidArgument, match="a is not a key of twins"):
        ev.attach("twins", kind="t", id="a", text="body")
    app.execute("create view seen as select * from articles")
    with pytest.raises(InvalidArgument, match="table 'seen' does not exist"):
        ev.attach("seen", kind="t", text="body")
    ev.attach("twins", kind="t", id=["b", "a"], text="body")
    app.execute("insert into twins values (1, 2, 'one'), (null, 2, 'none'), (2, null, 'none')")
    assert texts(ev, "t") == {'["2","1"]': "one"}
    app.execute("update twins set body = 'still none' where b is null")
    app.execute("update twins set a = 5 where a is null")
    assert texts(ev, "t") == {'["2","1"]': "one", '["2","5"]': "none"}
    app.execute("update twins set a = null where a = 1")
    assert texts(ev, "t") == {'["2","5"]': "none"}


def test_rows_that_swap_their_keys_in_one_statement(app: App, ev: Evervec) -> None:
    kind = "primary key" if app.engine == "sqlite" else "unique deferrable"
    app.execute(f"create table places (id int {kind}, body text)")
    ev.attach("places", kind="place", text="body")
    app.execute("insert into places values (1, 'one'), (2, 'two'), (3, 'three')")
    assert len(texts(ev, "place")) == 3
    if app.engine == "sqlite":  # checks each row by itself, so it takes three steps
        app.execute("begin")
        for old, new in ((1, -1), (2, 1), (-1, 2)):
            app.execute("update places set id = ? where id = ?", (new, old))
        app.execute("commit")
    else:
        app.execute("update places set id = 3 - id where id < 3")
    assert texts(ev, "place") == {"1": "two", "2": "one", "3": "three"}


def test_a_change_that_looks_the_same_to_the_column_is_noticed(app: App, ev: Evervec) -> None:
    """What a type or collation calls equal may be another text to a reader."""
    type, old, new = (
        ("text collate nocase", "polish", "Polish")
        if app.engine == "sqlite"
        else ("numeric", "1.0", "1.00")
    )
    app.execute(f"create table words (id integer primary key, body {type})")
    ev.attach("words", kind="word", text="body")
    app.execute("insert into words values (1, ?)", (old,))
    assert texts(ev, "word") == {"1": old}
    app.execute("update words set body = ?", (new,))
    assert texts(ev, "word") == {"1": new}


def test_generated_columns_are_followed(app: App, ev: Evervec) -> None:
    app.execute("create table sums (id integer primary key, a text, b text, "
                "whole text generated always as (a || ' ' || b) stored)")  # fmt: skip
    ev.attach("sums", kind="sum", text="whole")
    app.execute("insert into sums (id, a, b) values (1, 'red', 'tea')")
    assert texts(ev, "sum") == {"1": "red tea"}
    app.execute("update sums set a = 'green'")
    assert texts(ev, "sum") == {"1": "green tea"}


def test_rows_go_with_the_rows_that_they_belong_to(app: App, ev: Evervec) -> None:
    if app.engine == "sqlite":
        app.execute("pragma foreign_keys = on")
    app.execute("create table comments (id integer primary key, body text, "
                "article int references articles (id) on delete cascade on update cascade)")  # fmt: skip
    ev.attach("comments", kind="comment", text="body", metadata=["article"])
    app.execute("insert into articles (id) values (1), (2)")
    app.execute("insert into comments values (10, 'first', 1), (11, 'second', 2)")
    assert set(texts(ev, "comment")) == {"10", "11"}
    app.execute("update articles set id = 3 where id = 2")
    app.execute("delete from articles where id = 1")
    assert set(texts(ev, "comment")) == {"11"}
    assert ev.get("comment", 11).metadata == {"article": 3}  # type: ignore[union-attr]


def test_a_write_whose_change_cannot_be_logged_is_refused(app: App, ev: Evervec) -> None:
    """Better no write than one that nobody will ever notice."""
    attach(ev)
    changes = app.table("changes")
    app.execute(f"drop table {changes}")
    with pytest.raises((sqlite3.OperationalError, psycopg.errors.UndefinedTable)):
        app.execute("insert into articles (id, body) values (1, 'text')")
    assert app.execute("select count(*) from articles").fetchone()[0] == 0
    number = ", number integer primary key" if app.engine == "sqlite" else ""
    app.execute(f"create table {changes} (kind text, tenant text, id text{number})")
    app.execute("insert into articles (id, body) values (1, 'text')")
    assert texts(ev) == {"1": "text"}


def test_a_row_that_cannot_be_a_record_fails_alone(app: App, ev: Evervec) -> None:
    attach(ev, weight="author")
    app.execute("insert into articles (id, body, author) values (1, 'text', 'heavy'), "
                "(2, 'more', '0.5')")  # fmt: skip
    assert set(texts(ev)) == {"2"}
    (job,) = ev.queue.failed()
    assert job.record_id == "1"
    assert "the row of articles is not a valid record" in str(job.error)


def test_a_record_without_a_row_is_counted_once_while_a_version_is_built(
    app: App, ev: Evervec
) -> None:
    attach(ev)
    app.execute("insert into articles (id, body) values (1, 'one')")
    assert len(texts(ev)) == 1
    ev.migrate(ScriptedEmbedder(dimensions=32))
    ev.process_all()
    app.execute("drop table articles")
    app.execute(ARTICLES)
    assert ev.verify().orphaned == 1


def test_a_broken_attachment_does_not_hold_up_another(app: App, ev: Evervec) -> None:
    app.execute("create table broken (id integer primary key, body text)")
    ev.attach("broken", kind="aa", text="body")
    app.execute("alter table broken rename column body to gone")
    app.execute("insert into articles (id, body) values (1, 'text')")
    attach(ev)
    ev.process_all()
    assert [record.text for record in ev.records("article")] == ["text"]


@pytest.mark.parametrize("app", ["sqlite"], indirect=True)
def test_replacing_through_another_unique_index_is_found_by_verify(app: App, ev: Evervec) -> None:
    """SQLite tells no trigger of a row that `REPLACE` removes, unless the application switched
    `recursive_triggers` on."""
    app.execute("create table pages (id integer primary key, slug text unique, body text)")
    ev.attach("pages", kind="page", text="body")
    insert = "insert or replace into pages values (?, 'same', ?)"
    app.execute(insert, (1, "first"))
    texts(ev, "page")
    app.execute(insert, (2, "second"))  # row 1 is gone, silently
    ev.process_all()
    assert ev.verify().orphaned == 1
    assert ev.verify(repair=True).repaired == 1
    assert texts(ev, "page") == {"2": "second"}
    app.execute("pragma recursive_triggers = on")
    app.execute(insert, (3, "third"))
    assert texts(ev, "page") == {"3": "third"}


@pytest.mark.parametrize("app", ["sqlite"], indirect=True)
def test_keys_of_any_storage_class_and_texts_that_are_not_utf8(app: App, ev: Evervec) -> None:
    app.execute("create table odd (k blob primary key, body text)")
    ev.attach("odd", kind="odd", id="k", text="body")
    app.execute("insert into odd values (x'00ff', 'bytes'), ('word', 'text'), (7, 'number'), "
                "(1.5e100, 'real'), ('bad', cast(x'61ff62' as text))")  # fmt: skip
    expected = {"00ff": "bytes", "word": "text", "7": "number", "1.5e+100": "real", "bad": "a�b"}
    assert texts(ev, "odd") == expected
    ev.attach("odd", kind="odd", id="k", text="body")  # and by backfill
    ev.attachments.backfill(-100)
    assert texts(ev, "odd") == expected
    app.execute("delete from odd where k = x'00ff'")
    app.execute("update odd set k = 8 where k = 7")
    assert set(texts(ev, "odd")) == {"word", "8", "1.5e+100", "bad"}


@pytest.mark.parametrize("app", ["sqlite"], indirect=True)
def test_sqlite_refuses_to_drop_a_column_that_is_watched(app: App, ev: Evervec) -> None:
    attach(ev)
    with pytest.raises(sqlite3.OperationalError, match="author"):
        app.execute("alter table articles drop column author")


def test_a_kind_with_records_added_by_hand_is_not_attached_by_mistake(
    app: App, ev: Evervec
) -> None:
    app.execute("insert into articles (id, body) values (1, 'a row')")
    ev.of("other").add("article", "by hand", id="hand")
    for given in ({}, {"dry_run": True}):
        with pytest.raises(InvalidArgument, match="replace=True"):
            attach(ev, **given)
    assert app.triggers() == []
    ev.process_all()
    assert ev.of("other").get("article", "hand")
    attach(ev, replace=True)
    assert texts(ev) == {"1": "a row"}
    assert ev.of("other").get("article", "hand") is None


def test_records_that_were_deleted_by_hand_are_no_hindrance(app: App, ev: Evervec) -> None:
    ev.add("article", "by hand", id="hand")
    ev.delete("article", "hand")
    attach(ev)
    assert texts(ev) == {}


def test_a_kind_that_was_kept_is_attached_again_unless_records_were_added_since(
    app: App, ev: Evervec
) -> None:
    app.execute("insert into articles (id, body) values (1, 'a row'), (2, 'goes')")
    attach(ev)
    texts(ev)
    ev.detach("articles", keep_records=True)
    app.execute("delete from articles where id = 2")
    attach(ev)
    assert texts(ev) == {"1": "a row"}
    ev.detach("articles", keep_records=True)
    ev.add("article", "a later text", id="1")
    ev.add("article", "by hand", id="hand")
    with pytest.raises(InvalidArgument, match="replace=True"):
        attach(ev)
    ev.delete("article", "hand")
    attach(ev, text="body")
    assert texts(ev) == {"1": "a row"}
    ev.detach("articles")
    ev.add("article", "by hand", id="1")
    with pytest.raises(InvalidArgument, match="replace=True"):
        attach(ev)


def test_records_of_an_attached_kind_are_written_through_the_table_alone(
    app: App, ev: Evervec
) -> None:
    app.execute("insert into articles (id, body) values (1, 'a row')")
    with evervec.open(app.url, embedder=ScriptedEmbedder()) as other:
        other.add("article", "by hand", id="hand")  # knows that nothing is attached
        attach(ev, replace=True)
        for writer in (ev, ev.of("red")):
            with pytest.raises(InvalidArgument, match="the rows of articles"):
                writer.add("article", "by hand", id="2")
            with pytest.raises(InvalidArgument, match="the rows of articles"):
                list(writer.add_many("article", [{"id": "2", "text": "by hand"}]))
            with pytest.raises(InvalidArgument, match="the rows of articles"):
                writer.delete("article", "1")
        assert texts(ev) == {"1": "a row"}
        other.attachments._known_until = 0.0  # a second later
        with pytest.raises(InvalidArgument, match="the rows of articles"):
            other.add("article", "by hand", id="2")
    ev.detach("articles")
    ev.add("article", "by hand", id="2")
    assert texts(ev) == {"2": "by hand"}


def test_changes_whose_fold_met_a_deadlock_are_folded_again(
    ev: Evervec, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach(ev)
    assert texts(ev) == {}
    app.execute("insert into articles (id, body) values (1, 'one')")
    enqueue = ev.store.changes.enqueue
    met: list[bool] = []

    def in_the_way_once(*given: Any, **options: Any) -> Any:
        if not met:
            met.append(True)
            raise CallersConflict("deadlock detected")
        return enqueue(*given, **options)

    monkeypatch.setattr(ev.store.changes, "enqueue", in_the_way_once)
    assert ev.attachments.follow() == 1
    assert met
    assert texts(ev) == {"1": "one"}
