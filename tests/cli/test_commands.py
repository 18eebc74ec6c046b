"""The command line as a user meets it: real processes, real files."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

import evervec
from evervec import errors
from evervec.cli.output import pace
from evervec.embedders.hashing import HashingEmbedder
from evervec.errors import EvervecError
from support.command import Run, runner
from support.rerank_server import RerankServer


def test_a_folder_is_added_searched_changed_and_synced(run: Run, notes: Path) -> None:
    first = run("add", "note", "notes")
    assert "3 added" in first.stdout
    assert "skipped notes/picture.bin: not text" in first.stderr

    found = run("search", "where is tea grown", "-k", "1")
    assert "All about tea" in found.stdout
    assert "note notes/tea.md:1" in found.stdout
    assert "relevance" in found.stdout
    assert "similarity" in found.stdout

    assert "3 unchanged" in run("add", "note", "notes").stdout

    (notes / "tea.md").write_text("# All about tea\n\nTea likes rain and height.\n")
    (notes / "page.html").unlink()
    again = json.loads(run("add", "note", "notes", "--sync", "--json").stdout)
    assert again == {
        "added": 0, "updated": 1, "moved": 0, "unchanged": 1, "deleted": 1, "skipped": 1, "failed": 0,
        "waiting": 0, "processing": 0,
    }  # fmt: skip
    assert "rain" in run("get", "note", "tea.md").stdout
    assert "exactly the latest version" in run("verify").stdout


def test_html_is_read_by_its_visible_text(run: Run, notes: Path) -> None:
    run("add", "note", "notes/page.html")
    record = json.loads(run("get", "note", "page.html", "--json").stdout)
    assert record["title"] == "Moon"
    assert record["text"] == "The tide follows the moon."


def test_what_is_no_file_is_left_out_and_not_waited_for(run: Run, notes: Path) -> None:
    os.mkfifo(notes / "pipe")
    assert "skipped notes/pipe: not a regular file" in run("add", "note", "notes").stderr


def test_a_link_that_leads_nowhere_is_left_out(run: Run, notes: Path) -> None:
    (notes / "gone").symlink_to(notes / "nowhere")
    (notes / "loop").symlink_to(notes / "loop")
    said = run("add", "note", "notes")
    assert "3 added" in said.stdout
    assert "skipped notes/gone: a link to a file that does not exist" in said.stderr
    assert "skipped notes/loop:" in said.stderr


def test_a_drain_says_what_other_workers_hold(run: Run, tmp_path: Path) -> None:
    with evervec.open(tmp_path / "evervec.db", embedder="hashing") as ev:
        ev.add("note", "held elsewhere", id="1")
        ev.queue.claim(1)
    assert "1 job is in progress in other processes" in run("worker", "--drain").stdout
    assert "no lease has expired" in run("recover").stdout
    assert "1 job recovered" in run("recover", "--older-than", "0s").stdout
    assert "1 job done" in run("worker", "--drain").stdout


def test_colours_can_be_switched_off(notes: Path, tmp_path: Path) -> None:
    command = f"{sys.executable} -m evervec"
    shown = {}
    for value in ("", "1"):
        env = {**os.environ, "EVERVEC_EMBEDDER": "hashing", "NO_COLOR": value, "TERM": "xterm"}
        script = f"{command} add note notes; {command} versions"
        done = subprocess.run(
            ["script", "-qec", script, "/dev/null"],
            cwd=tmp_path, env=env, capture_output=True, text=True, check=True,
        )  # fmt: skip
        shown[value] = "\x1b[1m" in done.stdout
    assert shown == {"": True, "1": False}


def test_deleting_what_never_was_leaves_no_trace(run: Run) -> None:
    run("delete", "tpyo", "1", code=1)
    assert "no vectors yet" in run("versions").stdout


def test_globs_name_files(run: Run, notes: Path) -> None:
    assert "1 added" in run("add", "note", "notes/**/*.txt").stdout
    assert "no file matches" in run("add", "note", "notes/*.pdf", code=2).stderr


def test_json_lines_and_standard_input_are_records(run: Run, tmp_path: Path) -> None:
    lines = [{"id": n, "text": f"line {n}", "metadata": {"even": n % 2 == 0}} for n in range(5)]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert "5 added" in run("add", "line", "--jsonl", "x.jsonl").stdout
    assert "1 added" in run("add", "line", "-", "--id", "in", input="from a pipe").stdout
    hits = json.loads(run("search", "line", "--filter", "even=true", "--json").stdout)
    assert sorted(hit["id"] for hit in hits["hits"]) == ["0", "2", "4"]
    assert hits["via"] == "hybrid"


def test_a_bad_line_says_which_and_keeps_those_before(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"id": 1, "text": "good"}\n{"id": 2, "txet": "bad"}\n')
    failed = run("add", "line", "--jsonl", "x.jsonl", code=1)
    assert failed.stderr.startswith("evervec: record at position 1: unknown record field 'txet'")
    assert "did you mean 'text'" in failed.stderr
    assert "good" in run("get", "line", "1").stdout


def test_a_boxed_job_is_shown_with_its_content(run: Run, tmp_path: Path) -> None:
    with evervec.open(tmp_path / "evervec.db", embedder="hashing") as ev:
        ev.register(evervec.Kind("tea", text="{name}"))
        ev.add("tea", {"name": "assam", "size": 3}, id="1")
        job = ev.add("note", "hidden text", id="1", title="T", boxed=True).job_id
    assert "hidden text" not in run("job", str(job)).stdout
    assert "hidden text" in run("job", str(job), "--content").stdout
    shown = json.loads(run("job", str(job), "--content", "--json").stdout)
    assert (shown["job_id"], shown["content"]["title"]) == (job, "T")
    assert json.loads(run("get", "tea", "1", "--json").stdout)["data"] == {
        "name": "assam",
        "size": 3,
    }
    found = json.loads(run("search", "assam", "--json").stdout)
    assert found["hits"][0]["data"] == {"name": "assam", "size": 3}


def test_status_jobs_history_and_versions_show_what_happened(run: Run, notes: Path) -> None:
    run("add", "note", "notes", "--no-embed")
    assert "waiting    3" in run("status").stdout
    jobs = json.loads(run("jobs", "--status", "pending", "--json").stdout)
    assert len(jobs) == 3
    assert "pending" in run("job", str(jobs[0]["job_id"])).stdout
    run("cancel", str(jobs[0]["job_id"]))
    assert "2 jobs done, 0 failed, 0 waiting" in run("worker", "--drain").stdout
    assert json.loads(run("status", "--json").stdout)["stats"]["done"] == 2
    shown = json.loads(run("history", jobs[1]["kind"], jobs[1]["record_id"], "--json").stdout)
    assert [attempt["outcome"] for attempt in shown] == ["done"]
    assert "hashing-256" in run("versions").stdout
    broken = run("verify", code=1)
    assert "1 missing" in broken.stdout
    assert "1 repaired" in run("verify", "--repair").stdout
    assert "exactly the latest version" in run("verify").stdout


def test_verify_counts_by_tenant_and_kind_and_repair_proves_itself(
    run: Run, notes: Path, tmp_path: Path
) -> None:
    run("add", "note", "notes")
    run("--tenant", "acme", "add", "memo", "-", "--id", "1", input="for acme")
    with sqlite3.connect(tmp_path / "evervec.db") as conn:
        conn.execute("delete from evervec_points where tenant = 'acme'")
        conn.execute(
            "update evervec_points set seq = 1 where point = (select min(point) from evervec_points)"
        )
    conn.close()
    assert "memo" not in run("verify", code=1).stdout, "one tenant's"
    shown = run("verify", "--all-tenants", code=1).stdout
    assert "1 missing" in shown
    assert [line.split()[:4] for line in shown.splitlines()[-3:-1]] == [
        ["acme", "memo", "1", "1"],
        ["default", "note", "3", "0"],
    ]
    report = json.loads(run("verify", "--all-tenants", "--json", code=1).stdout)
    assert (report["clean"], report["missing"], report["stale"]) == (False, 1, 1)
    assert report["by"][0] == {
        "tenant": "acme", "kind": "memo", "checked": 1, "missing": 1, "stale": 0, "orphaned": 0,
        "doubled": 0, "misplaced": 0, "waiting": 0, "failed": 0,
    }  # fmt: skip
    mended = json.loads(run("verify", "--all-tenants", "--repair", "--json").stdout)
    assert (mended["repaired"], mended["left"]["clean"]) == (2, True)
    assert json.loads(run("verify", "--all-tenants", "--json").stdout)["clean"]


def test_verify_says_what_waits_and_claims_nothing_of_it(run: Run, notes: Path) -> None:
    run("add", "note", "notes", "--no-embed")
    shown = run("verify", code=3)
    assert "0 records checked\n3 not checked" in shown.stdout
    assert "exactly the latest" not in shown.stdout
    report = json.loads(run("verify", "--json", code=3).stdout)
    assert (report["waiting"], report["clean"], report["complete"]) == (3, True, False)
    run("worker", "--drain")
    assert "exactly the latest version" in run("verify").stdout


def test_a_quick_verify_says_what_it_left_out(run: Run, notes: Path, tmp_path: Path) -> None:
    run("add", "note", "notes")
    with sqlite3.connect(tmp_path / "evervec.db") as conn:
        conn.execute(
            "update evervec_records set text = 'Tea is grown in Kent.' where id like '%tea%'"
        )
    conn.close()
    shown = run("verify", "--quick").stdout
    assert "not checked: quick" in shown
    assert "exactly the latest" not in shown
    assert "1 stale" in run("verify", code=1).stdout
    assert "exactly the latest version" in run("verify", "--repair").stdout


def test_verify_counts_dead_letters(run: Run, notes: Path, tmp_path: Path) -> None:
    with evervec.open(tmp_path / "evervec.db", embedder="hashing") as ev:
        ev.add("note", "boxed", id="1", boxed=True)
        ev.queue.fail(ev.queue.claim(1)[0], "bad", permanent=True)
    shown = run("verify", code=1).stdout
    assert "1 failed" in shown
    assert "exactly the latest" not in shown


def test_status_and_verify_tell_of_a_table_that_is_gone(run: Run, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "evervec.db") as conn:
        conn.execute("create table docs (id integer primary key, body text)")
        conn.execute("insert into docs values (1, 'of lemons')")
    conn.close()
    run("attach", "docs", "--kind", "doc", "--text", "body")
    run("worker", "--drain")
    (table,) = json.loads(run("status", "--json").stdout)["tables"]
    assert (table["table"], table["kind"], table["trouble"]) == ("docs", "doc", None)
    assert (table["rows"], table["embedded"], table["state"]) == (1, 1, "attached")
    with sqlite3.connect(tmp_path / "evervec.db") as conn:
        conn.execute("alter table docs rename to papers")
    conn.close()
    assert "the table docs is now named papers" in run("status").stdout
    (table,) = json.loads(run("status", "--json").stdout)["tables"]
    assert "the table docs is now named papers" in table["trouble"]
    shown = run("verify", code=1).stdout
    assert "docs as doc: the table docs is now named papers" in shown
    assert "exactly the latest" not in shown
    run("verify", "--repair", code=1)
    with sqlite3.connect(tmp_path / "evervec.db") as conn:
        conn.execute("drop table papers")
    conn.close()
    for asked in ("verify", "status", "tables"):
        said = run(asked, code=1 if asked == "verify" else 0).stdout
        assert "the table docs is gone: detach it with `evervec detach docs`" in said
    assert "--repair" not in run("verify", code=1).stdout  # it cannot bring a table back
    said = run("verify", "--repair", code=1).stdout
    assert said.count("the table docs is gone") == 1
    assert "nothing was repaired" in said


def test_a_drain_names_tables_that_are_not_followed(run: Run, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "evervec.db") as conn:
        conn.execute("create table docs (id integer primary key, body text)")
    conn.close()
    run("attach", "docs", "--kind", "doc", "--text", "body")
    assert "tables" in json.loads(run("worker", "--drain", "--json").stdout)
    with sqlite3.connect(tmp_path / "evervec.db") as conn:
        for (name,) in conn.execute(
            "select name from sqlite_master where type = 'trigger'"
        ).fetchall():
            conn.execute(f'drop trigger "{name}"')
    conn.close()
    said = run("worker", "--drain", code=1)
    assert "doc: docs lacks the trigger" in said.stderr
    assert "0 jobs done" in said.stdout
    assert "doc" in json.loads(run("worker", "--drain", "--json", code=1).stdout)["tables"]
    run("attach", "--again")
    run("worker", "--drain")


def test_a_drain_creates_no_store(tmp_path: Path) -> None:
    run = runner(tmp_path)
    assert "typo.db does not exist" in run("--store", "typo.db", "worker", "--drain", code=1).stderr
    assert list(tmp_path.iterdir()) == []


def test_progress_never_passes_what_it_expects(run: Run, notes: Path) -> None:
    run("add", "note", "notes")
    run("add", "note", "--no-embed", "-", "--id", "late", input="one more")
    assert "verifying: 4 of 4" in run("verify", code=3).stderr


def test_another_index_is_refused_until_the_store_is_reindexed(run: Run, notes: Path) -> None:
    run("add", "note", "notes")
    run = partial(run, knows="lance_namespace")  # which takes long to import
    refused = run("--index", "lancedb://vectors", "search", "tea", code=1)
    assert "`evervec reindex lancedb://" in refused.stderr
    shown = json.loads(run("reindex", "lancedb://vectors", "--json").stdout)
    assert shown["index"].endswith("/vectors")
    assert shown["waiting"] == 3
    assert "3 job" in run("worker", "--drain").stdout
    assert "exactly the latest version" in run("verify").stdout


def test_a_repair_that_has_to_wait_is_not_done(run: Run, notes: Path, tmp_path: Path) -> None:
    run("add", "note", "notes")
    with sqlite3.connect(tmp_path / "evervec.db") as conn:
        conn.execute("delete from evervec_points")
    conn.close()
    shown = run("--embedder", "noop", "verify", "--repair", code=1).stdout
    assert "3 repaired; after that:\n0 records checked\n3 not checked" in shown
    assert "embedding is paused" in shown
    assert "exactly the latest" not in shown
    assert "3 job" in run("worker", "--drain").stdout
    run("verify")


def test_alerts_that_last_are_shown_by_status_and_doctor(run: Run, tmp_path: Path) -> None:
    with evervec.open(tmp_path / "evervec.db", embedder="hashing", alert_failed=1) as ev:
        ev.add("note", "alpha")
        ev.queue.fail(ev.queue.claim(1)[0], "bad", permanent=True)
        ev._housekeeping.sweep()
    assert "alert      1 failed jobs  (for" in run("status").stdout
    (alert,) = json.loads(run("status", "--json").stdout)["alerts"]
    assert (alert["alert"], alert["text"]) == ("failed", "1 failed jobs")
    found = json.loads(run("doctor", "--json", code=1).stdout)
    assert ["warn", "1 failed jobs"] in [[f["state"], f["finding"]] for f in found]


def test_the_queue_can_be_paused_retried_recovered_and_purged(run: Run, notes: Path) -> None:
    run("add", "note", "notes", "--no-embed")
    run("pause")
    assert "0 job" in run("worker", "--drain").stdout
    assert "paused" in run("status").stdout
    assert "still paused" in run("--tenant", "default", "resume").stdout
    run("resume")
    run("--tenant", "default", "pause")
    assert "0 job" in run("worker", "--drain").stdout
    assert "evervec --tenant default resume" in run("status").stdout
    assert "evervec --tenant default resume" in run("doctor").stdout
    assert "paused" not in run("--tenant", "other", "status").stdout
    assert "defautl was not paused" in run("--tenant", "defautl", "resume").stdout
    assert "resumed" in run("--tenant", "default", "resume").stdout
    assert "3 job" in run("worker", "--drain").stdout
    assert "0 jobs will be retried" in run("retry", "--all").stdout
    assert "0 jobs recovered" in run("recover").stdout
    assert "3 jobs purged" in run("purge", "--done", "--older-than", "0s").stdout


def test_delete_says_what_was_not_there(run: Run, notes: Path) -> None:
    run("add", "note", "notes")
    assert "deleted 1" in run("delete", "note", "tea.md").stdout
    assert "note 'tea.md' does not exist" in run("delete", "note", "tea.md", code=1).stderr
    assert "note 'tea.md' does not exist" in run("get", "note", "tea.md", code=1).stderr


def test_doctor_finds_what_is_wrong_and_says_how_to_mend_it(run: Run, tmp_path: Path) -> None:
    assert "✓ store" in run("doctor").stdout
    (tmp_path / "text.db").write_text("this is not a database, but a rather long line of text" * 99)
    sick = run("--store", "text.db", "doctor", code=1)
    assert "is not an SQLite database" in sick.stdout
    assert (
        "✗ store     store typo.db does not exist"
        in run("--store", "typo.db", "doctor", code=1).stdout
    )
    without = run("--embedder", "noop", "doctor")
    assert "pip install 'evervec[local]'" in without.stdout


def test_every_command_has_help_with_an_example(run: Run) -> None:
    listed = run("--help").stdout
    names = "add get delete search jobs job history retry recover purge cancel pause resume init"
    for name in f"{names} status worker verify versions doctor demo".split():
        assert f"  {name} " in listed
        assert "Example:\n    evervec" in run(name, "--help").stdout


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("serach", "x"), 2, "did you mean 'search'?"),
        (("search",), 2, "Missing argument"),
        (("search", "x", "--mode", "magic"), 2, "'magic' is not one of"),
        (("search", "x", "-k", "0"), 2, "k must be"),
        (("add", "note", "nowhere"), 2, "file or folder 'nowhere' does not exist"),
        (("add", "note", "--sync"), 2, "--sync needs folders"),
        (
            ("add", "notes/"),
            2,
            "the first argument is the kind, not a path: `evervec add doc notes/`",
        ),
        (("add", "notes/", "a b"), 2, "`evervec add doc notes/ 'a b'`"),
        (("add", "evervec.db"), 2, "`evervec add doc evervec.db`"),
        (("add", "."), 2, "To add '.', name a kind first: `evervec add doc .`"),
        (("add", "note"), 2, "standard input is empty\n"),
        (("get", "note", "x"), 1, "does not exist: `evervec list note` lists those that do"),
        (("search", "x", "--min", "2"), 2, "--min 2: no relevance is above 1"),
        (("search", "x", "--min-similarity", "2"), 2, "is not in the range"),
        (("--store", "typo.db", "get", "note", "x"), 1, "(see `evervec help StoreError`)"),
        (("help", "LeaseLots"), 2, "did you mean 'LeaseLost'?"),
        (("retry",), 2, "give a job id, --all, or options that select jobs"),
        (("retry", "7"), 2, "job 7 does not exist"),
        (("purge", "--done", "--older-than", "soon"), 2, "is not a duration"),
        (("jobs", "--status", "lost"), 2, "unknown status 'lost'"),
        (("--store", "no/where/x.db", "init"), 1, "the folder no/where does not exist"),
        (("--store", "typo.db", "search", "x"), 1, "store typo.db does not exist"),
        (("--store", "sqlite:///typo.db", "status"), 1, "store typo.db does not exist"),
        (("--store", "duckdb:///typo.db", "status"), 1, "store typo.db does not exist"),
        (("add", "note", "--jsonl", "no.jsonl"), 2, "'no.jsonl' does not exist"),
        (("--embedder", "magic", "status"), 2, "unknown embedder 'magic'"),
        (("--store", "mysql://me:secret@host/db", "status"), 2, "…@host/db"),
        (("--store", "postgresql://me:secret@host/db", "status"), 1, "postgresql://host/db was"),
        (("--app", "nothing:ev", "status"), 2, "No module named 'nothing'"),
    ],
)
def test_wrong_use_gets_one_sentence_with_the_way_out(
    run: Run, args: tuple[str, ...], code: int, said: str
) -> None:
    failed = run(*args, code=code)
    assert said in failed.stderr
    assert "secret" not in failed.stderr


def test_a_kind_may_have_the_name_of_a_folder_or_file(
    run: Run, notes: Path, tmp_path: Path
) -> None:
    (tmp_path / "doc").write_text("a file without an ending")
    assert "3 added" in run("add", "notes", "notes").stdout
    assert "1 added" in run("add", "doc", "notes/tea.md").stdout
    assert "1 added" in run("add", "notes", "-", "--id", "1", input="text").stdout


def test_a_search_that_finds_nothing_says_why(run: Run, notes: Path) -> None:
    run("add", "note", "notes")
    said = run("search", "tea", "--kind", "nosuch").stdout
    assert said == "no records of the kind nosuch; there are note\n"
    assert run("list", "nosuch").stdout == said
    run("kinds", "note", "--rescore", "1,1,")
    assert "nothing found within --min 1.9; the best hit has a relevance of" in run(
        "search", "granite", "--min", "1.9"
    ).stdout  # fmt: skip
    assert "no relevance is above 2" in run("search", "tea", "--min", "2.1", code=2).stderr
    near = run("search", "granite", "--min-similarity", "0.99").stdout
    assert "nothing found within --min-similarity 0.99; the best hit has 0." in near
    assert run("search", "tea", "--filter", "type=none", "--min", "0.1").stdout == "nothing found\n"


def test_lists_of_commands_say_each_in_a_whole_sentence(run: Run) -> None:
    for listed in (run("--help").stdout, run("keys", "--help").stdout):
        assert "..." not in listed.partition("Setup:\n")[2] + listed.partition("Commands:\n")[2]


def test_one_record_that_waits_is_said_in_the_singular(run: Run) -> None:
    said = run("--embedder", "noop", "add", "note", "-", "--id", "1", input="tea").stdout
    assert "1 record waits for an embedder; text search finds it already." in said


def test_help_explains_commands_and_errors(run: Run) -> None:
    assert run("help").stdout == run("--help").stdout
    assert (
        run("help", "add").stdout.split("\n", 1)[1] == run("add", "--help").stdout.split("\n", 1)[1]
    )
    for name, found in vars(errors).items():
        if isinstance(found, type) and issubclass(found, EvervecError):
            shown = run("help", name).stdout
            assert shown.startswith(name)
            assert f"/docs#error-{name}" in shown
            assert (
                f"In Python: {found.__module__ if name not in evervec.__all__ else 'evervec'}.{name}"
                in shown
            )
    assert "Discard the result" in run("help", "leaselost").stdout


def test_an_empty_store_says_how_to_fill_it(run: Run) -> None:
    assert "the store is empty" in run("search", "anything").stdout
    assert "no jobs" in run("jobs").stdout
    assert "no vectors yet" in run("versions").stdout
    assert "0 records checked" in run("verify").stdout


def test_common_options_may_stand_behind_the_command(run: Run, tmp_path: Path) -> None:
    run("init", "--store", "other.db")
    assert (tmp_path / "other.db").exists()
    run(
        "add", "note", "-", "--id", "1", "--tenant", "acme", "--store", "other.db", input="for acme"
    )
    assert "for acme" in run("--store", "other.db", "--tenant", "acme", "get", "note", "1").stdout
    run("--store", "other.db", "get", "note", "1", code=1)


def test_an_application_lends_its_own_store_and_kinds(run: Run, tmp_path: Path) -> None:
    (tmp_path / "myapp.py").write_text(
        "import evervec\n"
        "ev = evervec.open('mine.db', embedder='hashing')\n"
        "ev.register(evervec.Kind('row', load=lambda id: f'row {id} of the table'))\n"
        "ev.queue.enqueue('row', 7)\n"
    )
    assert "1 job done" in run("--app", "myapp:ev", "worker", "--drain").stdout
    assert "row 7 of the table" in run("--store", "mine.db", "get", "row", "7").stdout


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    env = {**os.environ, "EVERVEC_EMBEDDER": "hashing"}
    evervec = f"{sys.executable} -m evervec"
    script = f'seq 1 3000 | sed \'s/.*/{{"text": "word &"}}/\' | {evervec} add n --jsonl - >&2; '
    script += f"{evervec} jobs --limit 3000 --json | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["[", "0"]
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_importing_and_help_stay_light() -> None:
    heavy = ("numpy", "pydantic", "rich", "sqlite3", "onnxruntime", "django")
    code = f"""
