"""What somebody else does to an index, or a restore from a backup: more points than there should be.

Only a repair takes them out, or the next change of their record.
"""

import uuid
from collections.abc import Sequence
from typing import Any

from evervec import Evervec
from evervec.chunking import chunk
from evervec.embedding.registry import chunker_for
from evervec.indexes.base import Held
from evervec.indexes.qdrant import QdrantIndex
from evervec.indexes.qdrant.engine import NewPoint
from evervec.model.records import Change, Point
from explorer.actors import KIND, TEXTS

TWICE = "twice"
"""instead of the name of a text: the same points once more, which only Qdrant's ids allow"""
_FIELDS = (
    "tenant", "kind", "version", "record", "id", "seq", "metadata", "weight", "updated_at", "hash",
    "position", "text",
)  # fmt: skip


def damage(ev: Evervec, id: str, name: str) -> None:
    """Add points of the text with that name to those of a record."""
    index: Any = getattr(ev.index, "_index", ev.index)
    for version in [c.version for c in ev.store.versions.collections() if c.kind == KIND]:
        held = ev.index.held(version, ev.tenant, 0, None)
        records = ev.store.records.found([point.record for point in held])
        mine = [point for point in held if records[point.record].id == id]
        if mine and name == TWICE:
            _add_again(ev, index, version, mine)
        elif mine:
            _add_others(ev, version, id, mine, TEXTS[name])


def _add_again(ev: Evervec, index: QdrantIndex, version: int, mine: Sequence[Held]) -> None:
    engine, name = index._engine, index._collection(version)
    assert name is not None
    there = engine.scroll(name, engine.all(engine.ids(point.key for point in mine)), _FIELDS)
    vectors = ev.embedder.embed([point.payload["text"] for point in there])
    again = [
        NewPoint(str(uuid.UUID(int=number)), vector, point.payload)
        for number, (vector, point) in enumerate(zip(vectors, there, strict=True), 1)
    ]
    engine.update(name, [engine.upsert(again, None, there=False)])


def _add_others(ev: Evervec, version: int, id: str, mine: Sequence[Held], text: str) -> None:
    pieces, texts = chunk(chunker_for(ev.embedder, ev.settings.chunk_tokens), None, text)
    points = [
        Point(piece.hash, len(mine) + place, text, vector)
        for place, (piece, text, vector) in enumerate(
            zip(pieces, texts, ev.embedder.embed(texts), strict=True)
        )
    ]
    kept = {point.hash: place for place, point in enumerate(mine)}
    more = [point for point in points if point.hash not in kept]
    record, seq = mine[0].record, mine[0].seq
    ev.index.apply([Change(record, version, ev.tenant, KIND, id, seq, more, kept)])
