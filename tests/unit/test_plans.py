"""Each hot query has its index: no plan walks a whole table, and a claim sorts nothing."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import evervec
from evervec import JobFilter, Status
from evervec.indexes.sqlite import SqliteIndex
from evervec.stores.sqlite.engine import SQL as STORE
from support.world import KIND, ScriptedEmbedder, fail_for_good, work

INDEX = SqliteIndex.sql
SELECT_JOBS = f"select {STORE.job_columns}\n"
SELECT_RECORDS = f"select {STORE.record_columns}\n"
NOW = 1e12
LARGE = (
    "evervec_jobs",
    "evervec_records",
    "evervec_points",
    "evervec_attempts",
    "evervec_given",
    "evervec_ledger",
    "evervec_cache",
    "evervec_words",
    "evervec_rewritten",
    "evervec_history",
    "evervec_failures",
    "evervec_failure_times",
)
ALIASES = {
    "j": "evervec_jobs", "r": "evervec_records", "l": "evervec_ledger", "a": "evervec_attempts"
}  # fmt: skip
IDS, NUMBERS = '["1", "2"]', "[1, 2, 3]"

Query = tuple[Callable[[], str], Any]

CLAIM: dict[str, Query] = {
    "any_promoted": (lambda: STORE.any_promoted, (NOW,)),
    "promote": (lambda: STORE.promote, (NOW, 100)),
    "next_tenant": (lambda: STORE.next_tenant, ("",)),
    "due_of_tenant": (
        lambda: f"select {STORE.claim_columns}\n" + STORE.due_of_tenant,
        ("default", NOW, 0, NUMBERS, 256),
    ),
    "lease": (lambda: STORE.lease, ("t", "w", NOW, NOW, NUMBERS)),
    "next_scheduled": (lambda: STORE.next_scheduled, (None,)),
    "next_expiry": (lambda: STORE.next_expiry, (0.0,)),
}

HOT: dict[str, Query] = CLAIM | {
    "known_records": (
        lambda: STORE.known_records,
        ("default", KIND, 1, IDS),
    ),
    "update_record": (
        lambda: STORE.update_record,
        (1, "1", "live", 1, 1, b"", 1.0, NOW, NOW, None, None, "{}", None, "text"),
    ),
    "update_quietly": (lambda: STORE.update_quietly, (NOW, NOW, None, None, 1)),
    "delete_record": (lambda: STORE.delete_record, (NOW, 1, 1)),
    "unindex_text": (lambda: STORE.unindex_text, ("t", NUMBERS)),
    "put_job": (
        lambda: STORE.put_job,
        ("default", NOW, 0, 10**9, 10**9, 1, "embed", 0, NOW, 10**9, 10, None, None, None),
    ),
    "record_sizes": (lambda: STORE.record_sizes, (NUMBERS,)),
    "kinds": (lambda: STORE.kinds, ("default",)),
    "standing": (lambda: STORE.standing, (NUMBERS,)),
    "load": (lambda: STORE.load, (NUMBERS,)),
    "finish": (lambda: STORE.finish, (NOW, 1, 1)),
    "put_ledger": (lambda: STORE.put_ledger, (1, 1, 1, b"", None)),
    "drop_ledger": (lambda: STORE.drop_ledger, (1, 1, 1)),
    "put_back": (lambda: STORE.put_back, ("pending", NOW, 1, 0, "error", None, None, 1)),
    "doubt_ledger": (lambda: STORE.doubt_ledger, (1, NUMBERS)),
    "outdate_ledger": (lambda: STORE.outdate_ledger, (1, 1, 1)),
    "owed": (lambda: STORE.owed, (NUMBERS,)),
    "held_version": (lambda: STORE.held_version, (1, NOW)),
    "release": (lambda: STORE.release, (None, None, 1)),
    "renew": (lambda: STORE.renew, (NOW, 1)),
    "reveal_state": (lambda: STORE.reveal_state, (NUMBERS,)),
    "born": (lambda: STORE.born, (NUMBERS,)),
    "expired": (lambda: SELECT_JOBS + STORE.expired, (NOW, None, 100)),
    "stuck": (lambda: SELECT_JOBS + STORE.stuck, (NOW, None, 100, NOW)),
    "retry_one": (lambda: STORE.retry_one, (NOW, 1)),
    "retry_failed": (lambda: STORE.retry_failed, (NOW, "default", None)),
    "drop_job": (lambda: STORE.drop_job, (1,)),
    "set_priority": (lambda: STORE.set_priority, (1, 1)),
    "purge_done": (lambda: STORE.purge_jobs, ("done", NOW, None, 0, 100)),
    "purge_failed": (lambda: STORE.purge_jobs, ("failed", NOW, "default", 0, 100)),
    "purge_attempts": (lambda: STORE.purge_attempts, (NOW, 100)),
    "purge_removed": (lambda: STORE.purge_removed, (NOW, 100)),
    "tombstones": (lambda: STORE.tombstones, (NOW, 0.0, 1, 100)),
    "forgotten": (lambda: STORE.forgotten, (NUMBERS, NOW)),
    "forget_records": (lambda: STORE.forget_records, (NUMBERS,)),
    "forget_ledger": (lambda: STORE.forget_ledger, (NUMBERS,)),
    "forget_points": (lambda: STORE.forget_points, (NUMBERS,)),
    "record": (lambda: SELECT_RECORDS + STORE.record, ("default", KIND, "1")),
    "digests": (lambda: STORE.digests, ("default", KIND, IDS)),
    "sizes": (lambda: STORE.sizes, (NUMBERS,)),
    "typed": (lambda: STORE.typed, (1, KIND, 1000)),
    "cached": (lambda: STORE.cached, ("model", '["00"]')),
    "trim_cache": (lambda: STORE.trim_cache, (1000,)),
    "jobs_by_id": (lambda: SELECT_JOBS + STORE.jobs_by_id, (NUMBERS,)),
    "finish_untouched": (lambda: STORE.finish_untouched, (NOW, NUMBERS, "token")),
    "add_done_attempts": (lambda: STORE.add_done_attempts, (1, 0, 0, "w", None, NUMBERS)),
    "job_by_id": (lambda: SELECT_JOBS + STORE.job_by_id, (1, "default")),
    "history": (lambda: STORE.history, ("default", KIND, "1", 1000)),
    "holdings": (lambda: STORE.holdings, ("default",)),
    "count_pending": (lambda: STORE.count_status, ("pending", "default")),
    "count_failed": (lambda: STORE.count_status, ("failed", None)),
    "unique_records": (lambda: STORE.unique_records, ("default",)),
    "waiting_since": (lambda: STORE.waiting_since, (-100,)),
    "oldest_pending": (lambda: STORE.oldest_pending, ("default",)),
    "recent_pace": (lambda: STORE.recent_pace, ("default",)),
    "last_done": (lambda: STORE.last_done, ("default",)),
    "settled": (lambda: STORE.settled, (f'[["default", "{KIND}", "1"]]',)),
    "serving_job": (lambda: STORE.serving_job, ("default", KIND, "1")),
    "rivals": (lambda: STORE.rivals, (NUMBERS,)),
    "orphans": (lambda: STORE.orphans, (100,)),
    "drop_version_ledger": (lambda: STORE.drop_version_ledger, (1, NUMBERS)),
    "drop_jobs": (lambda: STORE.drop_jobs, (NUMBERS,)),
    "passing": (lambda: STORE.passing, (NUMBERS, KIND)),
    "text_totals": (lambda: STORE.text_totals, ()),
    "text_sizes": (lambda: STORE.text_sizes, ("alpha", 100)),
    "count_text": (lambda: STORE.count_text, ("alpha",)),
    "words": (lambda: STORE.words, ("default", NUMBERS)),
    "word_parts": (lambda: STORE.word_parts, ("default",)),
    "last_words": (lambda: STORE.last_words, ("default",)),
    "last_words_row": (lambda: STORE.last_words_row, ()),
    "drop_words": (lambda: STORE.drop_words, ("default", 1)),
    "note_rewritten": (lambda: STORE.note_rewritten, ("default", NUMBERS)),
    "rewritten": (lambda: STORE.rewritten, ("default", 1, 1)),
    "rewritten_texts": (lambda: STORE.rewritten_texts, ("default", 1)),
    "drop_notes": (lambda: STORE.drop_notes, ("default", NUMBERS, 1)),
    "tail": (lambda: STORE.tail, ("alpha", 1)),
    "count_tail": (lambda: STORE.count_tail, ("alpha", 1, 100)),
    "texts": (lambda: STORE.texts, (NUMBERS,)),
    "changed_since": (lambda: INDEX.changed_since, ("default", 1)),
    "filtered_since": (lambda: INDEX.filtered_since, ("default", 1, 1)),
    "score_text": (lambda: STORE.score_text, ("alpha",)),
    "score_text_most": (lambda: STORE.score_text_most, ("alpha",)),
    "score_text_among": (lambda: STORE.score_text_among, ("alpha", NUMBERS)),
    "candidates": (lambda: STORE.candidates, (NUMBERS, "default")),
    "found": (lambda: STORE.found, (NUMBERS,)),
    "found_short": (lambda: STORE.found_short, (NUMBERS, 50_000)),
    "forsake": (lambda: STORE.forsake, (NUMBERS,)),
    "ledgers": (lambda: STORE.ledgers, (NUMBERS, NUMBERS)),
    "entries": (lambda: STORE.entries, ("default", KIND, IDS, 1)),
    "exported": (lambda: STORE.exported, ("default", KIND, 1, "1", 100)),
    "sampled": (lambda: STORE.sampled, ("default", KIND, 1, "1", 100)),
    "last_id": (lambda: STORE.last_id, ("default", KIND)),
    "given": (lambda: STORE.given, ("model", NUMBERS)),
    "replace_given": (lambda: STORE.replace_given, (NUMBERS,)),
    "drop_given": (lambda: STORE.drop_given, (1, 1)),
    "all_given": (lambda: STORE.all_given, (1, 100)),
    "vectors": (lambda: INDEX.vectors, (NUMBERS, 1)),
    "expected": (lambda: STORE.expected, (1, 0, None, 100)),
    "reopen": (lambda: STORE.reopen, (NUMBERS, 1)),
    "present": (lambda: INDEX.present, (NUMBERS, 1)),
    "keep_points": (lambda: INDEX.keep_points, (1, 1, 1)),
    "delete_points": (lambda: INDEX.delete_points, (NUMBERS,)),
    "mark": (lambda: INDEX.mark, ()),
    "store_mark": (lambda: STORE.mark, ()),
    "feed": (lambda: INDEX.feed, (1, "default", 0)),
    "count_part": (lambda: INDEX.count_part, (1, "default", 5, 100)),
    "feed_part": (lambda: INDEX.feed_part, (1, "default", 0, 100)),
    "read_points": (lambda: INDEX.read_points, (NUMBERS,)),
    "points_between": (lambda: INDEX.points_between, (1, "default", 0, 100)),
    "filtered_among": (lambda: INDEX.filtered_among, (NUMBERS, "default", 1)),
    "removals": (lambda: INDEX.removals, (1, "default", 0)),
    "filtered": (lambda: INDEX.filtered, ("default", 1)),
    "held": (lambda: INDEX.held, (0, None, 1, None)),
    "strays": (lambda: INDEX.strays, (NUMBERS, None)),
    "drop_strays": (lambda: INDEX.drop_strays, (1, "default", 100)),
    "buckets": (lambda: STORE.buckets, ("default", 60, 0, 10**10, None)),
    "buckets_of_kind": (lambda: STORE.buckets, ("", 60, 0, 10**10, KIND)),
    "bucket_kinds": (lambda: STORE.bucket_kinds, ("default", 3600, 0)),
    "purge_buckets": (lambda: STORE.purge_buckets, (60, 0)),
    "first_records": (lambda: STORE.first_records, ("default", KIND, "1", 1000)),
    "set_priorities": (lambda: STORE.set_priorities, (1, NUMBERS)),
    "retry_many": (lambda: STORE.retry_many, (NOW, NUMBERS)),
    "job_saved": (lambda: STORE.job_saved, (1,)),
    "latest_attempts": (lambda: STORE.latest_attempts, (1, 1, NOW, 100)),
    "count_upto": (lambda: STORE.count_upto, ("pending", "default", 1000)),
    "open_jobs": (lambda: STORE.open_jobs, (1, 1000)),
    "queue_depths": (lambda: STORE.queue_depths, ()),
    "count_alike": (lambda: STORE.count_alike, ("f", "default", 1000)),
    "failures": (lambda: STORE.failures, ("default", None, 0, 50)),
    "latest_failures": (lambda: STORE.latest_failures, (None, 0, 50)),
    "failure_times": (lambda: STORE.failure_times, ('["f"]', 0)),
    "surplus_failures": (lambda: STORE.surplus_failures, ("default", 300)),
    "drop_failures": (lambda: STORE.drop_failures, ("default", '["f"]')),
    "drop_failure_times": (lambda: STORE.drop_failure_times, ("default", '["f"]')),
    "purge_failures": (lambda: STORE.purge_failures, (NOW,)),
    "purge_failure_times": (lambda: STORE.purge_failure_times, (0,)),
    "dismiss_failures": (lambda: STORE.dismiss_failures, (NOW, "f", "default")),
}


@pytest.fixture(scope="module")
def conn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    """A store with jobs in every state, as the planner sees it without statistics."""
    path = Path(tmp_path_factory.mktemp("plans")) / "store.db"
    with evervec.open(path, embedder=ScriptedEmbedder()) as ev:
        list(ev.add_many(KIND, ({"id": n, "text": f"alpha {n}"} for n in range(200))))
        work(ev)
        list(ev.add_many(KIND, ({"id": n, "text": f"beta {n}"} for n in range(50))))
        fail_for_good(ev, "0")
        ev.queue.claim(10)
        ev.delete(KIND, "100")
    conn = sqlite3.connect(path)
    yield conn
    conn.close()


def plan(conn: sqlite3.Connection, query: str, values: Any) -> list[str]:
    rows = conn.execute(f"explain query plan {query}", values).fetchall()
    conn.rollback()
    return [row[3] for row in rows]


def whole_tables(steps: list[str]) -> list[str]:
    """Steps that read all of a large table, by itself or through an index that holds it all.

    An index of one status holds only the jobs in it; the last so many of a table by its
    key stop at the query's limit.
    """
    found = []
    for text in steps:
        scan = re.match(r"SCAN (\w+)(?: USING (?:COVERING )?INDEX (\w+))?", text)
        if scan and ALIASES.get(scan[1], scan[1]) in LARGE:
            partial = scan[2] is not None and scan[2].startswith("evervec_jobs_")
            found += [] if partial else [text]
    return found


LIMITED = {"purge_attempts", "recent_pace", "latest_failures"}
"""They walk a table by its key, and their own limit ends the walk."""


@pytest.mark.parametrize("name", sorted(HOT))
def test_no_hot_query_reads_a_whole_table(conn: sqlite3.Connection, name: str) -> None:
    query, values = HOT[name]
    steps = plan(conn, query(), values)
    if name in LIMITED:
        assert "limit" in query()
        assert len(whole_tables(steps)) == 1
    else:
        assert whole_tables(steps) == [], steps


@pytest.mark.parametrize("name", sorted(CLAIM))
def test_a_claim_sorts_nothing(conn: sqlite3.Connection, name: str) -> None:
    query, values = HOT[name]
    steps = plan(conn, query(), values)
    assert not [text for text in steps if "TEMP B-TREE" in text], steps


@pytest.mark.parametrize(
    "name",
    [
        "expired", "purge_done", "purge_failed", "feed", "feed_part", "points_between", "held",
        "expected", "sampled", "last_id",
    ],
)  # fmt: skip
def test_batches_come_in_the_order_of_their_index(conn: sqlite3.Connection, name: str) -> None:
    query, values = HOT[name]
    steps = plan(conn, query(), values)
    assert not [text for text in steps if "TEMP B-TREE" in text], steps


def traced(ev: evervec.Evervec, table: str, ask: Callable[[], object]) -> list[list[str]]:
    """The plans of the queries over a table that `ask` makes."""
    seen: list[str] = []
    db = ev.store.db  # type: ignore[attr-defined]
    with db.reading() as conn:
        conn.set_trace_callback(seen.append)
    ask()
    with db.reading() as conn:
        conn.set_trace_callback(None)
        return [plan(conn, query, ()) for query in seen if table in query]


@pytest.fixture
def ev(tmp_path: Path) -> Iterator[evervec.Evervec]:
    with evervec.open(tmp_path / "store.db", embedder=ScriptedEmbedder()) as ev:
        ev.add(KIND, "alpha", id="1")
        yield ev


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"kind": KIND},
        {"after": (KIND, "5")},
        {"kind": KIND, "after": (KIND, "5")},
        {"embedded": False},
        {"filter": {"a": 1}},
    ],
    ids=str,
)
def test_listing_records_walks_their_key(ev: evervec.Evervec, options: dict[str, Any]) -> None:
    (steps,) = traced(ev, "evervec_records", lambda: ev.records(**options))
    assert whole_tables(steps) == [], steps
    assert not [text for text in steps if "TEMP B-TREE" in text], steps


@pytest.mark.parametrize("status", ["pending", "processing", "done", "failed"])
def test_listing_jobs_by_status_walks_their_index(ev: evervec.Evervec, status: str) -> None:
    (steps,) = traced(ev, "evervec_jobs", lambda: ev.queue.jobs(status=status))
    assert whole_tables(steps) == [], steps
    assert not [text for text in steps if "TEMP B-TREE" in text], steps


@pytest.mark.parametrize("tenant", ["default", None])
@pytest.mark.parametrize("status", list(Status))
def test_a_filter_searches_the_index_of_a_status_or_the_newest(
    ev: evervec.Evervec, status: Status, tenant: str | None
) -> None:
    wanted = JobFilter(status=status, kind=KIND, prefix="1", error="bad", older_than=1)
    plans = traced(ev, "evervec_jobs", lambda: ev.queue_of(tenant).jobs_where(wanted))
    assert len(plans) == (1 if status is not Status.DONE else 3 if tenant else 2)
    for steps in plans:
        walked = whole_tables(steps)
        newest = status is Status.DONE and walked == ["SCAN j"]  # by its key, up to the limit
        assert walked == [] or newest, steps


@pytest.mark.parametrize("tenant", ["default", None])
def test_the_dead_letters_of_a_group_are_found_by_their_index(
    ev: evervec.Evervec, tenant: str | None
) -> None:
    wanted = JobFilter(fingerprint="f")
    (steps,) = traced(ev, "evervec_jobs", lambda: ev.queue_of(tenant).jobs_where(wanted))
    assert any("evervec_jobs_alike" in step for step in steps), steps


def test_the_job_of_a_record_is_found_by_the_records_key(ev: evervec.Evervec) -> None:
    (steps,) = traced(ev, "evervec_jobs", lambda: ev.queue.status(KIND, "1"))
    assert steps[0].startswith("SEARCH r USING")
    assert whole_tables(steps) == [], steps


def test_every_query_that_touches_a_large_table_is_tested_here() -> None:
    """A new query has to be added above."""
    parts = {"job_columns", "claim_columns", "record_columns", "contains_text", "contains_text_among", "purge_jobs",
             "count_status", "insert_record", "index_text", "insert_stubs", "insert_loads", "add_attempts", "insert_points", "add_cached", "put_given",
             "versions"}  # fmt: skip
    # a migration looks at all of its kind, and only then
    parts |= {"to_appear", "stray_boxes", "progress", "version_jobs", "behind", "drop_version_jobs",
              "version_records", "drop_points", "drop_removals"}  # fmt: skip
    parts |= {
        "any_unread"
    }  # when a template has changed, and then all records of the kind are read
    parts |= {"add_buckets", "note_depths", "add_failures", "add_failure_times"}  # insert
    parts |= {"any_known", "delete_records", "insert_jobs"}  # other engines
    parts |= {"add_words", "count_idle_notes", "drop_idle_notes"}  # in maintenance
    parts |= {"holdings", "count_records", "count_kinds"}  # count all that a tenant has
    for queries in (STORE, INDEX):
        for name, text in vars(queries).items():
            if any(table in text for table in LARGE):
                assert name in HOT or name in parts, name


def test_trimming_the_audit_log_walks_the_entries_of_one_action(conn: sqlite3.Connection) -> None:
    plan = [
        row[3] for row in conn.execute(f"explain query plan {STORE.trim_audit}", ("a", "b", 10, 5))
    ]
    audit = [step for step in plan if "evervec_audit" in step]
    assert len(audit) == 3
    assert all("USING" in step and step.startswith("SEARCH") for step in audit)
    assert not any("TEMP B-TREE" in step for step in plan)
