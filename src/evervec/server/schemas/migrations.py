"""The change to another model, step by step."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from evervec.server.schemas.base import Given, Shown


class MigrationIn(Given):
    """Which model to change to."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"embedder": "openai:text-embedding-3-large"}]}
    )

    embedder: str = Field(min_length=1, description="by its name, as `evervec.open` takes it")
    version: str | None = Field(None, description="what to call the new version")
    kind: str | None = Field(None, description="only this kind")
    switch: bool = Field(False, description="by itself, once it is complete and checked")


class StepIn(Given):
    """How to take a step."""

    force: bool = Field(False, description="switch, whatever the new version lacks")


class MigrationOut(Shown):
    """How far a change of the model has come."""

    version: str
    state: str
    kinds: list[str]
    records: int
    current: int
    pending: int
    failed: int
    behind: int
    enqueued: bool
    switches_by_itself: bool
