"""`evervec follow` as an operator uses it: follow, list, retry, discard, forget."""

import json
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import evervec
from evervec.cli.app import cli
from support.nats import NatsServer

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def call(*args: str, code: int = 0) -> Result:
        store = ["--store", str(tmp_path / "notes.db"), "--embedder", "hashing"]
        done = CliRunner().invoke(cli, [*store, *args], standalone_mode=False)
        error = done.exception
        if error is None:
            assert (done.return_value or 0) == code, done.output
        else:
            assert isinstance(error, click.UsageError), error
            assert error.exit_code == code
        return done

    return call


def _follow(run: Run, server: NatsServer, *more: str) -> Result:
    url = ("follow", server.url, "--stream", "shop", "--kind", "note", "--drain")
    return run(*url, *more)


def test_a_stream_is_followed_listed_retried_and_forgotten(
    run: Run, nats_server: NatsServer, tmp_path: Path
) -> None:
    rows = [{"id": n, "body": f"text {n}"} for n in range(3)]
    messages = [("shop.row", json.dumps(row).encode()) for row in rows]
    nats_server.send("shop", [*messages, ("shop.bad", b"{\x1b[31m"), ("shop.bad", b"[]")])
    done = _follow(run, nats_server, "--json")
    assert json.loads(done.stdout)["failed"] == 5, "text is not the name of a field"
    assert "following nats://127.0.0.1" in done.stderr

    listed = json.loads(run("follow", "--failed", "--json").output)
    assert [message["position"] for message in listed] == [1, 2, 3, 4, 5]
    assert json.loads(listed[0]["content"]) == rows[0]
    shown = run("follow", "--failed").output
    assert "not JSON" in shown
    assert "\x1b[31m" not in shown, "a message does not command the terminal"
    assert "5 set aside" in run("status").output
    assert json.loads(run("status", "--json").output)["streams"][0]["name"] == "nats:shop"

    _follow(run, nats_server, "--text", "body")
    assert "3 retried, 2 still set aside" in run("follow", "--retry", "nats:shop", code=1).output
    with evervec.open(tmp_path / "notes.db", embedder="hashing") as ev:
        assert ev.count("note") == 3
    run("follow", "--discard", str(listed[3]["number"]))
    run("follow", "--discard", str(listed[3]["number"]), code=1)
    assert "nats:shop as note: nothing behind" in run("follow", "--list").output
    assert "1 set aside" in run("follow", "--list").output
    run("follow", "--forget", "nats:shop")
    run("follow", "--forget", "nats:shop", code=1)
    assert "no stream is followed" in run("follow", "--list").output
    assert "no message is set aside" in run("follow", "--failed").output


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["kafka://localhost", "--list"],
        ["kafka://localhost", "--kind", "note"],
        ["kafka://localhost", "--topic", "t"],
        ["nats://localhost", "--kind", "note"],
        ["kafka://localhost", "--topic", "t", "--kind", "note", "--option", "x"],
    ],
    ids=" ".join,
)
def test_what_is_missing_is_said(run: Run, args: list[str]) -> None:
    assert str(run("follow", *args, code=2).exception)


def test_a_url_of_another_kind_is_refused_without_its_password(run: Run) -> None:
    done = CliRunner().invoke(
        cli, ["--store", "memory:", "follow", "amqp://me:secret@host", "--kind", "n"]
    )
    assert "cannot follow amqp://host" in str(done.exception)
    assert "secret" not in str(done.exception)
