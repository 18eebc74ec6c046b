"""Which database may answer a search, by what it says about itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from evervec.settings import Settings
from evervec.stores.postgres import replicas
from evervec.stores.postgres.connections import reading_from
from evervec.stores.postgres.engine import SQL
from evervec.stores.postgres.replicas import Replicas

PRIMARY = (7, 2, 1000)
"""system, timeline, and how much is written"""


class Database:
    """What a server answers when it is asked how far it is."""

    def __init__(self, *answer: object) -> None:
        self.answer = answer

    @contextmanager
    def reading(self) -> Iterator[Database]:
        yield self

    @contextmanager
    def writing(self, *, durable: bool) -> Iterator[Database]:
        assert durable
        yield self

    def execute(self, query: str) -> Database:
        assert query in (SQL.written, SQL.replayed, SQL.flush)
        return self

    def fetchone(self) -> tuple[object, ...]:
        return self.answer

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("answer", "may_answer"),
    [
        ((True, 7, 2, 1000), True),
        ((True, 7, 2, 999), False),  # it lags
        ((True, 7, 1, 5000), False),  # it follows a former primary, which has written more
        ((True, 8, 2, 5000), False),  # of another database
        ((False, 7, 2, 5000), False),  # no replica
    ],
)
@pytest.mark.parametrize("fresh", [True, False])
def test_only_a_replica_of_this_primary_that_has_everything_answers(
    monkeypatch: pytest.MonkeyPatch, answer: tuple[object, ...], may_answer: bool, fresh: bool
) -> None:
    replica: Any = Database(*answer)
    monkeypatch.setattr(replicas, "_ReplicaConnections", lambda url, settings: replica)
    used: list[object] = []

    @contextmanager
    def noted(database: Any) -> Iterator[None]:
        used.append(database)
        with reading_from(database):
            yield

    monkeypatch.setattr(replicas, "reading_from", noted)
    settings = Settings(postgres_replicas="postgresql://replica/app", replica_wait_seconds=0.0)
    primary: Any = Database(*PRIMARY)
    assert Replicas(primary, settings).search(lambda: "found", fresh=fresh) == "found"
    assert used == ([replica] if may_answer else [])
