"""The vectors of records."""

from __future__ import annotations

from collections.abc import Sequence

import orjson
from pydantic import ConfigDict, Field
from starlette.responses import Response

from evervec.facade import Evervec
from evervec.model.bounds import MOST_VECTORS
from evervec.model.deadlines import check
from evervec.model.records import ChunkVector
from evervec.records.drafts import check_name, existing_ids
from evervec.search.vectors import VectorReader
from evervec.server.answers import Given, Items, Shown
from evervec.server.router import Routes
from evervec.server.view import KindReaderView

router = Routes("search")

_DIGITS = 14
"""characters of a number in JSON"""
_MOST_PAGES = 5
"""how many times as long as a usual response the vectors of one record may be"""


class VectorsIn(Given):
    """Records whose vectors are wanted."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"kind": "note", "ids": ["tea", "water"]}]}
    )

    kind: str = Field(min_length=1)
    ids: Items[str | int] = Field(min_length=1, max_length=MOST_VECTORS)


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
    check_name("kind", body.kind)
    return await view.run(_answer, view.ev, body.kind, existing_ids(body.ids))


def _answer(ev: Evervec, kind: str, ids: Sequence[str]) -> Response:
    """The vectors of as many records as fit into a page, and of at least one. They are encoded one
    by one, from the arrays: as numbers of Python they would take ten times the memory."""
    usual = int(ev.settings.server_page_mb * 1e6) // _DIGITS
    reader = VectorReader(ev.store, ev.index, ev.tenant)
    found, left = reader.read_within(kind, ids, usual, _MOST_PAGES * usual)
    records = []
    for id, chunks in found.items():
        records.append(b"%s:[%s]" % (orjson.dumps(id), b",".join(map(_encoded, chunks))))
    body = b'{"vectors":{%s},"left":%s}' % (b",".join(records), orjson.dumps(left))
    return Response(body, media_type="application/json")


def _encoded(chunk: ChunkVector) -> bytes:
    check()
    vector = chunk.vector if chunk.vector.flags.c_contiguous else chunk.vector.copy()
    shown = {
        "position": chunk.position, "start": chunk.start, "end": chunk.end, "vector": vector
    }  # fmt: skip
    return orjson.dumps(shown, option=orjson.OPT_SERIALIZE_NUMPY)
