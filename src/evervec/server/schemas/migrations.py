"""Migrations to another model."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from evervec.server.schemas.base import Given, Shown


class MigrationIn(Given):
    """The model to migrate to."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"embedder": "openai:text-embedding-3-large"}]}
    )

    embedder: str = Field(min_length=1, description="its name, as for `evervec.open`")
    version: str | None = Field(None, description="name of the new version")
    kind: str | None = Field(None, description="only this kind")
    switch: bool = Field(False, description="switch automatically when it is complete and verified")


class StepIn(Given):
    """Options of a step."""

    force: bool = Field(False, description="switch even if the new version is incomplete")


class MigrationOut(Shown):
    """The progress of a migration."""

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
