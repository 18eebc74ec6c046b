"""`evervec mcp` as assistants start it: a process with pipes, over a store or over a service."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest

import evervec
from evervec import Evervec, EvervecError
from evervec.cli.app import cli
from support.assistants import command, connected
from support.processes import until
from support.service import Served

_PATIENCE = 60.0
_HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


class Pipes:
    """A process of `evervec mcp`, spoken to line by line."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.log = folder / "mcp.log"
        clean = {k: v for k, v in os.environ.items() if not k.startswith("EVERVEC_")}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "evervec", "-v", *arguments],
                cwd=folder,
                env={**clean, "EVERVEC_EMBEDDER": "hashing", "EVERVEC_STORE": "notes.db"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self._count = 0

    def hello(self) -> None:
        assert "result" in self.answer(self.send("initialize", _HELLO))
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, method: str, params: dict[str, Any]) -> int:
        self._count += 1
        self._write({"jsonrpc": "2.0", "id": self._count, "method": method, "params": params})
        return self._count

    def call(self, tool: str, **arguments: Any) -> int:
        return self.send("tools/call", {"name": tool, "arguments": arguments})

    def _write(self, message: dict[str, Any]) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, id: int) -> Any:
        """The answer to a message; every line before it is an answer too."""
        assert self.process.stdout
        for line in self.process.stdout:
            found = json.loads(line)  # nothing else may be written there
            if found.get("id") == id:
                return found
        raise AssertionError(f"no answer to {id}: {self.log.read_text()}")

    def end(self) -> int:
        assert self.process.stdin
        self.process.stdin.close()
        return self.process.wait(_PATIENCE)


@contextmanager
def spoken_to(folder: Path, *arguments: str) -> Iterator[Pipes]:
    pipes = Pipes(folder, *arguments)
    try:
        yield pipes
    finally:
        pipes.process.kill()
        with pipes.process:
            pass


def test_over_a_store_a_worker_inside_makes_records_searchable(tmp_path: Path, mode: str) -> None:
    store = str(tmp_path / "notes.db")
    started = command("--store", store, "--embedder", "hashing", "--tenant", "acme", "mcp")
    with connected(started, mode) as assistant:
        assert assistant.call("remember", text="Tea is grown in Assam.", id="tea")["searchable"]
        (hit,) = assistant.call("search", query="tea")["hits"]
        assert hit["id"] == "tea"
        assert "Assam" in assistant.resource("evervec://note/tea")
    with evervec.open(store, embedder="hashing", tenant="acme") as ev:
        assert ev.count("note") == 1
        assert ev.verify().complete


def test_over_a_service_the_key_decides_and_the_options_limit(served: Served, mode: str) -> None:
    served.ev.add("secret", "tea", id="1", wait=20)
    options = ("--kind", "note", "--describe", "search=Our notes.")
    started = command("mcp", "--url", served.url, *options, EVERVEC_KEY=served.key())
    with connected(started, mode) as assistant:
        assert assistant.call("remember", text="tea", id="tea")["searchable"]
        assert [h["kind"] for h in assistant.call("search", query="tea")["hits"]] == ["note"]
        assert assistant.call("list", limit=1)["after"] is None
        assert assistant.call("forget", kind="note", id="tea")["erased"]
        assert assistant.call("forget", kind="note", id="tea")["forgotten"] is False
        assert assistant.tools()["search"].description == "Our notes. Kinds: note."
        assert "not offered" in assistant.complaint("get", kind="secret", id="1")


def test_nothing_but_answers_is_on_standard_output_and_the_end_of_input_ends_it(
    tmp_path: Path,
) -> None:
    with spoken_to(tmp_path, "mcp") as pipes:
        pipes.hello()
        assert pipes.process.stdin
        pipes.process.stdin.write(b"this is not JSON\n\xff\xfe\n{}\n" + b"x" * 200_000 + b"\n")
        answered = pipes.answer(pipes.call("remember", text="tea", id="tea"))
        assert answered["result"]["structuredContent"]["searchable"] is True
        assert pipes.end() == 0
        assert pipes.process.stdout
        assert [json.loads(line) for line in pipes.process.stdout] == []
    assert "Traceback" not in pipes.log.read_text()


def test_sigterm_ends_it_while_the_assistant_still_listens(tmp_path: Path) -> None:
    with spoken_to(tmp_path, "mcp") as pipes:
        pipes.hello()
        for n in range(50):
            pipes.call("remember", text=f"note {n}", id=str(n), wait=0)
        last = pipes.call("status")
        pipes.answer(last)
        pipes.process.send_signal(signal.SIGTERM)
        assert pipes.process.wait(_PATIENCE) == 0
    assert "Traceback" not in pipes.log.read_text()
    with evervec.open(tmp_path / "notes.db", embedder="hashing") as ev:
        stats = ev.queue.stats()
        assert stats.processing == 0  # drained or given back
        ev.process_all()
        assert ev.verify().complete


def test_killed_in_the_middle_nothing_that_was_answered_is_lost(tmp_path: Path) -> None:
    saved: set[str] = set()
    with spoken_to(tmp_path, "mcp") as pipes:
        pipes.hello()
        sent = {pipes.call("remember", text=f"note {n}", id=str(n), wait=0): n for n in range(200)}
        assert pipes.process.stdout
        for line in pipes.process.stdout:
            answered = json.loads(line)
            assert answered["result"]["structuredContent"]["saved"]
            saved.add(str(sent[answered["id"]]))
            if len(saved) == 100:
                pipes.process.kill()
                break
    with evervec.open(tmp_path / "notes.db", embedder="hashing", lease_seconds=1) as ev:
        assert saved <= {record.id for record in ev.records("note", limit=500)}
        with ev.worker():
            until(lambda: not _unfinished(ev), "the jobs of the killed worker to be done")
        assert ev.verify().complete


def _unfinished(ev: Evervec) -> int:
    ev.queue.recover_stuck(0)
    stats = ev.queue.stats()
    return stats.pending + stats.processing


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["mcp", "--describe", "serach=x"], "there is no tool 'serach'"),
        (["mcp", "--describe", "search"], "write it as TOOL=TEXT"),
        (["--store", "x.db", "mcp", "--url", "http://127.0.0.1:1"], "not both"),
        (["--store", "none.db", "mcp", "--read-only"], "does not exist"),
    ],
)
def test_wrong_use_is_explained_and_creates_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((click.UsageError, EvervecError), match=why):
        cli.main(arguments, standalone_mode=False)
    assert list(tmp_path.iterdir()) == []
