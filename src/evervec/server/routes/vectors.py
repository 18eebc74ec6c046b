"""The vectors of records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ConfigDict, Field
from starlette.responses import Response

from evervec.facade import Evervec
from evervec.model.bounds import MOST_VECTORS
from evervec.model.records import ChunkVector
from evervec.server.access import KindReaderView
from evervec.server.answers import Given, Shown, answer
from evervec.server.router import Routes

router = Routes("search")

_PORTION = 16
_DIGITS = 20
"""characters of a number in JSON"""


class VectorsIn(Given):
    """Records whose vectors are wanted."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"kind": "note", "ids": ["tea", "water"]}]}
    )

    kind: str = Field(min_length=1)
    ids: list[str | int] = Field(min_length=1, max_length=MOST_VECTORS)


class ChunkVectorOut(Shown):
    """A chunk of a record and its vector."""

    position: int = Field(description="of the chunk in the record, from 0")
    start: int | None = Field(
        description="where the chunk starts in the record's text; null if the record changed since"
    )
    end: int | None
    vector: list[float] = Field(description="of length one")


class VectorsOut(Shown):
    """The vectors of records, by id."""

    vectors: dict[str, list[ChunkVectorOut]] = Field(
        description="records that do not exist or were never embedded are left out"
    )
    left: list[str] = Field(
        description="ids that did not fit into this response: request them again"
    )


@router.on("POST /v1/vectors", "Get the vectors of records", VectorsOut, 415)
async def get_vectors(view: KindReaderView, body: VectorsIn) -> Response:
    """Of the version that serves searches, one for each chunk. They are those that searches use:
    of the last embedded text, which may be older than the record's current one."""
    view.check_kind(body.kind)
    most = int(view.ev.settings.server_page_mb * 1e6)
    return await view.run(_answer, view.ev, body.kind, list(map(str, body.ids)), most)


def _answer(ev: Evervec, kind: str, ids: Sequence[str], most: int) -> Response:
    """The vectors of as many records as fit into `most` characters, and of at least one portion."""
    found: dict[str, Any] = {}
    size = start = 0
    while start < len(ids) and size < most:
        for id, chunks in ev.vectors(kind, ids[start : start + _PORTION]).items():
            found[id] = [_shown(chunk) for chunk in chunks]
            size += _DIGITS * sum(chunk.vector.size for chunk in chunks)
        start += _PORTION
    return answer(VectorsOut, {"vectors": found, "left": ids[start:]})


def _shown(chunk: ChunkVector) -> dict[str, Any]:
    return {
        "position": chunk.position, "start": chunk.start, "end": chunk.end,
        "vector": chunk.vector.tolist(),
    }  # fmt: skip
