"""The command line says what happened, what failed, who works, and what is wrong."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import evervec
from support.command import Run
from support.world import fail_for_good


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """One record done, two failed."""
    with evervec.open(tmp_path / "evervec.db", embedder="hashing") as ev:
        ev.add("note", "tea", id="1")
        ev.process_all()
        for id in ("2", "3"):
            ev.add("note", "rock", id=id)
            fail_for_good(ev, id, "note")
    return tmp_path


def test_failures_are_listed_retried_and_dismissed(run: Run, store: Path) -> None:
    listed = run("failures").stdout
    assert "it is bad" in listed
    (group,) = json.loads(run("failures", "--json").stdout)
    assert (group["failed"], group["open"]) == (2, 2)
    alike = ("--fingerprint", group["fingerprint"])
    assert "2 jobs would be retried" in run("retry", *alike, "--dry-run").stdout
    assert "dismissed" in run("dismiss", group["fingerprint"]).stdout
    assert "no failures" in run("failures").stdout
    assert "it is bad" in run("failures", "--dismissed").stdout
    assert "2 jobs would get priority" not in run("priority", "3", *alike).stdout
    assert "1 job would be cancelled" in run("cancel", "--prefix", "2", "--dry-run").stdout
    assert "2 jobs will be retried" in run("retry", *alike).stdout
    assert "2 jobs got priority 3" in run("priority", "3", "--kind", "note").stdout
    assert "2 jobs cancelled" in run("cancel", "--status", "pending").stdout
    actions = {entry["action"] for entry in json.loads(run("audit", "--json").stdout)}
    assert {"jobs.retry", "jobs.priority", "jobs.cancel", "failures.dismiss"} <= actions


def test_the_history_is_shown_and_that_of_a_record_too(run: Run, store: Path) -> None:
    points = json.loads(run("history", "--since", "10min", "--json").stdout)
    assert sum(point["done"] for point in points) == 1
    assert sum(point["failed"] for point in points) == 2
    assert "p99" in run("history", "note", "--since", "2h", "--step", "1h").stdout
    assert "done" in run("history", "note", "1").stdout


def test_status_says_first_what_is_wrong(run: Run, store: Path) -> None:
    first, *_ = run("status").stdout.splitlines()
    assert first.startswith("2 records failed and wait for you (2 of note: it is bad).")
    sentences = json.loads(run("status", "--json").stdout)["summary"]
    assert [s["level"] for s in sentences] == ["bad", "info"]
    assert "no workers" in run("workers").stdout


def _watch(store: Path, out: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "evervec", "--embedder", "hashing", "status", "--watch"],
        cwd=store, stdout=out, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_a_watched_status_is_plain_when_piped_and_ends_with_ctrl_c(store: Path) -> None:
    reader, writer = os.pipe()
    watching = _watch(store, writer)
    os.close(writer)
    with open(reader, encoding="utf-8") as shown:
        when, what = shown.readline(), shown.readline()
        watching.send_signal(signal.SIGINT)
        rest = shown.read()
    assert when.endswith(" UTC\n")
    assert what.startswith("2 records failed")
    assert "\x1b" not in when + what + rest
    assert watching.wait(60) == 0
    assert watching.stderr is not None
    assert watching.stderr.read() == b""
    watching.stderr.close()


def test_a_watched_status_is_drawn_in_place_on_a_terminal(store: Path) -> None:
    terminal, inner = pty.openpty()
    watching = _watch(store, inner)
    os.close(inner)
    shown = b""
    while shown.count(b"2 records failed") < 2:  # drawn again
        shown += os.read(terminal, 4096)
    watching.send_signal(signal.SIGINT)
    assert watching.wait(60) == 0
    os.close(terminal)
    assert b"\x1b[" in shown
    assert watching.stderr is not None
    watching.stderr.close()
