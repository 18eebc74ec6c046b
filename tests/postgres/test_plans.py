"""Each hot statement finds its rows by an index, whatever the planner knows of the tables."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

import evervec
from evervec import Status
from evervec.embedders.hashing import HashingEmbedder
from evervec.indexes.pgvector.table import SQL as INDEX
from evervec.stores.postgres import PostgresStore
from evervec.stores.postgres.connections import Session
from evervec.stores.postgres.engine import SQL
from evervec.stores.sql.words import owner_word
from support import postgres
from support.engines import STORES
from support.world import KIND, World, add_all, work

BIG = ("jobs", "ready", "records", "ledger", "attempts", "removals", "history", "failures",
       "failure_times")  # fmt: skip
IDS = list(range(1, 2001))
FEW = IDS[:3]
SELECT_JOBS = f"select {SQL.job_columns}\n"
SELECT_WRITTEN = SELECT_JOBS.replace("evervec.current_jobs", "evervec.jobs")
SELECT_RECORDS = f"select {SQL.record_columns}\n"

WRITES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "lock_records": (SQL.lock_records, ("default", KIND, ["1", "2"])),
    "known_records": (SQL.known_records, ("default", KIND, 1, ["1", "2"])),
    "standing": (SQL.standing, (IDS,)),
    "finish_claimed": (SQL.finish_claimed, ("t", "w", IDS, IDS, IDS, IDS, 1.0)),
    "finish_untouched": (SQL.finish_untouched, ("t", "w", IDS, IDS, IDS, IDS, 1.0)),
    "finish": (SQL.finish, ([1.0] * len(IDS), IDS, IDS)),
    "born": (SQL.born, (IDS,)),
    "put_ledger": (SQL.put_ledger, (IDS, IDS, IDS, [b""] * len(IDS), [None] * len(IDS))),
    "drop_ledger": (SQL.drop_ledger, (IDS, IDS, IDS)),
    "doubt_ledger": (SQL.doubt_ledger, (1, IDS)),
    "outdate_ledger": (SQL.outdate_ledger, (IDS, IDS, IDS)),
    "owed": (SQL.owed, (IDS,)),
    "release": (SQL.release, (None, None, IDS, ["t"] * len(IDS))),
    "renew": (SQL.renew, (1.0, IDS, ["t"] * len(IDS))),
    "expired": (SQL.expired, (1.0, 1.0, None, 100)),
    "lock_job": (SQL.lock_job, (1,)),
    "lock_place": (SQL.lock_place, (1,)),
    "write_expired": (SQL.write_expired, (1.0, 1.0)),
    "recovered": (SELECT_WRITTEN + SQL.jobs_by_id, (IDS,)),
    "settle_claims": (SQL.settle_claims, (1.0,)),
    "delete_records": (SQL.delete_records, (1.0, IDS, IDS)),
    "purge_done": (
        SQL.purge_done.replace("{leaf}", "jobs"),
        ("(0,0)", "(1,0)", 1.0, None, True, 100),
    ),
    "purge_failed": (SQL.purge_jobs, ("failed", 1.0, None, True, 100)),
    "purge_old_jobs": (SQL.purge_old_jobs.replace("{leaf}", "jobs"), ("(0,0)", "(1,0)", 1.0)),
    "purge_old_attempts": (
        SQL.purge_old_attempts.replace("{leaf}", "attempts"),
        ("(0,0)", "(1,0)", 1.0),
    ),
    "forgotten": (SQL.forgotten, (IDS, 1.0)),
    "purge_buckets": (SQL.purge_buckets, (60, 0)),
    "lock_jobs": (SQL.lock_jobs, (IDS,)),
    "lock_places": (SQL.lock_places, (IDS,)),
    "set_priorities": (SQL.set_priorities, (1, IDS)),
    "retry_many": (SQL.retry_many, (1.0, IDS)),
    "drop_failures": (SQL.drop_failures, ("default", ["f"])),
    "drop_failure_times": (SQL.drop_failure_times, ("default", ["f"])),
    "dismiss_failures": (SQL.dismiss_failures, (1.0, "f", None)),
}
READS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "tombstones": (SQL.tombstones, (1.0, 0.0, 1, 100)),
    "load": (SQL.load, (FEW, list(range(len(FEW))), 1000)),
    "record": (SELECT_RECORDS + SQL.record, ("default", KIND, "1")),
    "job_by_id": (SELECT_JOBS + SQL.job_by_id, (1, "default")),
    "next_scheduled": (SQL.next_scheduled, (None,)),
    "next_expiry": (SQL.next_expiry, (0.0,)),
    "waiting_since": (SQL.waiting_since, (-100,)),
    "history": (SQL.history, ("default", KIND, "1", 1000)),
    "settled": (SQL.settled, (["default"], [KIND], ["1"])),
    "serving_job": (SQL.serving_job, ("default", KIND, "1")),
    "rivals": (SQL.rivals, (FEW,)),
    "drop_jobs": (SQL.drop_jobs, (FEW,)),
    "candidates": (SQL.candidates, (FEW, "default")),
    "found": (SQL.found, (FEW,)),
    "ledgers": (SQL.ledgers, (FEW, [1])),
    "old_job": (SQL.old_job.replace("{leaf}", "jobs"), ("(0,0)", "(1,0)", 1.0)),
    "entries": (SQL.entries, ("default", KIND, ["1", "2"], 1)),
    "exported": (SQL.exported, ("default", KIND, 1, "1", 100)),
    "old_attempt": (SQL.old_attempt.replace("{leaf}", "attempts"), ("(0,0)", "(1,0)", 1.0)),
    "failed_count": (SQL.failed_count, ()),
    "buckets": (SQL.buckets, ("default", 60, 0, 10**10, None)),
    "bucket_kinds": (SQL.bucket_kinds, ("default", 3600, 0)),
    "queue_depths": (SQL.queue_depths, ()),
    "first_records": (SQL.first_records, ("default", KIND, "1", 1000)),
    "job_saved": (SQL.job_saved, (1,)),
    "latest_attempts": (SQL.latest_attempts, (1, 1, 1.0, 100)),
    "backlog": (SQL.backlog, ("default",)),
    "open_jobs": (SQL.open_jobs, (1, 1000)),
    "count_alike": (SQL.count_alike, ("f", "default", 1000)),
    "failures": (SQL.failures, ("default", None, False, 50)),
    "failure_times": (SQL.failure_times, (["f"], 0)),
    "surplus_failures": (SQL.surplus_failures, ("default", 300)),
    "version_jobs": (SQL.version_jobs, (1,)),
    "versions": (SQL.versions, ()),
    "holdings": (SQL.holdings, ("default",)),
    "behind": (SQL.behind, (1,)),
    "progress": (SQL.progress, (1,)),
    "held_version": (SQL.held_version, (1, 1.0)),
    "to_appear": (SQL.to_appear, (1, 100)),
    "stray_boxes": (SQL.stray_boxes, (100,)),
    "drop_version_jobs": (SQL.drop_version_jobs, (1, 100, 5)),
    "version_records": (SQL.version_records, (1, 100, 5)),
    "present": (INDEX.removed, (1, FEW)),
}


@pytest.fixture(scope="module")
def filled_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Records that are done and others that wait; to plan a statement changes nothing in them."""
    world = World(("postgres", "pgvector"), tmp_path_factory.mktemp("plans"))
    url = STORES["postgres"].url(world.folder)
    # else it may analyze a table between a test's two steps, and small ones are rightly walked
    postgres.execute(url, _AUTOVACUUM.format("set (autovacuum_enabled = off)"))
    add_all(world.ev, KIND, *(f"alpha {n}" for n in range(300)))
    work(world.ev)
    list(world.ev.add_many(KIND, ({"id": n, "text": f"beta {n}"} for n in range(100))))
    yield world
    postgres.execute(url, _AUTOVACUUM.format("reset (autovacuum_enabled)"))
    world.close()


