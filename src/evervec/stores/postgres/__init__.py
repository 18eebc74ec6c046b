"""The PostgreSQL store: many machines share one database."""

from evervec.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
