"""Streams of NATS JetStream: durable consumers, redelivery, key-value buckets."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from nats.js import JetStreamContext

import evervec
from evervec import EvervecError, InvalidArgument
from evervec.integrations import nats
from evervec.model.streams import StreamProgress
from evervec.model.usage import Limits
from support.nats import NatsServer
from support.processes import until
from support.world import KIND, World, assert_in_step, work


def _note(stream: str, id: int, text: str) -> tuple[str, bytes]:
    return f"{stream}.{id}", json.dumps({"id": id, "text": text}).encode()


def test_a_stream_is_followed_to_its_end(memory: World, nats_server: NatsServer) -> None:
    messages = [_note("plain", n, f"text {n}") for n in range(20)]
    nats_server.send("plain", [*messages, ("plain.3", b""), ("plain.4", b"{")])
    follow: dict[str, Any] = {"stream": "plain", "subject": "plain.*", "kind": KIND, "drain": True}
    done = nats.follow(memory.ev, nats_server.url, **follow)
    assert (done.messages, done.saved, done.deleted, done.failed) == (22, 20, 1, 1)
    assert nats.follow(memory.ev, nats_server.url, **follow).messages == 0
    again = nats.follow(memory.ev, nats_server.url, **follow, durable="again")
    assert (again.stale, again.saved) == (21, 0)
    (state,) = memory.ev.store.streams.states(None)
    assert (state.name, state.lag, state.failed) == ("nats:plain", 0, 1)
    assert [part.position for part in state.parts] == [22]
    work(memory.ev)
    assert_in_step(memory.ev, {str(n): f"text {n}" for n in range(20) if n != 3})


def test_a_bucket_of_keys_is_a_stream(memory: World, nats_server: NatsServer) -> None:
    async def fill(js: JetStreamContext) -> None:
        bucket = await js.create_key_value(bucket="articles", history=5)
        await bucket.put("shop.1", b'{"text": "one"}')
        await bucket.put("shop.2", b'{"text": "two"}')
        await bucket.put("shop.1", b'{"text": "one, changed"}')
        await bucket.delete("shop.2")

    nats_server.use(fill)
    nats.follow(
        memory.ev, nats_server.url, stream="KV_articles", subject="$KV.articles.>", kind=KIND,
        drain=True,
    )  # fmt: skip
    work(memory.ev)
    assert_in_step(memory.ev, {"shop.1": "one, changed"})


def test_a_server_that_is_away_is_waited_for(memory: World, tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    server.send("away", [_note("away", n, f"text {n}") for n in range(5)])
    follower = nats.follower(
        memory.ev, server.url, stream="away", kind=KIND, ack_seconds=2,
        options={"reconnect_time_wait": 0.1},
    )  # fmt: skip
    thread = threading.Thread(target=follower.run)
    thread.start()
    try:
        until(lambda: memory.ev.count() == 5)
        server.kill()
        server.start()
        server.send("away", [_note("away", n, f"text {n}") for n in range(5, 10)])
        until(lambda: memory.ev.count() == 10)
    finally:
        follower.stop()
        thread.join(60)
        server.close()
    assert not thread.is_alive()


def test_the_lag_of_a_stream_is_told_while_its_first_messages_wait_for_room(
    memory: World, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ev = memory.ev
    nats_server.send("held", [_note("held", n, f"text {n}") for n in range(20)])
    ev.set_limits(Limits(records=10))
    follower = nats.follower(ev, nats_server.url, stream="held", kind=KIND)
    monkeypatch.setattr(follower, "_pause", lambda failures: 0.05)
    thread = threading.Thread(target=follower.run)
    thread.start()
    try:
        until(lambda: sum(state.lag for state in ev.streams.states()) >= 10)
        nats_server.send("held", [_note("held", n, f"text {n}") for n in range(20, 50)])
        until(lambda: sum(state.lag for state in ev.streams.states()) >= 40)
        ev.set_limits(Limits(records=100))
        until(lambda: [state.lag for state in ev.streams.states()] == [0])
    finally:
        follower.stop()
        thread.join(60)
    assert not thread.is_alive()
    assert ev.count() == 50


def test_every_store_and_every_kind_gets_all_messages_of_a_stream(
    memory: World, nats_server: NatsServer
) -> None:
    """A consumer that several of them had in common would share the messages out among them."""
    nats_server.send("common", [_note("common", n, f"text {n}") for n in range(20)])
    given: dict[str, Any] = {"stream": "common", "drain": True}
    assert nats.follow(memory.ev, nats_server.url, kind=KIND, **given).saved == 20
    assert nats.follow(memory.ev, nats_server.url, kind=KIND, **given).messages == 0
    other = nats.follow(memory.ev, nats_server.url, kind="other", name="second", **given)
    assert other.saved == 20
    with evervec.open("memory:", embedder="hashing") as new:
        assert nats.follow(new, nats_server.url, kind=KIND, **given).saved == 20
    assert memory.ev.streams.forget("second")
    again = nats.follow(memory.ev, nats_server.url, kind="other", name="second", **given)
    assert again.messages == 20, "a stream that was forgotten is followed from its beginning"


def test_a_consumer_of_another_subject_is_refused(memory: World, nats_server: NatsServer) -> None:
    """It would give other messages than are asked for."""
    nats_server.send("two", [("two.note.1", b'{"text": "a"}'), ("two.task.1", b'{"text": "b"}')])
    given: dict[str, Any] = {"stream": "two", "kind": KIND, "drain": True}
    assert nats.follow(memory.ev, nats_server.url, subject="two.note.*", **given).saved == 1
    with pytest.raises(InvalidArgument, match=r"gets messages of two\.note\.\*, not of >"):
        nats.follow(memory.ev, nats_server.url, **given)
    done = nats.follow(memory.ev, nats_server.url, name="tasks", subject="two.task.*", **given)
    assert done.saved == 1


def test_a_header_that_is_called_status_is_no_status_of_the_server(
    memory: World, nats_server: NatsServer
) -> None:
    statuses = ("100", "200", "404", "408", "409", "503", "abc", "")

    async def send(js: JetStreamContext) -> None:
        await js.add_stream(name="status", subjects=["status.>"])
        for n, status in enumerate(statuses):
            body = b'{"text": "a"}' if n % 2 else b""
            await js.publish(f"status.{n}", body, headers={"Status": status, "Rev": str(n)})

    nats_server.use(send)
    done = nats.follow(
        memory.ev, nats_server.url, stream="status", subject="status.*", kind=KIND, drain=True,
        version="header:Rev",
    )  # fmt: skip
    assert (done.messages, done.saved, done.failed) == (8, 4, 0)


def test_a_stream_that_was_created_again_is_refused_until_it_is_forgotten(
    memory: World, nats_server: NatsServer
) -> None:
    follow: dict[str, Any] = {"stream": "made", "kind": KIND, "drain": True}
    nats_server.send("made", [_note("made", n, f"old {n}") for n in range(5)])
    nats.follow(memory.ev, nats_server.url, **follow)
    nats_server.use(lambda stream: stream.delete_stream("made"))
    nats_server.send("made", [_note("made", n, f"new {n}") for n in range(3)] * 4)
    with pytest.raises(InvalidArgument, match="created again, or restored"):
        nats.follow(memory.ev, nats_server.url, **follow)
    assert memory.ev.streams.forget("nats:made")
    done = nats.follow(memory.ev, nats_server.url, **follow)
    assert (done.saved, done.stale) == (12, 0)
    texts = {record.id: record.text for record in memory.ev.records(kind=KIND)}
    assert texts == {"0": "new 0", "1": "new 1", "2": "new 2", "3": "old 3", "4": "old 4"}
    done = nats.follow(memory.ev, nats_server.url, **follow, durable="reset")
    assert (done.saved, done.stale) == (0, 12), "the same stream from its beginning"


def test_a_stream_that_was_restored_from_an_older_copy_is_refused(
    memory: World, nats_server: NatsServer
) -> None:
    """Its messages that came after the copy are lost, and their numbers are used again."""
    follow: dict[str, Any] = {"stream": "copy", "kind": KIND, "drain": True}
    nats_server.send("copy", [_note("copy", n, f"text {n}") for n in range(5)])
    nats.follow(memory.ev, nats_server.url, **follow)
    progress = StreamProgress("copy", 7, 0)  # as it was before
    memory.ev.streams.report("nats:copy", [progress])
    with pytest.raises(InvalidArgument, match="created again, or restored"):
        nats.follow(memory.ev, nats_server.url, **follow)


def test_what_cannot_be_followed_is_refused(memory: World, nats_server: NatsServer) -> None:
    for given in (
        {"url": "http://localhost"},
        {"stream": ""},
        {"stream": "no-such-stream"},
        {"stream": "no.such stream"},
        {"options": {"no_such_option": 1}},
        {"subject": ""},
    ):
        wanted: dict[str, Any] = {"url": nats_server.url, "stream": "s", "kind": KIND, **given}
        with pytest.raises(EvervecError) as raised:
            nats.follow(memory.ev, wanted.pop("url"), **wanted, drain=True)
        assert isinstance(raised.value, InvalidArgument)
