"""The table with the points of one collection."""

from __future__ import annotations

import math

from evervec.stores.named import Queries

SQL = Queries.read("evervec.indexes.pgvector", "queries.sql")


def table_name(version: int) -> str:
    return f"points_{version}"


class PointsTable:
    """A table as it was last read, and what is cached about it."""

    def __init__(self, version: int, type: str, kind: str | None = None, parts: int = 0) -> None:
        self.version = version
        self.type = type
        self.kind = kind
        """None for a version that the store no longer has"""
        self.name = table_name(version)
        self.parts = parts
        """partitions, by a hash of the record; 0: it is one table"""
        self.hnsw = False
        self.looked = -math.inf
        self.large: dict[str, tuple[float, bool]] = {}
        """for each tenant when it was last counted, and whether it is large enough for HNSW"""

    @property
    def tables(self) -> list[str]:
        """The names of the tables that hold rows."""
        return [f"{self.name}_{part}" for part in range(self.parts)] or [self.name]

    def creation(self) -> list[str]:
        """The statements that create it."""
        partitioned = " partition by hash (record)" if self.parts else ""
        parts = (
            self.sql(SQL.create_part, part=str(part), parts=str(self.parts))
            for part in range(self.parts)
        )
        return [self.sql(SQL.create_table, partitioned=partitioned), *parts]

    def sql(self, query: str, **parts: str) -> str:
        query = query.replace("{points}", f"evervec.{self.name}").replace("{name}", self.name)
        query = query.replace("{type}", self.type)
        for part, text in parts.items():
            query = query.replace("{" + part + "}", text)
        return query
