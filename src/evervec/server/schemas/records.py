"""Records, and the tickets of their changes."""

from __future__ import annotations

from datetime import datetime

from pydantic import ConfigDict, Field

from evervec.model.jobs import Status
from evervec.records.drafts import HIGHEST_PRIORITY, LONGEST_ID, LONGEST_NAME
from evervec.server.schemas.base import LONGEST_WAIT, BigInt, Given, Json, More, Shown


class RecordIn(Given):
    """A record to add: its text, or the object of a typed kind as `data`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "kind": "note",
                    "id": "tea",
                    "text": "Tea is grown on hills in Assam.",
                    "metadata": {"topic": "plants"},
                }
            ]
        }
    )

    kind: str = Field(min_length=1)
    text: str | None = None
    data: Json | None = Field(None, description="instead of `text`, for a kind with a model")
    id: str | int | None = Field(None, description="default: a new UUIDv7")
    title: str | None = None
    metadata: Json | None = None
    weight: float | None = Field(None, ge=0, le=1)
    priority: int = Field(0, ge=-HIGHEST_PRIORITY, le=HIGHEST_PRIORITY)
    delay: float = Field(0.0, ge=0, lt=1e10, allow_inf_nan=False)
    max_attempts: int | None = Field(None, ge=1, lt=1 << 31)
    version: int | None = Field(None, ge=-(1 << 63), lt=1 << 63)
    created_at: datetime | None = None
    updated_at: datetime | None = None
    boxed: bool = Field(False, description="hidden until it is embedded")


class TicketIn(Given):
    """A ticket from adding or deleting a record."""

    kind: str = Field(min_length=1, max_length=LONGEST_NAME)
    id: str = Field(min_length=1, max_length=LONGEST_ID)
    job_id: BigInt
    seq: BigInt
    accepted: bool = True
    is_new: bool = True
    enqueued: bool = True
    status: Status | None = None
    error: str | None = None


class TicketOut(Shown):
    """The receipt of a change, to wait for it or to search after it."""

    kind: str
    id: str
    job_id: int
    seq: int
    accepted: bool = Field(description="false: `version` was not newer, so nothing was written")
    is_new: bool
    enqueued: bool = Field(description="false: the record is unchanged, so there is nothing to do")
    status: Status | None = Field(None, description="status of the change when the wait ended")
    error: str | None = Field(None, description="error of a failed change")


class WaitIn(Given):
    """A change to wait for."""

    ticket: TicketIn
    wait: float = Field(30.0, ge=0, le=LONGEST_WAIT)


class RecordOut(Shown):
    """A record."""

    tenant: str
    kind: str
    id: str
    seq: int
    title: str | None
    text: str
    metadata: Json
    weight: float
    created_at: datetime
    updated_at: datetime
    embedded: bool = Field(description="its latest change is in the index")


class RecordsOut(Shown):
    """A page of records."""

    records: list[RecordOut]
    cursor: More
