"""Documents of Haystack as records, and back.

The metadata of a document is the metadata of its record. What else a document may have (a blob,
embeddings) is one JSON text beside it.
"""

from __future__ import annotations

import base64
import json
from array import array
from collections.abc import Mapping
from typing import Any

from haystack import Document
from haystack.dataclasses import ByteStream, SparseEmbedding

from evervec.errors import InvalidRecord
from evervec.model.records import Hit, Record

_PARTS = "_haystack"
_FLOATS = "d"


def record_of(document: Document) -> dict[str, Any]:
    """A record for `add_many`. A document without content is found by its metadata only."""
    if _PARTS in document.meta:
        raise InvalidRecord(f"meta: the name {_PARTS!r} is reserved; give the field another name")
    content = document.content
    parts: dict[str, Any] = {}
    if content is None or not content.strip():
        parts["content"] = content
        content = document.id  # a record needs a text
    if document.blob is not None:
        blob = document.blob
        parts["blob"] = {
            "data": base64.b64encode(blob.data).decode(),
            "meta": blob.meta,
            "mime_type": blob.mime_type,
        }
    if document.embedding is not None:
        packed = array(_FLOATS, document.embedding).tobytes()
        parts["embedding"] = base64.b64encode(packed).decode()
    if document.sparse_embedding is not None:
        parts["sparse_embedding"] = document.sparse_embedding.to_dict()
    kept = {_PARTS: json.dumps(parts, ensure_ascii=False)} if parts else {}
    return {"id": document.id, "text": content, "metadata": document.meta | kept}


def document_of(found: Record | Hit) -> Document:
    """The document of a record, or of a hit with its relevance as score."""
    parts = _read_parts(found.metadata)
    if "blob" in parts:
        data = base64.b64decode(parts["blob"].pop("data"))
        parts["blob"] = ByteStream(data=data, **parts["blob"])
    if "embedding" in parts:
        parts["embedding"] = list(array(_FLOATS, base64.b64decode(parts["embedding"])))
    if "sparse_embedding" in parts:
        parts["sparse_embedding"] = SparseEmbedding.from_dict(parts["sparse_embedding"])
    given = {
        "content": found.text,
        "score": found.relevance if isinstance(found, Hit) else None,
        **parts,
    }
    return Document(id=found.id, meta=meta_of(found.metadata), **given)


def _read_parts(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What a document has beside its metadata; nothing if Haystack did not write it."""
    try:
        found = json.loads(metadata[_PARTS])
    except (KeyError, TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def meta_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a document, from that of its record."""
    return {key: value for key, value in metadata.items() if key != _PARTS}
