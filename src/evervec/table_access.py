"""Opens the tables of a database without opening a store for work: to plan, or to attach them in a
schema migration. Like `opening`, it knows the adapters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from evervec.errors import InvalidArgument
from evervec.opening import needing_extra, open_source
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.stores.location import sqlite_path, store_url
from evervec.stores.sql.connections import driver_connection, is_of
from evervec.tables.source import Source
from evervec.tables.tables import Tables
from evervec.telemetry.visible import without_secrets


def join_tables(conn: Any) -> Tables:
    """The attached tables of a database, within the caller's own transaction: attaching and
    detaching commit or roll back with it. The store's own tables are created in it if they are
    missing, and no embedder is needed.

    `conn`: a connection of sqlite3 or psycopg 3, or a SQLAlchemy or Django connection over one.
    """
    settings = Settings.load({})
    raw = driver_connection(conn)
    store: Store
    if is_of(raw, "psycopg"):
        from evervec.stores.postgres.joined import JoinedStore as JoinedPostgres

        store = JoinedPostgres(conn, settings)
    else:
        from evervec.stores.sqlite.joined import JoinedStore as JoinedSqlite

        store = JoinedSqlite(conn, settings)
    return Tables(open_source(store), store, settings)


@contextmanager
def reading_tables(given: Any, settings: Settings) -> Iterator[tuple[Source, Store]]:
    """The tables of a database and its store, to plan without changing anything. If the database
    has no store yet, an empty one in memory stands for it."""
    from evervec.stores.sqlite import SqliteStore

    if path := sqlite_path(given):
        from evervec.stores.sqlite.connections import Connections
        from evervec.stores.sqlite.schema import SCHEMA
        from evervec.tables.sqlite import SqliteSource

        with closing(Connections(path, settings.busy_seconds, read_only=True)) as file:
            with file.reading() as conn:
                known = SCHEMA.found(conn) > 0
            at = path if known else None
            with closing(SqliteStore(at, settings, read_only=known)) as store:
                yield SqliteSource(file), store
    elif store_url(given).startswith(("postgresql://", "postgres://")):
        with needing_extra("a PostgreSQL store", "postgres"):
            from evervec.stores.postgres import PostgresStore
            from evervec.stores.postgres.connections import Connections as Pool
            from evervec.stores.postgres.schema import SCHEMA as POSTGRES_SCHEMA
            from evervec.tables.postgres import PostgresSource
        with closing(Pool(store_url(given), settings)) as pool:
            with pool.reading() as session:
                current = POSTGRES_SCHEMA.found(session) == POSTGRES_SCHEMA.latest
            made = PostgresStore(pool.url, settings) if current else SqliteStore(None, settings)
            with closing(made) as store:
                yield PostgresSource(pool), store
    else:
        raise InvalidArgument(
            f"{without_secrets(store_url(given))} cannot attach tables: use SQLite or PostgreSQL"
        )
