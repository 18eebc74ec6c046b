"""The PostgreSQL store: many machines on one database."""

from evervec.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