_AUTOVACUUM = """
do $$
declare
    name regclass;
begin
    for name in select oid from pg_class
        where relnamespace = 'evervec'::regnamespace and relkind = 'r'
    loop
        execute format('alter table %s {}', name);
    end loop;
end
$$
"""


@pytest.fixture
def filled(filled_world: World) -> PostgresStore:
    assert isinstance(filled_world.ev.store, PostgresStore)
    return _unmeasured(filled_world.ev.store)


@pytest.fixture(scope="module")
def split() -> Iterator[PostgresStore]:
    """A store in partitions."""
    url = postgres.DATABASES.create()
    with evervec.open(url, embedder=HashingEmbedder(), listen=False, postgres_partitions=4) as ev:
        add_all(ev, KIND, *(f"alpha {n}" for n in range(300)))
        ev.process_all()
        list(ev.add_many(KIND, ({"id": n, "text": f"beta {n}"} for n in range(100))))
        assert isinstance(ev.store, PostgresStore)
        yield _unmeasured(ev.store)


def _unmeasured(store: PostgresStore) -> PostgresStore:
    with store.db.writing(durable=False) as conn:
        # of a table that it knows to be small the planner rightly reads all
        conn.execute(
            "delete from pg_statistic where starelid in "
            "(select oid from pg_class where relnamespace = 'evervec'::regnamespace)"
        )
        conn.execute(
            "update pg_class set relpages = 0, reltuples = -1 "
            "where relnamespace = 'evervec'::regnamespace and relkind = 'r'"
        )
    return store


@pytest.mark.parametrize("name", WRITES)
def test_a_statement_that_writes_walks_no_table(filled: PostgresStore, name: str) -> None:
    plan, plan_for_all = _plans_of_write(filled, name)
    assert _walked(plan) == _walked(plan_for_all) == []


@pytest.mark.parametrize("name", READS)
def test_a_query_walks_no_table(filled: PostgresStore, name: str) -> None:
    assert _walked(_plan_of_query(filled, name)) == []


