"""The answers of tools: clipped to what an assistant can read, with a note that says so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from evervec.model.records import Hit, Record

LONGEST_TEXT = 20_000
"""characters of a record's text in one answer"""
_LONGEST_CHUNK = 2_000
_LONGEST_PREVIEW = 200
_LONGEST_TITLE = 300
_LARGEST_METADATA = 4_000
_CLIPPED = "texts that end with … are clipped: call get for all of a record"


class HitOut(BaseModel):
    """A record that fits the query, with its best passage."""

    kind: str
    id: str
    title: str | None
    text: str = Field(description="the passage that fits best")
    relevance: float = Field(description="0 to 1; hits are ordered by it")
    similarity: float | None = Field(description="cosine; null if only words matched")
    metadata: dict[str, Any]

    @classmethod
    def of(cls, hit: Hit) -> HitOut:
        similarity = None if hit.similarity is None else round(hit.similarity, 4)
        return cls(
            kind=hit.kind, id=hit.id, title=clip_title(hit.title),
            text=clip(hit.text, _LONGEST_CHUNK), relevance=round(hit.relevance, 4),
            similarity=similarity, metadata=clip_metadata(hit.metadata),
        )  # fmt: skip


class HitsOut(BaseModel):
    """Records that fit the query, best first."""

    hits: list[HitOut]
    via: str = Field(description="hybrid, semantic or text: how they were found")
    note: str | None = None


class RememberedOut(BaseModel):
    """What became of a record to remember."""

    kind: str
    id: str
    saved: bool = Field(description="it is durable")
    changed: bool = Field(description="false: it was saved before, with the same content")
    searchable: bool = Field(description="searches by meaning find this version now")
    note: str


class RecordOut(BaseModel):
    """A record as it is now."""

    kind: str
    id: str
    title: str | None
    text: str
    metadata: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    searchable: bool = Field(description="searches by meaning find this version now")

    @classmethod
    def of(cls, record: Record, offset: int = 0) -> RecordOut:
        return cls(
            kind=record.kind, id=record.id, title=clip_title(record.title),
            text=record.text[offset : offset + LONGEST_TEXT],
            metadata=clip_metadata(record.metadata), created_at=record.created_at,
            updated_at=record.updated_at, searchable=record.embedded,
        )  # fmt: skip


class GotOut(BaseModel):
    """A record, if it exists."""

    found: bool
    record: RecordOut | None = None
    note: str | None = None


class PreviewOut(BaseModel):
    """A record in a list."""

    kind: str
    id: str
    title: str | None
    text: str = Field(description="its beginning")
    updated_at: datetime

    @classmethod
    def of(cls, record: Record) -> PreviewOut:
        return cls(
            kind=record.kind, id=record.id, title=clip_title(record.title),
            text=clip(record.text, _LONGEST_PREVIEW), updated_at=record.updated_at,
        )  # fmt: skip


class Place(BaseModel):
    """A record in the order of kinds and ids."""

    kind: str
    id: str


class ListOut(BaseModel):
    """Records ordered by kind and id."""

    records: list[PreviewOut]
    after: Place | None = Field(None, description="where the next page starts; null: no more")
    note: str | None = None


class ForgottenOut(BaseModel):
    """What became of a record to forget."""

    kind: str
    id: str
    forgotten: bool = Field(description="false: there was no such record")
    erased: bool = Field(description="its vectors are deleted too")
    note: str


class KindOut(BaseModel):
    """A kind of records."""

    kind: str
    records: int


class StatusOut(BaseModel):
    """The records, and the work that waits."""

    kinds: list[KindOut]
    can_write: bool
    waiting: int | None = Field(description="changes that are not searchable by meaning yet")
    failed: int | None = Field(description="records that could not be embedded")
    oldest_waiting_seconds: float | None = None
    paused: str | None = Field(description="why nothing is embedded now; null: it goes on")
    note: str | None = None


def clip(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def clip_title(title: str | None) -> str | None:
    return None if title is None else clip(title, _LONGEST_TITLE)


def clip_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that fit; the value of any other is `…`, and beyond the limit it is left out."""
    left = _LARGEST_METADATA
    kept: dict[str, Any] = {}
    for name, value in metadata.items():
        plain = value is None or isinstance(value, int | float)
        # there may be thousands of numbers, which have the same length in both
        text = repr(value) if plain else json.dumps(value, default=str)
        size = len(name) + len(text)
        if size > left:
            size, value = len(name) + 3, "…"  # noqa: PLW2901
        if size > left:
            break
        left -= size
        kept[name] = value
    return kept


def clipped_note(*answers: HitOut | PreviewOut) -> str | None:
    return _CLIPPED if any(answer.text.endswith("…") for answer in answers) else None


def rest_note(record: Record, offset: int) -> str | None:
    """How to read the rest of a text that is longer than an answer."""
    size, end = len(record.text), min(offset + LONGEST_TEXT, len(record.text))
    if offset >= size > 0:
        return f"the text has {size} characters: give a smaller offset"
    if end < size:
        return f"characters {offset} to {end} of {size}: call get with offset={end} for the rest"
    return None
