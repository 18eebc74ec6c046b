"""Followers that are killed at any point: the store holds the stream's last word.

`evervec follow` processes share a stream whose messages come twice, out of order and in any
partition, and are ended by SIGKILL on the way.
"""

import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from nats.js import JetStreamContext

from support.kafka import KafkaCluster, Sent
from support.nats import NatsServer
from support.processes import until
from support.stream_storm import Change, Followers, assert_last_words, make_changes, storm

SIZES = [
    pytest.param(3_000, 1, id="small"),
    pytest.param(100_000, 6, id="large", marks=pytest.mark.long),
]
_SOON = ("--option", "session.timeout.ms=4000", "--option", "heartbeat.interval.ms=300")
"""a killed member leaves its group soon"""


def _followers(folder: Path, count: int, *arguments: str) -> tuple[str, Followers]:
    """Small batches, so that a follower is killed within one rather than between two."""
    store = str(folder / "store.db")
    batch = str(max(50, count // 200))
    return store, Followers(store, folder, [*arguments, "--batch", batch])


@pytest.mark.parametrize(("count", "kills"), SIZES)
def test_killed_followers_of_kafka_lose_nothing(tmp_path: Path, count: int, kills: int) -> None:
    rng = random.Random(count)
    changes, cluster = make_changes(count, rng), KafkaCluster()
    cluster.send(
        "notes",
        [Sent(None, change.encoded(), rng.randrange(cluster.partitions)) for change in changes],
    )
    store, followers = _followers(tmp_path, count, cluster.url, "--topic", "notes", *_SOON)
    try:
        storm(store, followers, len(changes), kills=kills, rng=rng)
    finally:
        followers.close()
    assert_last_words(store, changes)


@pytest.mark.parametrize(("count", "kills"), SIZES)
def test_killed_followers_of_nats_lose_nothing(tmp_path: Path, count: int, kills: int) -> None:
    rng = random.Random(count + 1)
    changes, server = make_changes(count, rng), NatsServer(tmp_path / "nats")
    arguments: Sequence[str] = ("--stream", "notes", "--ack-seconds", "2")
    store, followers = _followers(tmp_path, count, server.url, *arguments)
    try:
        server.send("notes", [(f"notes.{change.id}", change.encoded()) for change in changes])
        storm(store, followers, len(changes), kills=kills, rng=rng)
    finally:
        followers.close()
        server.close()
    assert_last_words(store, changes)


def test_a_follower_that_cannot_end_in_time_ends_at_once_and_repeats(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    store, followers = _followers(
        tmp_path, 1, nats_server.url, "--stream", "late", "--durable", "evervec",
        "--ack-seconds", "1",
    )  # fmt: skip
    nats_server.send("late", [])
    followers.drain()

    def delivered() -> int:
        async def ask(js: JetStreamContext) -> int:
            return (await js.consumer_info("late", "evervec")).num_ack_pending or 0

        found: int = nats_server.use(ask)
        return found

    with closing(sqlite3.connect(store, isolation_level=None)) as other:
        other.execute("begin immediate")  # the follower waits for this transaction
        followers.start(EVERVEC_DRAIN_SECONDS="0.1", EVERVEC_BUSY_SECONDS="60")
        nats_server.send("late", [("late.1", Change(1, 1, "text").encoded())])
        until(delivered)
        assert followers.stop() == [1], followers.logs()
    assert "drain timed out" in followers.logs()
    followers.drain()
    assert_last_words(store, [Change(1, 1, "text")])
