"""Base classes: request bodies are validated, responses are built from values of the library.

Responses list each field that they show, so that fields that must not leave the service (a job's
token) are left out.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Json = dict[str, Any]
BigInt = Annotated[int, Field(ge=0, lt=1 << 63)]
MOST_AT_ONCE = 1000
LONGEST_WAIT = 300.0
More = Annotated[
    str | None, Field(description="pass it to get the next page; null: this is the last page")
]


class Given(BaseModel):
    """A request body; unknown fields are rejected, to catch typos."""

    model_config = ConfigDict(extra="forbid", strict=False)


class Shown(BaseModel):
    """A response body, built from a value of the library."""

    model_config = ConfigDict(from_attributes=True)
