"""Kafka for tests: the mock cluster of librdkafka, which other processes can join."""

import ctypes
from collections.abc import Iterable
from typing import Any, NamedTuple

from confluent_kafka import Producer, cimpl

_GROUP_DELAY = 100
"""milliseconds that a new group waits for more members: 3,000 unless told, for each `follow`"""
_PRODUCER = 0


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
        self.address = _start_broker()
        self.url = f"kafka://{self.address}"
        self._producer = Producer(
            {"bootstrap.servers": self.address, "queue.buffering.max.messages": 1_000_000}
        )

    def send(self, topic: str, messages: Iterable[Sent]) -> None:
        """Send messages, in order, and wait until all are there."""
        for key, value, partition, headers, time in messages:
            given: dict[str, Any] = {
                "partition": partition, "headers": headers, "timestamp": time
            }  # fmt: skip
            self._producer.produce(topic, value, key, **given)
            self._producer.poll(0)
        assert self._producer.flush(60) == 0


def _start_broker() -> str:
    """The address of a cluster that lasts as long as this process. Its makers let only C change how
    long its groups wait."""
    c = ctypes.CDLL(cimpl.__file__)  # finds what that is linked with
    c.rd_kafka_new.restype = c.rd_kafka_mock_cluster_new.restype = ctypes.c_void_p
    c.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    client = ctypes.c_void_p(c.rd_kafka_new(_PRODUCER, None, None, 0))
    cluster = ctypes.c_void_p(c.rd_kafka_mock_cluster_new(client, 1))
    c.rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, ctypes.c_int(_GROUP_DELAY))
    address: bytes = c.rd_kafka_mock_cluster_bootstraps(cluster)
    return address.decode()
