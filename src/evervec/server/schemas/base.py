"""What all shapes share: bodies are checked, answers are made from values of the library.

Answers name each field that they show; what must not leave the service (a job's token) is not
named.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Json = dict[str, Any]
BigInt = Annotated[int, Field(ge=0, lt=1 << 63)]
MOST_AT_ONCE = 1000
LONGEST_WAIT = 300.0
More = Annotated[
    str | None, Field(description="give it to get the next page; null: this is the last")
]


class Given(BaseModel):
    """A body: what is unknown in it is refused, so that a typo is noticed."""

    model_config = ConfigDict(extra="forbid", strict=False)


class Shown(BaseModel):
    """An answer, made from a value of the library."""

    model_config = ConfigDict(from_attributes=True)
