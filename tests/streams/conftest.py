"""One cluster of Kafka and one server of NATS for all tests of a process."""

from collections.abc import Iterator

import pytest

from support.kafka import KafkaCluster
from support.nats import NatsServer


@pytest.fixture(scope="session")
def kafka_cluster() -> KafkaCluster:
    return KafkaCluster()


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    yield server
    server.close()
