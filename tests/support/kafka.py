"""Kafka for tests: the mock cluster of librdkafka, which other processes can join."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from confluent_kafka import Producer


class Sent(NamedTuple):
    """A message to send."""

    key: bytes | None
    value: bytes | None
    partition: int = -1
    headers: dict[str, bytes] | None = None
    time: int = 0
    """milliseconds, as its producer says; 0: now"""


class KafkaCluster:
    """One broker on a port of its own; topics appear with four partitions when they are used."""

    partitions = 4

    def __init__(self) -> None:
        self._producer = Producer(
            {"test.mock.num.brokers": 1, "log_level": 0, "queue.buffering.max.messages": 1_000_000}
        )
        (broker,) = self._producer.list_topics(timeout=20).brokers.values()
        self.address = f"{broker.host}:{broker.port}"
        self.url = f"kafka://{self.address}"

    def send(self, topic: str, messages: Iterable[Sent]) -> None:
        """Send messages, in order, and wait until all are there."""
        for key, value, partition, headers, time in messages:
            given: dict[str, Any] = {
                "partition": partition, "headers": headers, "timestamp": time
            }  # fmt: skip
            self._producer.produce(topic, value, key, **given)
            self._producer.poll(0)
        assert self._producer.flush(60) == 0
