"""What of PostgreSQL's many ways to write a table is noticed, and what holds where it is not."""

from typing import Any

import psycopg
import pytest

from evervec import Evervec

App = psycopg.Connection[Any]


def texts(ev: Evervec, kind: str = "item") -> dict[str, str]:
    ev.process_all()
    report = ev.verify()
    assert report.clean, report
    return {record.id: record.text for record in ev.records(kind, limit=1000)}


def table(
    app: App, ev: Evervec, columns: str = "id int primary key, body text", **given: Any
) -> None:
    app.execute(f"create table items ({columns})")
    ev.attach("items", kind="item", **{"text": "body", **given})


def test_copy_bulk_statements_merge_and_upserts(app: App, ev: Evervec) -> None:
    table(app, ev)
    with app.cursor().copy("copy items from stdin") as copy:
        for n in range(100):
            copy.write_row((n, f"copied {n}"))
    assert len(texts(ev)) == 100
    app.execute("insert into items select n, 'new' from generate_series(90, 110) as n "
                "on conflict (id) do update set body = 'upserted'")  # fmt: skip
    app.execute("insert into items values (1, 'ignored') on conflict do nothing")
    app.execute("with gone as (delete from items where id < 10 returning id) "
                "insert into items select id + 1000, 'moved' from gone where id < 5")  # fmt: skip
    app.execute("merge into items as i using (values (50), (51), (500)) as v (id) on i.id = v.id "
                "when matched and v.id = 50 then delete "
                "when matched then update set body = 'merged' "
                "when not matched then insert values (v.id, 'merged in')")  # fmt: skip
    app.execute("update items set id = id + 10000, body = body || '!' where id between 60 and 69")
    assert texts(ev) == dict(app.execute("select id::text, body from items").fetchall())


def test_an_update_of_nothing_that_is_watched_logs_nothing(app: App, ev: Evervec) -> None:
    table(app, ev, "id int primary key, body text, seen int")
    app.execute("insert into items values (1, 'text', 0), (2, 'text', 0)")
    texts(ev)
    app.execute("update items set seen = seen + 1, body = body")
    app.execute("update items set body = 'other' where id = 3")
    assert app.execute("select count(*) from evervec.changes").fetchone() == (0,)


def test_truncate_alone_and_with_what_refers_to_it(app: App, ev: Evervec) -> None:
    app.execute("create table owners (id int primary key)")
    table(app, ev, "id int primary key, body text, owner int references owners")
    app.execute("insert into owners values (1)")
    app.execute("insert into items select n, 'text', 1 from generate_series(1, 50) as n")
    assert len(texts(ev)) == 50
    with app.transaction():
        app.execute("truncate items")
        app.execute("insert into items values (7, 'after', 1)")
    assert texts(ev) == {"7": "after"}
    app.execute("truncate owners cascade")
    assert texts(ev) == {}


def test_what_is_truncated_while_a_worker_reads_it_does_not_come_back(
    app: App, ev: Evervec
) -> None:
    table(app, ev)
    ev.process_all()  # the backfill too, which would look for rows that are gone
    app.execute("insert into items values (1, 'text')")
    jobs = ev.pipeline.claim(10)
    batch, _ = ev.pipeline.prepare(jobs)  # has read the row, and not written it yet
    app.execute("truncate items")
    ev.attachments.follow()
    ev.pipeline.embed(batch)
    ev.pipeline.write(batch)
    assert texts(ev) == {}


def test_savepoints_and_a_trigger_of_the_applications_that_fails(app: App, ev: Evervec) -> None:
    table(app, ev)
    app.execute("create function refuse() returns trigger language plpgsql as "
                "$$begin if new.body = 'bad' then raise 'no'; end if; return new; end$$")  # fmt: skip
    app.execute("create trigger zz_refuse after insert or update on items "
                "for each row execute function refuse()")  # fmt: skip
    with app.transaction():
        app.execute("insert into items values (1, 'kept')")
        with pytest.raises(psycopg.errors.RaiseException), app.transaction():
            app.execute("insert into items values (2, 'bad')")
        with pytest.raises(psycopg.errors.RaiseException), app.transaction():
            app.execute("update items set body = 'bad'")
    assert app.execute("select id from evervec.changes").fetchall() == [("1",)]
    assert texts(ev) == {"1": "kept"}


