"""Change streams: messages a second of `follow`, beside a bare loop that writes the same rows.

Both read the same topic in batches of 1,000, save them in one SQLite transaction that is synced to
disk, and commit the offsets. The bare loop keeps a row only if its version is newer; it has no jobs,
no full text and no failed messages. The time runs from the first message to the last commit. The
broker is librdkafka's mock cluster, in threads of the same process.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

import evervec
from benchmarks.made_up import NoCost, texts
from benchmarks.rounds import Measured, take_turns
from benchmarks.table import Line
from evervec.integrations.kafka import KafkaSource
from evervec.integrations.streams import Follower, MessageMapping
from evervec.integrations.streams.message import Message

TOPIC, BATCH = "notes", 1000


def run(*, quick: bool) -> Sequence[Line]:
    messages = 10_000 if quick else 100_000
    producer = Producer(
        {"test.mock.num.brokers": 1, "log_level": 0, "queue.buffering.max.messages": messages}
    )
    (broker,) = producer.list_topics(timeout=20).brokers.values()
    made = texts(1000, 8)  # the mock cluster keeps 5 MB in each of four partitions
    for n in range(messages):
        value = {"id": n, "rev": n, "text": f"{n} {made[n % 1000]}", "metadata": {"n": n}}
        producer.produce(TOPIC, json.dumps(value).encode(), str(n).encode())
    producer.flush()
    groups = iter(range(1000))

    def options() -> dict[str, Any]:
        return {
            "bootstrap.servers": f"{broker.host}:{broker.port}",
            "group.id": f"bench-{next(groups)}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }

    found = take_turns(
        {
            "follow": lambda folder: _follow(folder, options(), messages),
            "bare": lambda folder: _bare(folder, options(), messages),
        },
        rounds=1 if quick else 3,
    )

    def line(what: str, unit: str, name: str) -> Line:
        return Line(what, unit, found["follow"][name], "bare loop", found["bare"][name])

    return [
        line(f"{messages:,} messages saved", "1/s", "rate"),
        line("processor time, with the broker", "µs a message", "cost"),
    ]


class Span:
    """The time from the first message to the last commit, on the clock and of the processor."""

    def __init__(self) -> None:
        self._began: tuple[float, float] | None = None
        self._ended = (0.0, 0.0)

    def fetched(self) -> None:
        self._began = self._began or (time.perf_counter(), time.process_time())

    def committed(self) -> None:
        self._ended = (time.perf_counter(), time.process_time())

    def measured(self, messages: int) -> Measured:
        assert self._began is not None
        clock, processor = (
            end - start for start, end in zip(self._began, self._ended, strict=True)
        )
        return {"rate": messages / clock, "cost": processor / messages * 1e6}


class TimedSource(KafkaSource):
    """A source that says when it began and ended."""

    def __init__(self, options: dict[str, Any], span: Span) -> None:
        super().__init__({**options, "enable.auto.offset.store": False}, [TOPIC])
        self._span = span

    def fetch(self, most: int, seconds: float) -> list[Message]:
        found = super().fetch(most, seconds)
        if found:
            self._span.fetched()
        return found

    def commit(self, messages: Sequence[Message]) -> None:
        super().commit(messages)
        self._span.committed()


def _follow(folder: Path, options: dict[str, Any], messages: int) -> Measured:
    span, mapping = Span(), MessageMapping.of("note", version="rev")
    with evervec.open(folder / "notes.db", embedder=NoCost()) as ev:
        Follower(ev, lambda: TimedSource(options, span), mapping, "bench", batch=BATCH).run(
            drain=True
        )
        assert ev.count() == messages
    return span.measured(messages)


def _bare(folder: Path, options: dict[str, Any], messages: int) -> Measured:
    span, left = Span(), messages
    db = sqlite3.connect(folder / "rows.db", isolation_level=None)
    db.execute("pragma journal_mode = wal")
    db.execute("pragma synchronous = full")
    db.execute("create table notes (id text primary key, version, text, metadata)")
    consumer = Consumer(options)
    consumer.subscribe([TOPIC])
    while left:
        found = [m for m in consumer.consume(BATCH, 0.1) if m.error() is None]
        if not found:
            continue
        span.fetched()
        rows = [json.loads(m.value()) for m in found]
        db.execute("begin")
        db.executemany(
            "insert into notes values (?, ?, ?, ?) on conflict (id) do update set "
            "version = excluded.version, text = excluded.text, metadata = excluded.metadata "
            "where excluded.version > version",
            [(str(r["id"]), r["rev"], r["text"], json.dumps(r["metadata"])) for r in rows],
        )
        db.execute("commit")
        last = {m.partition(): m.offset() + 1 for m in found}
        consumer.commit(
            offsets=[TopicPartition(TOPIC, part, offset) for part, offset in last.items()],
            asynchronous=False,
        )
        span.committed()
        left -= len(found)
    consumer.close()
    db.close()
    return span.measured(messages)
