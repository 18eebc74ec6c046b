"""The PostgreSQL store: many machines share one database.

`store` composes the parts of `evervec.stores.sql`. Claims are kept apart from jobs (`claim_functions.sql`,
`leases`), so that claims wait for nobody; `partitions` and `replicas` serve large stores.
"""

from evervec.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