@pytest.mark.parametrize("identity", ["default", "full", "nothing"])
def test_replica_identity_does_not_matter(app: App, ev: Evervec, identity: str) -> None:
    """Triggers see whole rows; only logical replication needs an identity."""
    table(app, ev)
    app.execute(f"alter table items replica identity {identity}")
    app.execute("insert into items values (1, 'text'), (2, 'text')")
    app.execute("update items set id = 3, body = 'moved' where id = 1")
    app.execute("delete from items where id = 2")
    assert texts(ev) == {"3": "moved"}


def test_a_publication_of_all_tables_does_not_stop_the_log(app: App, ev: Evervec) -> None:
    table(app, ev)
    app.execute("create publication everything for all tables")
    app.execute("insert into items values (1, 'text')")
    assert texts(ev) == {"1": "text"}
    app.execute("delete from items")
    assert texts(ev) == {}


def test_what_a_replica_session_writes_goes_unnoticed_until_verify(app: App, ev: Evervec) -> None:
    """`session_replication_role = replica` switches triggers off, and so is what logical
    replication and `pg_restore --disable-triggers` write; nothing but `verify` can see that."""
    table(app, ev)
    app.execute("insert into items values (1, 'text'), (2, 'text')")
    texts(ev)
    app.execute("set session_replication_role = replica")
    app.execute("insert into items values (3, 'new')")
    app.execute("update items set body = 'changed' where id = 1")
    app.execute("delete from items where id = 2")
    app.execute("reset session_replication_role")
    ev.process_all()
    report = ev.verify()
    assert (report.missing, report.stale, report.orphaned) == (1, 1, 1)
    ev.verify(repair=True)
    assert texts(ev) == {"1": "changed", "3": "new"}


def test_a_partitioned_table_is_followed_through_parent_and_partitions(
    app: App, ev: Evervec
) -> None:
    app.execute("create table items (id int, part int, body text, primary key (id, part)) "
                "partition by list (part)")  # fmt: skip
    app.execute("create table items_1 partition of items for values in (1)")
    app.execute("insert into items values (1, 1, 'before')")
    ev.attach("items", kind="item", id=["id", "part"], text="body")
    app.execute("create table items_2 partition of items for values in (2)")
    app.execute("insert into items values (2, 1, 'through the parent'), (3, 2, 'newer partition')")
    app.execute("insert into items_1 values (4, 1, 'directly')")
    with app.cursor().copy("copy items from stdin") as copy:
        copy.write_row((5, 2, "copied"))
    assert sorted(texts(ev).values()) == [
        "before", "copied", "directly", "newer partition", "through the parent"
    ]  # fmt: skip
    app.execute("update items set part = 2 where id = 1")  # moves to the other partition
    app.execute("update items_2 set body = 'changed' where id = 3")
    app.execute("delete from items_1 where id = 2")
    assert texts(ev) == {
        '["1","2"]': "before", '["3","2"]': "changed", '["4","1"]': "directly",
        '["5","2"]': "copied",
    }  # fmt: skip
    app.execute("truncate items")
    assert texts(ev) == {}


def test_partitions_that_come_and_go_whole_are_found_by_verify(app: App, ev: Evervec) -> None:
    """No trigger sees a partition attached, detached, dropped or truncated by itself."""
    app.execute("create table items (id int primary key, body text) partition by range (id)")
    app.execute("create table items_1 partition of items for values from (0) to (10)")
    ev.attach("items", kind="item", text="body")
    app.execute("insert into items values (1, 'goes')")
    texts(ev)
    app.execute("create table items_2 (id int primary key, body text)")
    app.execute("insert into items_2 values (11, 'comes')")
    app.execute("alter table items attach partition items_2 for values from (10) to (20)")
    app.execute("alter table items detach partition items_1")
    ev.process_all()
    report = ev.verify()
    assert (report.missing, report.orphaned) == (1, 1)
    ev.verify(repair=True)
    assert texts(ev) == {"11": "comes"}
    app.execute("update items set body = 'followed from now on'")
    assert texts(ev) == {"11": "followed from now on"}


