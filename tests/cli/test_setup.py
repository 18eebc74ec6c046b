"""`init`, the settings file, and what a worker on a terminal says."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import evervec
from evervec.cli.config import load_config
from evervec.cli.environment import unknown_variables
from evervec.cli.lost import working
from evervec.cli.narration import _narrate
from evervec.errors import SettingsError
from evervec.indexes.holder import Holder
from evervec.model.jobs import Outcome
from support.command import run_module, runner


def test_init_writes_a_settings_file_that_commands_use(tmp_path: Path) -> None:
    run = runner(tmp_path)
    said = run("--store", "mine.db", "init", "--have", "files", "--model", "noop").stdout
    assert "mine.db is ready; embedder: noop" in said
    assert "next: evervec add doc FOLDER" in said
    written = (tmp_path / "evervec.toml").read_text()
    assert 'store = "mine.db"' in written
    assert 'embedder = "noop"' in written
    run("add", "note", "-", "--id", "1", "--no-embed", input="tea")
    assert not (tmp_path / "evervec.db").exists()
    assert "tea" in run("get", "note", "1").stdout
    run("--store", "other.db", "get", "note", "1", code=1)  # an option comes first
    assert "evervec.toml exists: give --force" in run("init", "--have", "files", code=2).stderr
    assert (tmp_path / "evervec.toml").read_text() == written
    run("init", "--have", "table", "--model", "hashing", code=2)
    assert "attach TABLE" in run("init", "--have", "table", "--force").stdout


def test_init_without_questions_or_options_only_creates_the_store(tmp_path: Path) -> None:
    run = runner(tmp_path)
    assert "next: evervec add" in run("init").stdout
    assert {path.name for path in tmp_path.iterdir()} == {"evervec.db"}


def test_init_names_the_next_commands_for_the_given_store(tmp_path: Path) -> None:
    run = runner(tmp_path)
    said = run("--store", "my notes.db", "--embedder", "hashing", "init").stdout
    assert "next: evervec --store 'my notes.db' --embedder hashing add KIND FILES…" in said


def test_a_failed_init_leaves_nothing(tmp_path: Path) -> None:
    run = runner(tmp_path)
    run("--store", "no/where.db", "init", "--have", "files", code=1)
    assert list(tmp_path.iterdir()) == []


def _on_a_terminal(folder: Path, *args: str, typed: bytes) -> tuple[int, str]:
    """The exit code of a command, and what the terminal shows."""
    ours, theirs = pty.openpty()
    env = {k: v for k, v in os.environ.items() if not k.startswith("EVERVEC_")}
    asked = subprocess.Popen(
        [sys.executable, "-m", "evervec", *args],
        cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    os.write(ours, typed)
    code = asked.wait(60)
    said = os.read(ours, 10_000).decode()
    os.close(ours)
    return code, said


@pytest.mark.parametrize("command", ["init", "uninstall"])
def test_who_declines_is_told_that_nothing_was_changed(tmp_path: Path, command: str) -> None:
    runner(tmp_path)("init", "--have", "files", "--model", "noop")
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    code, said = _on_a_terminal(tmp_path, command, typed=b"n\n")
    assert code == 1
    assert "evervec: nothing was changed" in said
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files


def test_init_asks_on_a_terminal(tmp_path: Path) -> None:
    code, said = _on_a_terminal(tmp_path, "init", typed=b"service\nnoop\n")
    assert code == 0
    assert "What do you want to search?" in said
    assert "evervec keys create" in said
    assert 'embedder = "noop"' in (tmp_path / "evervec.toml").read_text()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("batch_sise = 3", "unknown setting 'batch_sise'; did you mean 'batch_size'"),
        ("openai_key = 'x'", "set EVERVEC_OPENAI_KEY in the environment"),
        ("openai_url = 'http://evil'", "the file may come from others"),
        ("open_without_keys = true", "the file may come from others"),
        ("store = 'postgresql://me:secret@host/db'", "store contains a password"),
        ("store = 3", "must be a single value"),
        ("batch_size = [1]", "must be a single value"),
        ("store = ", "is not TOML"),
        ("x = " + "[" * 100_000, "is not TOML|cannot be read"),
    ],
)
def test_a_wrong_settings_file_says_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evervec.toml").write_text(content)
    before = dict(os.environ)
    with pytest.raises(SettingsError, match=why):
        load_config()
    assert dict(os.environ) == before


def test_the_environment_overrides_the_settings_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evervec.toml").write_text("batch_size = 7\nlisten = false\nstore = 'a.db'\n")
    monkeypatch.setenv("EVERVEC_STORE", "b.db")
    for name in ("EVERVEC_BATCH_SIZE", "EVERVEC_LISTEN"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    load_config(str(tmp_path / "evervec.toml"))
    assert os.environ["EVERVEC_STORE"] == "b.db"
    with evervec.open("memory:", embedder="hashing") as ev:
        assert (ev.settings.batch_size, ev.settings.listen) == (7, False)


def test_a_worker_says_what_it_did_and_that_it_stopped(tmp_path: Path) -> None:
    env = {**os.environ, "EVERVEC_EMBEDDER": "hashing"}
    worker = subprocess.Popen(
        [sys.executable, "-m", "evervec", "worker"],
        cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert worker.stderr is not None
    assert "working on" in worker.stderr.readline()
    worker.send_signal(signal.SIGTERM)
    _, said = worker.communicate(timeout=60)
    assert "the worker has stopped" in said
    assert worker.returncode == 0


def test_a_line_each_minute_tells_what_was_embedded(capsys: pytest.CaptureFixture[str]) -> None:
    class Minutes(threading.Event):
        """Passes a minute at each wait, in which something happens."""

        passed = 0

        def wait(self, timeout: float | None = None) -> bool:
            self.passed += 1
            if self.passed == 2:
                ev.add("note", "tea", id="1")
                ev.process_all()
            return self.passed > 4

    with evervec.open("memory:", embedder="hashing") as ev:
        _narrate(ev, Minutes(), 60.0)
    assert capsys.readouterr().err.splitlines() == [
        "1 record embedded in the last 60 s, 0 waiting",
        "0 records embedded in the last 60 s, 0 waiting",
    ]


def test_after_a_kill_the_same_command_goes_on_where_it_was(tmp_path: Path) -> None:
    """At once, although the killed process held jobs: the lease is that of the settings."""
    (tmp_path / "notes").mkdir()
    for number in range(40):
        (tmp_path / "notes" / f"{number}.txt").write_text(f"text number {number}\n")
    (tmp_path / "slow.py").write_text(
        "import os, pathlib, signal, evervec\n"
        "from evervec.embedders.hashing import HashingEmbedder\n"
        "killed = pathlib.Path('killed')\n"
        "class Slow(HashingEmbedder):\n"
        "    calls = 0\n"
        "    max_batch = 4\n"
        "    def embed(self, texts):\n"
        "        Slow.calls += 1\n"
        "        if Slow.calls > 3 and not killed.exists() and ev.queue.stats().done:\n"
        "            killed.touch()\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return super().embed(texts)\n"
        "ev = evervec.open('evervec.db', embedder=Slow(8), batch_size=8)\n"
    )
    command = [sys.executable, "-m", "evervec", "--app", "slow:ev", "add", "doc", "notes"]
    killed = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    with evervec.open(tmp_path / "evervec.db", embedder="noop") as ev:
        assert ev.count("doc") == 40
        before = ev.queue.stats()
        assert before.done > 0
        assert before.processing > 0
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, text=True)
    assert "40 unchanged" in again.stdout
    with evervec.open(tmp_path / "evervec.db", embedder="noop") as ev:
        after = ev.queue.stats()
        assert (after.done, after.processing, after.pending) == (40, 0, 0)
        outcomes = [a.outcome for n in range(40) for a in ev.queue.history("doc", f"{n}.txt")]
        assert outcomes.count(Outcome.CRASHED) == before.processing


def test_jobs_of_a_living_process_are_left_to_it(tmp_path: Path) -> None:
    run = runner(tmp_path)
    with evervec.open(tmp_path / "evervec.db", embedder="hashing") as ev:
        ev.add("note", "held by this test", id="1")
        with working(ev) as lost:
            assert lost == 0
            (job,) = ev.queue.claim(1)
            said = run("add", "note", "-", "--id", "2", input="tea").stdout
            assert "1 job is in progress in other processes" in said
            (tmp_path / "notes").mkdir()
            assert "1 job is in progress in other processes" in run("sync", "notes").stdout
            now = ev.queue.get(job.job_id)
            assert now is not None
            assert (now.token, now.crashes) == (job.token, 0)
            ev.queue.finish(job)
        assert ev.store.shared.lock_holder(f"worker {ev.queue.worker}") is None


def test_a_worker_with_the_number_of_a_dead_one_replaces_it(tmp_path: Path) -> None:
    with evervec.open(tmp_path / "evervec.db", embedder="hashing") as ev:
        dead = Holder.here("worker")._replace(started="1")
        ev.store.shared.lock(f"worker {ev.queue.worker}", str(dead), 60.0)
        ev.add("note", "claimed by the dead one", id="1")
        ev.queue.claim(1)
        with working(ev) as lost:
            assert lost == 1
            holder = ev.store.shared.lock_holder(f"worker {ev.queue.worker}")
            assert holder is not None
            assert holder.holder == str(Holder.here("worker"))
        assert ev.process_all().succeeded == 1


def test_a_mistyped_variable_is_reported() -> None:
    given = {
        "EVERVEC_EMBEDER": "x", "EVERVEC_BATCHSIZE": "7", "EVERVEC_QUITE_OTHER": "1",
        "EVERVEC_EMBEDDER": "x", "EVERVEC_BATCH_SIZE": "7", "EVERVEC_KEY": "k",
        "EVERVEC_LOG_JSON": "1", "EVERVEC_TEST_POSTGRES": "x", "EVERVEC_BENCH_CORPUS": "x",
        # what Kubernetes sets for services that are called evervec and evervec-db
        "EVERVEC_SERVICE_HOST": "x", "EVERVEC_SERVICE_PORT": "x", "EVERVEC_SERVICE_PORT_HTTP": "x",
        "EVERVEC_PORT": "x", "EVERVEC_PORT_8080_TCP": "x", "EVERVEC_PORT_8080_TCP_ADDR": "x",
        "EVERVEC_DB_PORT": "x", "EVERVEC_DB_SERVICE_HOST": "x", "OTHER": "x",
    }  # fmt: skip
    assert list(unknown_variables(given)) == [
        "EVERVEC_BATCHSIZE is not a setting; did you mean EVERVEC_BATCH_SIZE?",
        "EVERVEC_EMBEDER is not a setting; did you mean EVERVEC_EMBEDDER?",
        "EVERVEC_QUITE_OTHER is not a setting; see docs/settings.md",
    ]


@pytest.mark.parametrize(("options", "begin"), [((), "evervec: "), (("--log-json",), "{")])
def test_a_command_says_once_that_a_variable_is_mistyped(
    tmp_path: Path, options: tuple[str, ...], begin: str
) -> None:
    environ = {**os.environ, "EVERVEC_EMBEDDER": "hashing", "EVERVEC_EMBEDER": "x"}
    done = run_module("evervec", *options, "init", "--json", folder=tmp_path, environ=environ)
    (line,) = [line for line in done.stderr.splitlines() if "EVERVEC_EMBEDER is" in line]
    assert line.startswith(begin)
    assert json.loads(done.stdout)
