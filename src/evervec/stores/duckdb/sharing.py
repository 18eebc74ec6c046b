"""The vector cache, written in one statement for many vectors."""

from __future__ import annotations

from collections.abc import Mapping

from evervec.stores.duckdb.engine import SQL
from evervec.stores.sql import sharing
from evervec.stores.sql.batches import columns


class Sharing(sharing.Sharing):
    """The part of the store with the state that workers share."""

    def cache(self, model: str, vectors: Mapping[bytes, bytes], most: int) -> None:
        if not vectors:
            return
        rows = [(hash.hex(), vector) for hash, vector in vectors.items()]
        with self.db.writing(durable=False) as conn:
            conn.execute(SQL.add_cached, (model, *columns(rows)))
            conn.execute(SQL.trim_cache, (most,))