def test_a_partition_by_itself_is_followed_whoever_is_written(app: App, ev: Evervec) -> None:
    app.execute("create table items (id int primary key, body text) partition by range (id)")
    app.execute("create table items_1 partition of items for values from (0) to (10)")
    app.execute("create table items_2 partition of items for values from (10) to (20)")
    ev.attach("items_1", kind="item", text="body")
    app.execute("insert into items values (1, 'through the parent'), (11, 'not ours')")
    app.execute("insert into items_1 values (2, 'directly')")
    assert texts(ev) == {"1": "through the parent", "2": "directly"}
    app.execute("update items set id = 12 where id = 1")
    assert set(texts(ev)) == {"2"}


def test_a_table_that_became_a_partition_is_told(app: App, ev: Evervec) -> None:
    table(app, ev)
    app.execute("create table whole (id int primary key, body text) partition by range (id)")
    app.execute("alter table whole attach partition items for values from (0) to (10)")
    trouble = str(ev.attachments.trouble(ev.attachments.by_kind()["item"]))
    assert "lacks the trigger" in trouble
    ev.attach("items", kind="item", text="body")
    app.execute("insert into whole values (1, 'text')")
    assert texts(ev) == {"1": "text"}


def test_a_disabled_trigger_is_told_as_such(app: App, ev: Evervec) -> None:
    table(app, ev)
    app.execute("alter table items disable trigger user")
    assert "disabled" in str(ev.attachments.trouble(ev.attachments.by_kind()["item"]))
    app.execute("insert into items values (1, 'unseen')")
    ev.attach("items", kind="item", text="body")  # makes new ones
    assert ev.attachments.trouble(ev.attachments.by_kind()["item"]) is None
    assert texts(ev) == {"1": "unseen"}


def test_a_column_that_is_dropped_does_not_stop_the_application(app: App, ev: Evervec) -> None:
    """Its writes go through; what they changed is found once the table is attached anew."""
    table(app, ev, "id int primary key, body text, extra text", text=["body", "extra"])
    app.execute("insert into items values (1, 'text', 'more'), (2, 'text', 'more')")
    texts(ev)
    app.execute("alter table items drop column extra")
    app.execute("insert into items values (3, 'new')")
    app.execute("update items set body = 'changed' where id = 1")
    app.execute("delete from items where id = 2")
    assert "no longer has the column extra" in str(
        ev.attachments.trouble(ev.attachments.by_kind()["item"])
    )
    ev.process_all()
    assert {r.id for r in ev.records("item")} == {"1", "2"}, "nothing is thrown away meanwhile"
    ev.attach("items", kind="item", text="body")
    assert texts(ev) == {"1": "changed", "3": "new"}


def test_a_column_of_another_type_is_followed_but_a_key_is_told(app: App, ev: Evervec) -> None:
    table(app, ev)
    app.execute("insert into items values (1, '12'), (2, '13')")
    texts(ev)
    app.execute("alter table items alter body type numeric using body::numeric")
    app.execute("update items set body = 14 where id = 1")
    assert texts(ev) == {"1": "14", "2": "13"}
    app.execute("alter table items alter id type text using 'n' || id")
    app.execute("update items set body = 15 where id = 'n1'")
    told = str(ev.attachments.trouble(ev.attachments.by_kind()["item"]))
    assert "the type of the key of items changed from integer to text: attach it again" in told
    ev.attach("items", kind="item", text="body")
    assert texts(ev) == {"n1": "15", "n2": "13"}


def test_a_dropped_table_keeps_its_records_until_it_is_detached(app: App, ev: Evervec) -> None:
    table(app, ev)
    app.execute("insert into items values (1, 'text')")
    texts(ev)
    app.execute("update items set body = 'changed'")
    app.execute("drop table items")
    ev.process_all()
    assert ev.get("item", 1).text == "text"  # type: ignore[union-attr]
    assert "is gone" in str(ev.attachments.trouble(ev.attachments.by_kind()["item"]))
    assert ev.detach("items") == 1
    assert texts(ev) == {}


def test_a_virtual_column_is_read_though_no_trigger_sees_it(app: App, ev: Evervec) -> None:
    version = app.info.server_version
    if version < 180000:
        pytest.skip("virtual columns came with PostgreSQL 18")
    table(app, ev, "id int primary key, a text, body text generated always as (a || '!') virtual")
    app.execute("insert into items values (1, 'text')")
    assert texts(ev) == {"1": "text!"}
    app.execute("update items set a = 'changed'")
    assert texts(ev) == {"1": "changed!"}