def test_no_statement_walks_a_partition(split: PostgresStore) -> None:
    walked = {name: list(map(_walked, _plans_of_write(split, name))) for name in WRITES} | {
        name: [_walked(_plan_of_query(split, name))] for name in READS
    }
    assert {name: tables for name, tables in walked.items() if any(tables)} == {}


def test_what_names_one_record_reads_one_partition(split: PostgresStore) -> None:
    (version,) = (c.version for c in split.versions.collections())
    with split.db.reading() as conn:
        (record,) = conn.execute("select record from evervec.records where id = '1'").fetchone()
    points = f"points_{version}"
    asked: list[tuple[str, tuple[Any, ...], set[str]]] = [
        (*READS["record"], {"records", "ledger"}),
        (*READS["history"], {"records", "attempts", "jobs"}),
        (*READS["serving_job"], {"records", "jobs"}),
        (SQL.latest_attempts, (record, 1, 1.0, 100), {"attempts", "jobs"}),
        (SQL.owed, ([record],), {"jobs"}),
        (INDEX.present.replace("{points}", f"evervec.{points}"), ([record],), {points}),
    ]
    for query, values, tables in asked:
        with split.db.snapshot() as conn:
            ((plan,),) = conn.execute(f"explain (analyze, format json) {query}", values).fetchall()
        scanned = [node for node in _nodes(plan) if node.get("Actual Loops")]
        read = {node.get("Relation Name", "") for node in scanned} - {"", "versions"}
        assert sorted(map(_whole, read)) == sorted(tables), query


def _plans_of_write(store: PostgresStore, name: str) -> tuple[Any, Any]:
    """For these values, and for any."""
    query, values = WRITES[name]
    anything = ", ".join(["null"] * len(values))
    with store.db.writing(durable=False) as conn:
        ((plan,),) = conn.execute(f"explain (format json) {query}", values).fetchall()
        conn.execute(f"prepare checked as {query}")
        checked = f"explain (format json) execute checked ({anything})"
        ((plan_for_all,),) = conn.execute(checked).fetchall()
        conn.execute("deallocate checked")
    return plan, plan_for_all


def _plan_of_query(store: PostgresStore, name: str) -> Any:
    query, values = READS[name]
    with store.db.snapshot() as conn:
        conn.execute("set local enable_seqscan = off")  # in small tables it would be right to
        ((plan,),) = conn.execute(f"explain (format json) {query}", values).fetchall()
    return plan


def test_jobs_that_wait_are_listed_in_their_order_and_none_is_sorted(
    filled: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    execute = Session.execute

    def noting(self: Session, query: str, values: Any = (), **options: Any) -> Any:
        asked.append((query, values))
        return execute(self, query, values, **options)

    monkeypatch.setattr(Session, "execute", noting)
    assert filled.jobs.page(None, status=Status.PENDING, limit=10)
    query, values = next(given for given in asked if "evervec.ready" in given[0])
    with filled.db.snapshot() as conn:
        conn.execute("set local enable_seqscan = off; set local enable_hashjoin = off")
        conn.execute("set local enable_mergejoin = off")
        conn.execute("set local enable_sort = off")  # a few rows it would rightly sort
        ((plan,),) = conn.execute(f"explain (format json) {query}", values).fetchall()
    assert "ready_order" in json.dumps(plan)
    assert "Sort" not in json.dumps(plan)


def test_full_text_is_found_by_its_index(filled_world: World, filled: PostgresStore) -> None:
    add_all(filled_world.ev, "many", *(f"{n} {'gamma ' * 30}" for n in range(3000)))
    query = SQL.match_text.replace("{filter}", "")
    with filled.db.reading() as conn:
        # what the index has yet to take in would count against it
        conn.execute(postgres.CLEAN_GIN)
        conn.execute("analyze evervec.records")
    with filled.db.snapshot() as conn:
        conn.execute("set local enable_seqscan = off")
        values = ("default", None, 10, f"'{owner_word('default')}' & '2777'", "2777", None)
        ((plan,),) = conn.execute(f"explain (format json) {query}", values).fetchall()
    assert re.search(r"records(_\d)?_words", json.dumps(plan))


def _walked(plan: Any) -> list[str]:
    """Tables, or their partitions, that a plan reads from end to end."""
    return [
        name
        for node in _nodes(plan)
        if (name := node.get("Relation Name", "")) and _whole(name) in BIG and _all_of_it(node)
    ]


def _whole(part: str) -> str:
    """The table of a partition."""
    return re.sub(r"_[0-9]$", "", part)


def _nodes(plan: Any) -> Iterator[dict[str, Any]]:
    if isinstance(plan, list):
        for part in plan:
            yield from _nodes(part)
    elif isinstance(plan, dict):
        if "Node Type" in plan:
            yield plan
        for part in plan.values():
            yield from _nodes(part)


def _all_of_it(node: dict[str, Any]) -> bool:
    by_key = node["Node Type"] == "Index Scan" and node["Index Name"].endswith(("_pkey", "_key"))
    return node["Node Type"] == "Seq Scan" or (by_key and "Index Cond" not in node)
