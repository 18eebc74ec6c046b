"""Hash partitions: of a new store, and of one that is split while others work on it."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import evervec
from evervec import Evervec
from evervec.embedders.hashing import HashingEmbedder
from evervec.errors import InvalidArgument, StoreError
from evervec.runtime.threads import submit
from evervec.settings import Settings
from evervec.stores.postgres import partitions, schema, word_counts
from evervec.stores.postgres.joined import JoinedStore
from evervec.stores.postgres.word_counts import WordCounts
from support import postgres
from support.command import runner
from support.next_schema import NextSchema, next_schema
from support.processes import until

TABLES = ["records", "jobs", "ledger", "attempts"]
PARTS = """
select c.relname::text, count(i.inhrelid) from pg_class as c
left join pg_inherits as i on i.inhparent = c.oid
where c.relnamespace = 'evervec'::regnamespace and c.relkind in ('r', 'p')
    and c.relname ~ '^(records|jobs|ledger|attempts|points_[0-9]+)$'
group by c.relname
"""
LEFT = """
select c.relname::text from pg_class as c
where c.relnamespace = 'evervec'::regnamespace and c.relname ~ '_next|(records|jobs|ledger|attempts|points_[0-9]+)_old'
union all select proname::text from pg_proc where proname ~ '^mirror_'
union all select tgname::text from pg_trigger where tgname = 'mirror'
union all select key from evervec.meta where key ~ '^copied '
"""


@pytest.fixture
def url() -> Iterator[str]:
    """A database with nothing in it."""
    url = postgres.DATABASES.create()
    yield url
    postgres.execute(
        postgres.server_url(), f"drop database {url.split('/')[3].split('?')[0]} with (force)"
    )


def opened(url: str, **settings: Any) -> Evervec:
    given = {"postgres_partitions": 1, **settings}  # whatever the environment says
    return evervec.open(url, embedder=HashingEmbedder(), listen=False, **given)


def parts_of(url: str) -> set[int]:
    return {count for _, count in postgres.execute(url, PARTS)}


def rows_of(url: str) -> dict[str, set[str]]:
    return {
        table: {
            row for (row,) in postgres.execute(url, f"select t::text from evervec.{table} as t")
        }
        for table in TABLES
    }


def fill(ev: Evervec, count: int = 40, tenants: tuple[str, ...] = ("a", "b")) -> None:
    for tenant in tenants:
        rows = (
            {"id": str(n), "text": f"{tenant} sparrow {n}", "metadata": {"n": n % 4}}
            for n in range(count)
        )
        list(ev.of(tenant).add_many("note", rows))
    ev.process_all()


def check(ev: Evervec, url: str) -> None:
    assert ev.verify(all_tenants=True).complete
    postgres.assert_none_is_astray(url)
    postgres.assert_counts_are_exact(url)


def quiet(*_: object) -> None:
    pass


def test_a_new_store_is_split_and_works_as_any_other(url: str) -> None:
    with opened(url, postgres_partitions=4) as ev:
        fill(ev)
        assert parts_of(url) == {4}
        a = ev.of("a")
        hits = a.search("sparrow", filter={"n": 3}, k=50)
        assert {hit.id for hit in hits} == {str(n) for n in range(3, 40, 4)}
        a.delete("note", "3")
        a.add("note", "an edited heron", id="4")
        ev.process_all()
        assert [hit.id for hit in a.search("heron", mode="text")] == ["4"]
        assert len(a.queue.history("note", "4")) == 2
        assert len({attempt.seq for attempt in a.queue.history("note", "4")}) == 2
        assert len(ev.of("b").search("sparrow", k=50, mode="semantic")) == 40
        check(ev, url)
        assert ev.store.partition(8, quiet) == []  # it stays as it is
        assert ev.store.check() is None  # 64 locks are enough for 4


def test_a_store_is_made_with_partitions_in_a_transaction_of_the_caller(url: str) -> None:
    with psycopg.connect(url) as conn:
        (path,) = conn.execute("show search_path").fetchone() or ("",)
        store = JoinedStore(conn, Settings(postgres_partitions=4))
        assert conn.execute("show search_path").fetchone() == (path,)
        store.close()
        conn.rollback()
        assert postgres.execute(url, "select to_regclass('evervec.records')") == [(None,)]
        JoinedStore(conn, Settings(postgres_partitions=4)).close()
        conn.commit()
    with opened(url) as ev:
        fill(ev)
        assert parts_of(url) == {4}
        check(ev, url)


def test_too_few_locks_for_many_partitions_are_told(url: str) -> None:
    with opened(url, postgres_partitions=8) as ev:
        assert "max_locks_per_transaction" in (ev.store.check() or "")
        store: Any = ev.store
        with (
            pytest.raises(StoreError, match="no locks left"),
            store.db.explained(),
        ):
            raise psycopg.errors.OutOfMemory("out of shared memory")


def test_old_rows_leave_every_partition(url: str) -> None:
    with opened(url, postgres_partitions=4) as ev:
        fill(ev)
        fill(ev)  # nothing changes
        list(ev.of("a").add_many("note", ({"id": str(n), "text": f"new {n}"} for n in range(40))))
        ev.process_all()
        assert ev.store.jobs.purge_ended(time.time() + 60) == (80, 120)
        assert ev.store.jobs.purge_ended(time.time() + 60) == (0, 0)
        check(ev, url)
        fill(ev, 60)
        assert ev.store.jobs.purge(evervec.Status.DONE, time.time() + 60, limit=30) == 30
        assert ev.store.jobs.purge(evervec.Status.DONE, time.time() + 60) == 50
        postgres.assert_counts_are_exact(url)


def test_a_store_is_split_while_others_work_on_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "_BLOCKS", 1)
    with opened(url, hnsw_rows=30, housekeeping_seconds=0.05) as ev, opened(url) as other:
        fill(ev, 150)
        stop, edits = threading.Event(), [0]

        def edit() -> None:
            mine = other.of("a")
            while not stop.is_set():
                number = edits[0] = edits[0] + 1
                id = str(number % 200)
                if number % 5:
                    mine.add("note", f"edit {number} sparrow", id=id)
                else:
                    mine.delete("note", id)

        with ev.worker():
            editing = submit("edits", edit)

            def keep_pace(table: str, done: int, size: int) -> None:
                seen = edits[0]
                until(lambda: edits[0] > seen or editing.done(), "edits go on beside the copying")

            moved = other.store.partition(4, keep_pace)
            stop.set()
            editing.result(30)
        ev.process_all()
        assert moved[:4] == TABLES
        assert parts_of(url) == {4}
        assert postgres.execute(url, LEFT) == []
        check(ev, url)
        hits = other.of("b").search("sparrow", k=200, mode="semantic")
        assert len(hits) == 150
        last = edits[0] - (edits[0] % 5 == 0)
        hits = ev.of("a").search(f"edit {last} sparrow", mode="text", k=1)
        assert hits[0].text == f"edit {last} sparrow"


@pytest.mark.parametrize("table", TABLES)
def test_a_move_that_was_killed_leaves_a_store_that_works_and_is_continued(
    url: str, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    monkeypatch.setattr(partitions, "_BLOCKS", 1)
    began: dict[str, int] = {}

    def die(which: str, done: int, size: int) -> None:
        if which == table:
            raise KeyboardInterrupt

    with opened(url) as ev:
        fill(ev, 30)
        list(ev.of("a").add_many("note", ({"id": str(n), "text": f"new {n}"} for n in range(30))))
        ev.process_all()
        if table == "attempts":
            assert postgres.execute(url, "select count(*) from evervec.attempts") != [(0,)]
        with pytest.raises(KeyboardInterrupt):
            ev.store.partition(4, die)
        ev.of("b").delete("note", "1")
        fill(ev, 35, ("a", "c"))
        while any(ev.store.jobs.purge_ended(time.time() + 60)):
            pass
        assert ev.store.jobs.purge_history(time.time() + 60)
        fill(ev, 38, ("a", "c"))
        check(ev, url)
        rows = rows_of(url)
        if table == "jobs":
            assert ev.store.partition(0, quiet) == ["jobs"]
            assert postgres.execute(url, LEFT) == []
        ev.store.partition(4, lambda which, done, size: began.setdefault(which, done))
        if table == "records":
            assert began[table] > 1  # it continues
        assert parts_of(url) == {4}
        assert rows_of(url) == rows
        assert postgres.execute(url, LEFT) == []
        check(ev, url)
        fill(ev, 50, ("c",))
        check(ev, url)


class Altered(NextSchema):
    """The next schema, which also has something more of each record."""

    def statements(self, number: int) -> Iterator[str]:
        yield from super().statements(number)
        if number == self.latest:
            yield "alter table evervec.records add column made_up text default 'old'"
            yield "create index records_made_up on evervec.records (made_up)"


@pytest.mark.parametrize("killed", [True, False], ids=["after it was killed", "under way"])
def test_an_upgrade_reaches_what_a_move_copies(
    url: str, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    began: list[str] = []

    def upgrade(which: str, done: int, size: int) -> None:
        began.append(which)
        if len(began) == 1:
            if killed:
                raise KeyboardInterrupt
            open_upgraded()

    def open_upgraded() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(schema, "SCHEMA", Altered(**vars(next_schema("postgres"))))
            opened(url).close()
        assert postgres.execute(url, LEFT) == []
        postgres.execute(url, "update evervec.records set made_up = 'new' where id = '3'")

    with opened(url) as ev:
        fill(ev, 10)
        if killed:
            with pytest.raises(KeyboardInterrupt):
                ev.store.partition(4, upgrade)
            open_upgraded()
            ev.store.partition(4, quiet)
        else:
            ev.store.partition(4, upgrade)
        assert began[0] == "records"
        fill(ev, 12)
        check(ev, url)
    assert parts_of(url) == {4}
    assert postgres.execute(url, LEFT) == []
    query = "select id from evervec.records where made_up = 'new' order by tenant"
    assert postgres.execute(url, query) == [("3",), ("3",)]
    names = "select indexname::text from pg_indexes where indexname = 'records_made_up'"
    assert postgres.execute(url, names) == [("records_made_up",)]


def test_a_move_waits_for_a_locked_row_and_nobody_waits_for_the_move(url: str) -> None:
    with opened(url) as ev, psycopg.connect(url) as conn:
        fill(ev, 10)
        conn.execute("select 1 from evervec.records where tenant = 'a' and id = '3' for update")
        moving = submit("moving", lambda: ev.store.partition(4, quiet))
        until(lambda: postgres.execute(url, "select 1 from pg_trigger where tgname = 'mirror'"))
        ev.of("a").add("note", "beside it", id="5")
        ev.process_all()
        assert not moving.done()
        with opened(url) as second, pytest.raises(InvalidArgument, match="another process"):
            second.store.partition(4, quiet)
        conn.rollback()
        moving.result(30)
        check(ev, url)


def test_a_move_waits_for_a_prepared_transaction_and_writers_do_not(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(partitions, "_QUIET", 0.0)
    monkeypatch.setattr(partitions, "_LONG_REST", 0.05)
    with opened(url) as ev:
        fill(ev, 10)
        with psycopg.connect(url) as conn:
            conn.execute("update evervec.records set weight = 2 where tenant = 'a' and id = '3'")
            conn.execute("prepare transaction 'of another program'")
        moving = submit("moving", lambda: ev.store.partition(4, quiet))
        until(lambda: "an open transaction is in the way" in caplog.text)
        ev.of("a").add("note", "beside it", id="5")
        ev.process_all()
        assert not moving.done()
        postgres.execute(url, "commit prepared 'of another program'")
        moving.result(30)
        check(ev, url)
        ask = "select weight from evervec.records where tenant = 'a' and id = '3'"
        assert postgres.execute(url, ask) == [(2.0,)]


def test_statistics_of_words_are_made_for_the_whole(url: str) -> None:
    with opened(url, postgres_partitions=2) as ev:
        fill(ev, 10)
        postgres.execute(url, "vacuum analyze evervec.records_0, evervec.records_1")
        store: Any = ev.store
        words = WordCounts(store.db)
        assert words.of("x", [("sparrow",)]) is None
        words.maintain()
        assert words.of("x", [("sparrow",)]) is None  # too few to care
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(word_counts, "_WORTH_COUNTING", 10)
            words.maintain()
        assert words.of("x", [("sparrow",)])


def test_the_command_splits_continues_and_undoes(url: str, tmp_path: Path) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with opened(url) as ev:
        fill(ev, 5)
        with pytest.raises(KeyboardInterrupt):
            ev.store.partition(4, die)
    run = runner(tmp_path)
    assert "dropped the copies of records" in run("--store", url, "partition", "--undo").stdout
    assert "there are no copies" in run("--store", url, "partition", "--undo").stdout
    done = run("--store", url, "partition", "2")
    assert "split into 2 partitions: records, jobs, ledger, attempts, points_" in done.stdout
    assert "records: " in done.stdout
    assert "all tables are split already" in run("--store", url, "partition", "4").stdout
    assert "give the number" in run("--store", url, "partition", code=2).stderr
    run("init")
    assert "only a PostgreSQL store" in run("partition", "4", code=2).stderr


def test_an_attached_role_keeps_its_grants(url: str) -> None:
    with opened(url) as ev:
        fill(ev, 3)
        postgres.execute(url, "create role reader_of_jobs")
        try:
            postgres.execute(url, "grant select on evervec.jobs to reader_of_jobs")
            ev.store.partition(2, quiet)
            ask = "select has_table_privilege('reader_of_jobs', 'evervec.jobs', 'select')"
            assert postgres.execute(url, ask) == [(True,)]
        finally:
            postgres.execute(url, "drop owned by reader_of_jobs; drop role reader_of_jobs")
