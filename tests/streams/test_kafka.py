"""Topics of Kafka: groups, rebalances, offsets, events of Debezium."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

import evervec
from evervec import EvervecError, InvalidArgument, StoreError
from evervec.integrations import kafka
from evervec.integrations.streams import Follower
from evervec.model.usage import Limits
from support.kafka import KafkaCluster, Sent
from support.processes import until
from support.world import KIND, World, assert_in_step, work

SOON = {"session.timeout.ms": 4000, "heartbeat.interval.ms": 300}


def _note(id: int, text: str, partition: int = -1) -> Sent:
    value = json.dumps({"id": id, "text": text}).encode()
    return Sent(str(id).encode(), value, partition)


def _committed(cluster: KafkaCluster, topic: str, group: str) -> int:
    """Messages that a group has committed."""
    consumer = Consumer({"bootstrap.servers": cluster.address, "group.id": group})
    parts = [TopicPartition(topic, number) for number in range(cluster.partitions)]
    try:
        return sum(max(0, part.offset) for part in consumer.committed(parts, 20))
    finally:
        consumer.close()


@contextmanager
def _running(follower: Follower) -> Iterator[Follower]:
    thread = threading.Thread(target=follower.run)
    thread.start()
    try:
        yield follower
    finally:
        follower.stop()
        thread.join(60)
        assert not thread.is_alive()


def test_a_topic_is_followed_to_its_end(memory: World, kafka_cluster: KafkaCluster) -> None:
    messages = [_note(n, f"text {n}") for n in range(20)]
    kafka_cluster.send("plain", [*messages, Sent(b"3", None), Sent(b"4", b"{")])
    follow: dict[str, Any] = {
        "topic": "plain",
        "kind": KIND,
        "group": "plain",
        "options": SOON,
        "drain": True,
    }
    done = kafka.follow(memory.ev, kafka_cluster.url, **follow)
    assert (done.messages, done.saved, done.deleted, done.failed) == (22, 20, 1, 1)
    assert _committed(kafka_cluster, "plain", "plain") == 22
    other = kafka.follow(memory.ev, kafka_cluster.url, **{**follow, "group": "again"})
    assert (other.stale, other.saved, other.deleted) == (21, 0, 0), "all of it is known"
    (state,) = memory.ev.store.streams.states(None)
    assert (state.name, state.lag, len(state.parts), state.failed) == ("kafka:plain", 0, 4, 1)
    (failed,) = memory.ev.streams.failed()
    assert (failed.part.partition("/")[0], failed.key, failed.content) == ("plain", b"4", b"{")
    assert failed.sent_at is not None
    work(memory.ev)
    assert_in_step(memory.ev, {str(n): f"text {n}" for n in range(20) if n != 3})


def test_every_store_and_every_kind_gets_all_messages_of_a_topic(
    memory: World, kafka_cluster: KafkaCluster
) -> None:
    """A group that several of them had in common would share the messages out among them."""
    kafka_cluster.send("common", [_note(n, f"text {n}") for n in range(20)])
    given: dict[str, Any] = {"topic": "common", "options": SOON, "drain": True}
    assert kafka.follow(memory.ev, kafka_cluster.url, kind=KIND, **given).saved == 20
    assert kafka.follow(memory.ev, kafka_cluster.url, kind=KIND, **given).messages == 0
    other = kafka.follow(memory.ev, kafka_cluster.url, kind="other", name="second", **given)
    assert other.saved == 20
    with evervec.open("memory:", embedder="hashing") as new:
        assert kafka.follow(new, kafka_cluster.url, kind=KIND, **given).saved == 20
    assert memory.ev.streams.forget("second")
    again = kafka.follow(memory.ev, kafka_cluster.url, kind="other", name="second", **given)
    assert again.messages == 20, "a stream that was forgotten is followed from its beginning"


def test_a_message_with_an_impossible_time_is_a_message(
    memory: World, kafka_cluster: KafkaCluster
) -> None:
    """Some producers give microseconds or nanoseconds for milliseconds."""
    now = 1_700_000_000_000
    times = {0: now, 1: now * 1000, 2: now * 1_000_000, 3: 253_402_300_800_000, 4: 2**62}
    kafka_cluster.send("times", [Sent(b"k", b"{", 0, time=time) for time in times.values()])
    given: dict[str, Any] = {"topic": "times", "kind": KIND, "options": SOON, "drain": True}
    assert kafka.follow(memory.ev, kafka_cluster.url, **given).failed == len(times)
    sent = {m.position: m.sent_at for m in memory.ev.streams.failed()}
    assert sent == {**dict.fromkeys(times), 0: datetime.fromtimestamp(now / 1000, UTC)}


def test_events_of_debezium_are_ordered_by_their_place_in_the_log(
    memory: World, kafka_cluster: KafkaCluster
) -> None:
    def event(op: str, id: int, lsn: int, body: str | None, partition: int) -> Sent:
        row = {"id": id, "body": body}
        source = {"connector": "postgresql", "lsn": lsn}
        value = {"op": op, "before": row if op == "d" else None, "source": source,
                 "after": None if op == "d" else row}  # fmt: skip
        key = {"schema": {}, "payload": {"id": id}}
        wrapped = {"schema": {}, "payload": value}
        return Sent(json.dumps(key).encode(), json.dumps(wrapped).encode(), partition)

    kafka_cluster.send(
        "events",
        [
            event("r", 1, 10, "one", 0), event("u", 1, 30, "newest", 0), event("u", 1, 20, "old", 1),
            event("c", 2, 11, "two", 2), event("d", 2, 40, None, 3), event("u", 2, 12, "late", 1),
            Sent(b'{"schema":{},"payload":{"id":1}}', None, 0),
            event("c", 3, 50, "again", 2), event("d", 3, 45, None, 2),
        ],
    )  # fmt: skip
    done = kafka.follow(
        memory.ev, kafka_cluster.url, topic="events", kind=KIND, group="events", drain=True,
        debezium=True, text="body",
    )  # fmt: skip
    assert (done.messages, done.failed) == (9, 0)
    work(memory.ev)
    assert_in_step(memory.ev, {"1": "newest", "3": "again"})


def test_followers_share_partitions_and_take_over_from_each_other(
    file_world: World, kafka_cluster: KafkaCluster
) -> None:
    ev = file_world.ev
    sent = 0

    def send(count: int) -> None:
        nonlocal sent
        notes = [_note(sent + n, f"text {sent + n}", n % 4) for n in range(count)]
        kafka_cluster.send("shared", notes)
        sent += count

    def make() -> Follower:
        return kafka.follower(
            file_world.open(), kafka_cluster.url, topic="shared", kind=KIND, group="shared",
            options=SOON, batch=10,
        )  # fmt: skip

    send(40)
    with _running(make()) as first:
        until(lambda: first.done.messages == 40)
        with _running(make()) as second:
            while not second.done.messages:  # until the group has given it partitions
                send(4)
                until(lambda: ev.count() == sent)
            send(40)
            until(lambda: ev.count() == sent)
            until(lambda: first.done.messages + second.done.messages >= sent)
        send(40)
        until(lambda: ev.count() == sent)
    assert _committed(kafka_cluster, "shared", "shared") == sent
    work(ev)
    assert_in_step(ev, {str(n): f"text {n}" for n in range(sent)})


def test_the_lag_of_a_topic_grows_while_its_follower_waits_for_room(
    memory: World, kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ev = memory.ev
    kafka_cluster.send("held", [_note(n, f"text {n}") for n in range(20)])
    ev.set_limits(Limits(records=10))
    follower = kafka.follower(
        ev, kafka_cluster.url, topic="held", kind=KIND, group="held", options=SOON
    )
    monkeypatch.setattr(follower, "_pause", lambda failures: 0.05)

    def lag() -> int:
        return sum(state.lag for state in ev.streams.states())

    with _running(follower):
        until(lambda: lag() >= 10, "the lag of what is not saved")
        kafka_cluster.send("held", [_note(n, f"text {n}") for n in range(20, 50)])
        until(lambda: lag() >= 40, "the lag with messages that came meanwhile")
        ev.set_limits(Limits(records=100))
        until(lambda: ev.count() == 50)
        until(lambda: lag() == 0)


def test_a_topic_that_was_created_again_is_refused_until_it_is_forgotten(memory: World) -> None:
    first, again = KafkaCluster(), KafkaCluster()
    first.send("notes", [_note(n, f"old {n}", 1) for n in range(5)])
    again.send("notes", [_note(n, f"new {n}", 1) for n in range(3)])
    given: dict[str, Any] = {"topic": "notes", "kind": KIND, "options": SOON, "drain": True}
    kafka.follow(memory.ev, first.url, **given)
    with pytest.raises(InvalidArgument, match="created again, or restored"):
        kafka.follow(memory.ev, again.url, **given)
    assert _committed(again, "notes", memory.ev.streams.reader("kafka:notes")) == 0
    assert memory.ev.streams.forget("kafka:notes")
    done = kafka.follow(memory.ev, again.url, **given)
    assert (done.saved, done.stale) == (3, 0)
    assert memory.ev.get(KIND, "2").text == "new 2"  # type: ignore[union-attr]
    done = kafka.follow(memory.ev, again.url, **given, group="reset")
    assert (done.saved, done.stale) == (0, 3), "the same topic from its beginning"


@pytest.mark.long
def test_a_follower_stays_in_its_group_while_the_store_is_away(
    memory: World, kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than its group waits for a sign of life; nothing is committed meanwhile."""
    ev, follower = memory.ev, None
    kafka_cluster.send("away", [_note(n, f"text {n}") for n in range(8)])
    options = {**SOON, "max.poll.interval.ms": 4000}
    follower = kafka.follower(
        ev, kafka_cluster.url, topic="away", kind=KIND, group="away", options=options
    )
    changes, tries = ev.store.changes, []
    save = changes.save

    def fail(*given: Any) -> Any:
        tries.append(_committed(kafka_cluster, "away", "away"))
        if len(tries) < 7:
            raise StoreError("disk full")
        return save(*given)

    monkeypatch.setattr(changes, "save", fail)
    monkeypatch.setattr(follower, "_pause", lambda failures: 1.0)
    done = follower.run(drain=True)
    assert tries[:7] == [0] * 7
    assert (done.saved, done.stale, ev.count()) == (8, 0, 8), "its messages came once"
    assert _committed(kafka_cluster, "away", "away") == 8


def test_a_url_or_option_that_cannot_work_is_refused(memory: World) -> None:
    ev = memory.ev
    wrong: list[dict[str, Any]] = [
        {"url": "kafka://"},
        {"url": "http://localhost"},
        {"topic": []},
        {"group": ""},
        {"options": {"enable.auto.commit": True}},
        {"options": {"no.such.option": 1}},
        {"kind": ""},
        {"batch": 0},
    ]
    for given in wrong:
        wanted: dict[str, Any] = {"url": "kafka://localhost:1", "topic": "t", "kind": KIND, **given}
        with pytest.raises(EvervecError) as raised:
            kafka.follow(ev, wanted.pop("url"), **wanted)
        assert isinstance(raised.value, InvalidArgument)


def test_a_url_can_name_several_brokers_and_a_user() -> None:
    made = kafka._config("kafka://me:p%40ss@a:9092,b:9093")
    assert made["bootstrap.servers"] == "a:9092,b:9093"
    assert (made["sasl.username"], made["sasl.password"]) == ("me", "p@ss")
    assert made["security.protocol"] == "SASL_SSL"
