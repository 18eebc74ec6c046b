"""Searches and hits."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from evervec.server.schemas.base import LONGEST_WAIT, MOST_AT_ONCE, Given, Json, Shown
from evervec.server.schemas.records import TicketIn


class SearchIn(Given):
    """A search."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"query": "where is tea grown", "k": 3, "filter": {"topic": "plants"}}]
        }
    )

    query: str = Field(min_length=1)
    k: int = Field(10, ge=1, le=MOST_AT_ONCE)
    kind: str | None = Field(None, min_length=1)
    mode: Literal["hybrid", "semantic", "text"] = "hybrid"
    filter: Json | None = Field(None, examples=[{"topic": "plants", "year": {"gte": 2020}}])
    after: TicketIn | None = Field(None, description="search only when this change is in the index")
    wait: float = Field(5.0, ge=0, le=LONGEST_WAIT, description="seconds to wait for `after`")


class HitOut(Shown):
    """A search result."""

    kind: str
    id: str
    title: str | None
    text: str
    similarity: float | None
    relevance: float
    metadata: Json
    via: str


class HitsOut(Shown):
    """Search results, best first, and how they were found."""

    hits: list[HitOut]
    via: str
    version: str | None
