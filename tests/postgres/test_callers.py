"""`conn=` on PostgreSQL: psycopg, SQLAlchemy and Django, whatever they have set."""

import contextlib
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from unittest import mock

import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session as OrmSession

from evervec import InvalidArgument, StoreError
from evervec.stores.postgres.connections import Session
from evervec.stores.postgres.database import OwnDatabase
from support import postgres
from support.world import KIND, World, assert_in_step, work


@pytest.fixture
def engine(url: str) -> Iterator[Any]:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    yield engine
    engine.dispose()


def test_row_and_cursor_factories_are_the_callers_own(world: World) -> None:
    with closing(world.connect()) as conn:
        conn.row_factory, conn.cursor_factory = dict_row, psycopg.ClientCursor
        world.ev.add(KIND, "alpha", id="1", conn=conn)
        world.ev.add(KIND, "beta", id="1", conn=conn)
        assert (conn.row_factory, conn.cursor_factory) == (dict_row, psycopg.ClientCursor)
        conn.commit()
    work(world.ev)
    assert_in_step(world.ev, {"1": "beta"})


def test_autocommit_commits_each_call(world: World) -> None:
    with closing(world.connect()) as conn:
        conn.autocommit = True
        world.ev.add(KIND, "alpha", id="1", conn=conn)
        assert world.ev.get(KIND, "1") is not None
        with conn.transaction(force_rollback=True):
            world.ev.add(KIND, "beta", id="2", conn=conn)
        assert world.ev.get(KIND, "2") is None


def test_a_savepoint_of_the_callers_can_be_rolled_back(world: World) -> None:
    with closing(world.connect()) as conn:
        world.ev.add(KIND, "alpha", id="1", conn=conn)
        with contextlib.suppress(ZeroDivisionError), conn.transaction():
            world.ev.add(KIND, "beta", id="2", conn=conn)
            raise ZeroDivisionError
        conn.commit()
    assert [r.id for r in world.ev.records()] == ["1"]


def test_a_transaction_that_has_failed_says_so(world: World) -> None:
    with closing(world.connect()) as conn:
        with contextlib.suppress(psycopg.Error):
            conn.execute("select 1 / 0")
        with pytest.raises(StoreError, match="aborted"):
            world.ev.add(KIND, "alpha", id="1", conn=conn)
        conn.rollback()
        world.ev.add(KIND, "alpha", id="1", conn=conn)
        conn.commit()
    assert world.ev.get(KIND, "1") is not None


def test_a_sqlalchemy_connection_that_has_not_begun_commits_what_was_added(
    world: World, engine: Any
) -> None:
    with engine.connect() as conn:
        world.ev.add(KIND, "alpha", id="1", conn=conn)
        assert world.ev.get(KIND, "1") is None
        conn.commit()
        world.ev.add(KIND, "beta", id="2", conn=conn)
        conn.rollback()
        world.ev.add(KIND, "gamma", id="3", conn=conn)  # and never commits
    assert [r.id for r in world.ev.records()] == ["1"]


def test_a_sqlalchemy_session_with_nested_transactions(world: World, engine: Any) -> None:
    with OrmSession(engine) as session, session.begin():
        session.execute(text("create table mine (id int)"))
        world.ev.add(KIND, "alpha", id="1", conn=session)
        with contextlib.suppress(ZeroDivisionError), session.begin_nested():
            world.ev.add(KIND, "beta", id="2", conn=session)
            raise ZeroDivisionError
    assert [r.id for r in world.ev.records()] == ["1"]


def test_a_connection_of_another_driver_is_refused(world: World) -> None:
    engine = create_engine("sqlite://")
    with engine.connect() as conn, pytest.raises(InvalidArgument, match="psycopg"):
        world.ev.add(KIND, "alpha", id="1", conn=conn)
    engine.dispose()


@pytest.mark.parametrize("autocommit", [False, True])
def test_a_connection_to_another_store_is_refused(world: World, autocommit: bool) -> None:
    other = postgres.DATABASES.borrow()
    with closing(world.connect()) as mine:
        world.ev.add(KIND, "alpha", id="1", conn=mine)
        mine.commit()
    with closing(postgres.connect(other)) as conn:
        conn.autocommit = autocommit
        with pytest.raises(StoreError, match=r"another database than .*nothing was written"):
            world.ev.add(KIND, "beta", id="2", conn=conn)
        conn.rollback()
        assert conn.execute("select count(*) from evervec.records").fetchone() == (0,)
    postgres.DATABASES.give_back(other)
    assert [record.id for record in world.ev.records()] == ["1"]


def test_a_store_may_move_to_another_server_while_it_is_open() -> None:
    """An upgrade of the server gives the database another identity, at the same address."""
    mine, moved, other = ((n, n) for n in range(3))
    now = mine

    @contextlib.contextmanager
    def own() -> Iterator[Any]:
        yield _session(now)

    database = OwnDatabase("store")
    database.check(_session(mine), own)
    now = moved
    database.check(_session(moved), own)
    with pytest.raises(StoreError, match="another database"):
        database.check(_session(other), own)


def _session(identity: tuple[int, int]) -> Any:
    """A session in that database, on a connection of its own."""
    session = mock.Mock()
    session.execute.return_value.fetchone.return_value = identity
    return session


def test_a_connection_is_looked_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    execute = Session.execute

    def counted(self: Session, query: str, *given: Any, **options: Any) -> Any:
        asked.append("pg_control_system" in query)
        return execute(self, query, *given, **options)

    monkeypatch.setattr(Session, "execute", counted)
    with closing(world.connect()) as conn:
        for id in ("1", "2"):
            world.ev.add(KIND, "alpha", id=id, conn=conn)
        conn.commit()
    assert sum(asked) == 2, "for the store's own connection, and for the caller's"