import sys, evervec
from evervec.cli import main
try:
    main()
finally:
    sys.stderr.write(", ".join(m for m in {heavy!r} if m in sys.modules))
"""
    shown = [sys.executable, "-c", code, "--help"]
    done = subprocess.run(shown, capture_output=True, text=True, check=True)
    assert "migrate" in done.stdout
    assert done.stderr == ""


def test_backfill_says_first_what_it_takes(run: Run, tmp_path: Path) -> None:
    with evervec.open(tmp_path / "evervec.db", embedder="hashing") as ev:
        tickets = [ev.add("note", f"text number {n}", id=n) for n in range(3)]
        ev.queue.cancel(tickets[0].job_id)
        ev.process_all()
    said = run("backfill", "--dry-run").stdout
    assert "1 records lack current vectors" in said
    assert "at most 3 tokens" in said
    assert "1 enqueued" in run("backfill").stdout
    assert json.loads(run("status", "--json").stdout)["stats"]["pending"] == 1
    assert "every record has current vectors" in run("backfill").stdout
    assert json.loads(run("backfill", "--json").stdout)["records"] == 0


def test_status_shows_a_provider_that_is_away_and_what_was_spent(run: Run, tmp_path: Path) -> None:
    with evervec.open(tmp_path / "evervec.db", embedder="hashing") as ev:
        ev.provider.record({("default", "note"): (2.0, 1234.0)})
        ev.provider._gates.shut(evervec.ProviderUnavailable("no route to host"))
    said = run("status").stdout
    assert "unavailable for" in said
    assert "no route to host" in said
    assert "1,234 tokens in 2 calls" in said
    gate = json.loads(run("status", "--json").stdout)["stats"]["gate"]
    assert (gate["state"], gate["reason"]) == ("outage", "no route to host")


def test_a_wrong_attempt_to_attach_leaves_a_database_without_a_store(
    run: Run, tmp_path: Path
) -> None:
    app = sqlite3.connect(tmp_path / "app.db", isolation_level=None)
    app.execute("create table articles (id integer primary key, title text)")
    said = run("--store", "app.db", "attach", "articles", "--text", "words", code=2).stderr
    assert "has no column 'words'" in said
    assert app.execute("select name from sqlite_schema").fetchall() == [("articles",)]
    app.close()


def test_a_table_is_attached_followed_and_detached(run: Run, tmp_path: Path) -> None:
    app = sqlite3.connect(tmp_path / "evervec.db", isolation_level=None)
    app.execute("create table articles (id integer primary key, title text, body text)")
    app.execute("insert into articles values (1, 'Tea', 'grows on hills')")
    assert "create trigger" in run("attach", "articles", "--text", "body", "--dry-run").stdout
    said = run("attach", "articles", "--text", "title", "--text", "body").stdout
    assert "attached as articles; it has about 1 row" in said
    assert "No worker is running; rows of attached tables wait." in run("status").stdout
    assert "no row of the attached tables is embedded yet" in run("search", "tea").stdout
    app.execute("insert into articles values (2, 'Coffee', 'likes shade')")
    run("worker", "--drain")
    app.execute("delete from articles where id = 1")
    assert "All 2 records are searchable" not in (said := run("status").stdout)
    assert "Rows of attached tables wait." in said
    app.execute("insert into articles values (1, 'Tea', 'grows on hills')")
    run("worker", "--drain")
    assert json.loads(run("search", "shade", "-k", "1", "--json").stdout)["hits"][0]["id"] == "2"
    told = run("status").stdout
    assert "articles as articles: attached, 2 of about 2 rows are embedded" in told
    app.execute("alter table articles rename column body to words")
    assert "no longer has the column body" in run("status").stdout
    assert "no longer has the column body" in run("doctor", code=1).stdout
    assert "2 records deleted" in run("detach", "articles").stdout
    assert "is not attached" in run("detach", "articles", code=2).stderr
    app.close()


def test_tables_are_listed_and_attached_again(run: Run, tmp_path: Path) -> None:
    assert "no table is attached" in run("tables").stdout
    app = sqlite3.connect(tmp_path / "evervec.db", isolation_level=None)
    for name in ("articles", "letters"):
        app.execute(f"create table {name} (id integer primary key, body text)")
        app.execute(f"insert into {name} values (1, 'grows on hills')")
        run("attach", name, "--text", "body")
    run("worker", "--drain")
    assert run("tables").stdout.splitlines()[1].split() == [
        "articles", "articles", "attached", "1", "1", "id,", "body"
    ]  # fmt: skip
    assert "every attached table is followed" in run("attach", "--again").stdout
    for name in ("articles", "letters"):
        app.execute(f"create table new (id integer primary key, {'body' * (name < 'b')}x text)")
        app.execute(f"drop table {name}")
        app.execute(f"alter table new rename to {name}")
    app.execute("alter table articles rename column bodyx to body")
    shown = run("tables").stdout
    assert "articles lacks the trigger" in shown
    assert "letters no longer has the column body (used as text)" in shown
    assert "lacks the trigger" in run("status").stdout
    (listed, _) = json.loads(run("status", "--json").stdout)["tables"]
    assert (listed["state"], listed["attachment"]["text"]) == ("broken", ["body"])
    dry = run("attach", "articles", "--again", "--dry-run").stdout
    assert dry.count("create trigger") == 3
    assert "nothing was changed" in dry
    done = run("attach", "--again", code=1)
    assert "articles is attached again as articles" in done.stdout
    assert "letters: letters has no column 'body'" in done.stderr
    assert json.loads(run("attach", "--again", "--json", code=1).stdout)[0]["kind"] == "letters"
    run("attach", "articles", "--text", "{body}!", "--kind", "shouted")
    app.execute("alter table articles rename to pieces")
    assert run("attach", "articles", "--again", "--to", "x", code=2).stderr.count("shouted") == 1
    both = run("attach", "articles", "--again").stdout.splitlines()
    assert [line.split(";")[0] for line in both] == [
        "pieces is attached again as articles", "pieces is attached again as shouted"
    ]  # fmt: skip
    for wrong in (("attach",), ("attach", "articles"), ("attach", "--again", "--text", "x"),
                  ("attach", "articles", "--text", "x", "--to", "y")):  # fmt: skip
        run(*wrong, code=2)
    app.close()


def test_a_folder_is_kept_in_step(run: Run, notes: Path) -> None:
    assert "3 added" in run("sync", "notes").stdout
    (notes / "tea.md").rename(notes / "herbs.md")
    (notes / "page.html").unlink()
    assert run("sync", "notes").stdout.strip() == "1 moved, 1 unchanged, 1 deleted, 1 skipped"
    assert json.loads(run("sync", "notes", "--json").stdout)["unchanged"] == 2


def test_a_model_is_changed_and_changed_back(run: Run, notes: Path) -> None:
    run("add", "note", "notes")
    plan = json.loads(run("migrate", "hashing:64", "--dry-run", "--json").stdout)
    assert plan["records"] == 3
    assert "no migration in progress" in run("migrate", code=1).stderr
    assert "--switch serves the new one" in run("migrate", "hashing:64").stdout
    assert "3 records checked: no faults" in run("migrate", "--compare").stdout
    assert "hashing-64 (note): switched" in run("migrate", "--switch").stdout
    # a store that serves another model than the one in the settings says so
    assert "evervec migrate" in run("search", "tea", code=1).stderr
    auto = ("--embedder", "hashing:64")
    assert "All about tea" in run(*auto, "search", "where is tea grown", "-k", "1").stdout
    assert "rolled back" in run(*auto, "migrate", "--rollback").stdout
    assert "gone" in run("migrate", "--cancel").stdout
    assert "give one of" in run("migrate", "hashing:64", "--retire", code=2).stderr
    states = [v["state"] for v in json.loads(run("versions", "--json").stdout)]
    assert states == ["serving"]


def test_dispatch_hands_out_once_and_says_when_nobody_takes_it(run: Run) -> None:
    assert json.loads(run("dispatch", "--json").stdout)["claimed"] == 0
    run("add", "note", "-", "--no-embed", input="Tea is grown on hills.")
    done = run("dispatch", "--to", "http://127.0.0.1:9", code=1)
    assert "1 claimed, 0 published, 1 released" in done.stdout


def test_a_dry_run_and_a_failed_first_command_leave_nothing_behind(
    run: Run, tmp_path: Path
) -> None:
    with sqlite3.connect(tmp_path / "app.db") as conn:
        conn.execute("create table docs (id integer primary key, body text)")
        conn.execute("insert into docs values (1, 'tea grows on hills')")
    conn.close()
    before, there = (tmp_path / "app.db").read_bytes(), set(tmp_path.iterdir())
    shown = run("--store", "app.db", "attach", "docs", "--text", "body", "--dry-run").stdout
    assert shown.count("create trigger") == 3
    assert "docs as docs: 1 record, about 1 chunk and 7 tokens" in shown
    assert (tmp_path / "app.db").read_bytes() == before
    run("--store", "new.db", "attach", "docs", "--text", "body", "--dry-run", code=1)
    run("--store", "new.db", "add", "note", "missing.txt", code=2)
    run("--store", "new.db", "add", "note", "--jsonl", "-", input='{"text": ""}', code=1)
    run("--store", "new.db", "--embedder", "nope", "init", code=2)
    assert set(tmp_path.iterdir()) == there
    run("--store", "new.db", "add", "note", "--jsonl", "-", input='{"id": 1, "text": "tea"}')
    found = run("--store", "sqlite:///new.db?mode=ro", "search", "tea").stdout
    assert "tea" in found


def test_a_dry_run_is_refused_as_attaching_would_be(run: Run, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "evervec.db") as conn:
        conn.execute("create table docs (id integer primary key, body text)")
    conn.close()
    with evervec.open(tmp_path / "evervec.db", embedder="hashing") as ev:
        ev.add("docs", "by hand", id="1")
    dry = ("attach", "docs", "--text", "body", "--dry-run")
    assert "has records that are not rows of a table" in run(*dry, code=2).stderr
    assert "create trigger" in run(*dry, "--replace").stdout
    with evervec.open(tmp_path / "evervec.db", embedder="hashing") as ev:
        assert (ev.tables(), ev.count("docs")) == ([], 1)


class OwnEmbedder(HashingEmbedder):
    """A model that only this program can make."""

    name = "mine"


def test_a_store_of_an_embedder_of_ones_own_asks_for_its_program(run: Run, tmp_path: Path) -> None:
    with evervec.open(tmp_path / "own.db", embedder=OwnEmbedder(8)) as ev:
        ev.add("note", "alpha", id="1")
        ev.process_all()
    for advised in (
        run("--store", "own.db", "--embedder", "noop", "worker", "--drain", code=1).stderr,
        run("--store", "own.db", "--embedder", "noop", "doctor", code=0).stdout,
    ):
        assert "--app module:ev" in advised
        assert "evervec[local]" not in advised
    assert "evervec[local]" in run("--embedder", "noop", "worker", "--drain", code=1).stderr


@pytest.mark.parametrize(
    ("per_second", "told"),
    [(1234.4, "1,234/s"), (10, "10/s"), (3.21, "3.2/s"), (0.3, "18.0/min"), (0.01, "0.6/min")],
)
def test_a_slow_pace_is_not_told_as_none(per_second: float, told: str) -> None:
    assert pace(per_second) == told


def test_limits_are_shown_and_set_for_a_tenant(run: Run) -> None:
    run("--tenant", "acme", "limits", "--records", "1", "--weight", "3")
    run("--tenant", "acme", "limits", "--money", "2.5")
    shown = json.loads(run("--tenant", "acme", "limits", "--json").stdout)
    assert (shown["records"], shown["limits"]["records"], shown["limits"]["money"]) == (0, 1, 2.5)
    assert "weight in the queue: 3" in run("--tenant", "acme", "limits").stdout
    assert "quota      0 of 1 records" in run("--tenant", "acme", "status").stdout
    assert json.loads(run("status", "--json").stdout)["usage"]["limits"]["records"] == 0
    run("--tenant", "acme", "limits", "--reset")
    shown = json.loads(run("--tenant", "acme", "limits", "--json").stdout)
    assert (shown["limits"]["records"], shown["limits"]["weight"]) == (0, 1)
    run("limits", "--weight", "0", code=2)


def test_links_stay_inside_the_folder(run: Run, notes: Path) -> None:
    (notes.parent / "private.txt").write_text("a secret outside of the folder")
    (notes / "out.txt").symlink_to(notes.parent / "private.txt")
    (notes / "in.txt").symlink_to(notes / "tea.md")
    (notes / "etc").symlink_to("/etc")
    (notes / ".drafts").mkdir()
    (notes / ".drafts" / "sea.md").write_text("The sea is salty.")
    for name in ("a.txt", "b.txt"):  # the only ways to it
        (notes / name).symlink_to(notes / ".drafts" / "sea.md")
    said = run("add", "note", "notes")
    assert "4 added" in said.stdout
    assert "skipped 2 links to files of the same folder" in said.stderr
    ids = [record["id"] for record in json.loads(run("list", "note", "--json").stdout)]
    assert ids == ["a.txt", "deep/rock.txt", "page.html", "tea.md"]
    assert "skipped notes/out.txt: a link to something outside the folder" in said.stderr
    assert "secret" not in run("search", "secret", "--json").stdout


def test_no_text_of_a_record_commands_the_terminal(run: Run, tmp_path: Path) -> None:
    hostile = "needle \x1b]52;c;ZXZpbA==\x07 \x9b2J"
    with evervec.open(tmp_path / "evervec.db", embedder="hashing") as ev:
        ev.add("k\x1b[31m", hostile, id="\x1b[2Jid", title=f"t {hostile}", metadata={"a": hostile})
        ev.process_all()
    for command in (
        ["search", "needle"], ["search", "needle", "--json"], ["get", "k\x1b[31m", "\x1b[2Jid"],
        ["jobs"], ["versions"], ["status"], ["verify"], ["doctor"], ["status", "--json"],
    ):  # fmt: skip
        said = run(*command)
        assert not set(said.stdout + said.stderr) & set("\x1b\x9b\x07"), command
    assert "\\x1b" in run("get", "nothing", "\x1b[2J", code=1).stderr


def test_a_search_may_be_reranked(run: Run) -> None:
    for id, text in (("1", "tea tea tea"), ("2", "tea on hills")):
        run("add", "note", "--id", id, "-", input=text)
    with RerankServer(key=None) as server:
        name = f"{server.url}/v1/rerank#judge"
        found = run("search", "tea", "on", "hills", "--rerank", name, "--explain")
        assert "score 1.000 by judge; before:" in found.stdout
        shown = json.loads(run("search", "tea", "--rerank", name, "--json").stdout)
        assert (shown["reranked"], shown["rerank_error"]) == (True, None)
        away = run("search", "tea", "--rerank", f"{server.url}/elsewhere#judge")
        assert "tea tea tea" in away.stdout
        assert "(not reranked: judge is unavailable)" in away.stderr
    assert "no reranker is set" in run("search", "tea", "--rerank", code=2).stderr


def test_groups_have_headings(run: Run) -> None:
    values = [1, True, {"a": True}, "1", None]
    lines = [{"id": n, "text": "tea", "metadata": {"v": v}} for n, v in enumerate(values)]
    run("add", "note", "--jsonl", "-", input="\n".join(map(json.dumps, lines)))
    shown = run("search", "tea", "--group-by", "v").stdout.splitlines()
    heads = [line for line in shown if line and not line.startswith(" ")]
    assert sorted(heads) == sorted(["1", "true", '{"a": true}', "1", "(none)"])


def test_records_are_exported_and_imported_with_their_vectors(
    run: Run, notes: Path, tmp_path: Path
) -> None:
    run("add", "note", "notes")
    assert "3 exported, 3 with vectors" in run("export", "notes.parquet").stdout
    other = ("--store", str(tmp_path / "other.db"))
    assert "3 saved, 0 unchanged, 0 skipped; 3 came with vectors" in (
        run(*other, "import", "notes.parquet").stdout
    )
    assert "All about tea" in run(*other, "search", "where is tea grown").stdout
    (attempt,) = json.loads(run(*other, "history", "note", "tea.md", "--json").stdout)
    assert attempt["chunks_embedded"] == 0
    again = json.loads(run(*other, "import", "notes.parquet", "--overwrite", "--json").stdout)
    assert (again["unchanged"], again["saved"]) == (3, 0)
    run("import", "nothing.parquet", code=2)


def test_records_are_listed_in_parts(run: Run) -> None:
    run(
        "add",
        "note",
        "--jsonl",
        "-",
        input='{"id": "a", "text": "one"}\n{"id": "b", "text": "two"}\n',
    )
    first = run("list", "note", "-n", "1")
    assert first.stdout == "note a\n"
    assert first.stderr == "more: evervec list note --after a\n"
    assert run("list", "note", "--after", "a").stdout == "note b\n"
    assert "no records of the kind other" in run("list", "other").stdout
    assert "--after needs KIND" in run("list", "--after", "a", code=2).stderr
    assert [r["id"] for r in json.loads(run("list", "--json").stdout)] == ["a", "b"]


def test_evervec_is_removed_only_when_told_so(run: Run, tmp_path: Path) -> None:
    run("add", "note", "-", "--id", "a", input="one")
    assert "nothing was removed" in run("uninstall", code=2).stderr
    assert run("list").stdout == "note a\n"
    assert "evervec is removed" in run("uninstall", "--yes").stdout
    with closing(sqlite3.connect(tmp_path / "evervec.db")) as conn:
        assert conn.execute("select name from sqlite_schema").fetchall() == []
