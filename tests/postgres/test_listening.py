"""Notifications are sent only where another process listens."""

import psycopg

from evervec.stores.postgres import PostgresStore
from evervec.stores.postgres.listener import Listener
from support import postgres
from support.world import World

MARK = "select pg_advisory_lock_shared(1702258034, 1)"


def listening_of(world: World) -> Listener:
    assert isinstance(world.ev.store, PostgresStore)
    listening = world.ev.store.engine.listening
    assert listening is not None
    return listening


def others_listen(world: World) -> bool:
    assert isinstance(world.ev.store, PostgresStore)
    with world.ev.store.db.reading() as conn:
        return listening_of(world)._others_listen(conn)


def test_a_process_that_is_alone_notifies_nobody(world: World) -> None:
    assert not others_listen(world)


def test_one_that_begins_to_listen_is_notified_from_then_on(world: World, url: str) -> None:
    assert not others_listen(world)
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(MARK)
        assert others_listen(world)


def test_one_that_listens_in_another_database_is_not_notified(world: World) -> None:
    with psycopg.connect(postgres.server_url(), autocommit=True) as conn:
        conn.execute(MARK)
        assert not others_listen(world)


def test_a_process_does_not_notify_itself(world: World, url: str) -> None:
    listening_of(world).listen()
    held = "select count(*) from pg_locks where locktype = 'advisory' and objid = 1"
    while postgres.execute(url, held) == [(0,)]:
        pass
    assert not others_listen(world)
