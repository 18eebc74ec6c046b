"""Nodes as records, and back.

The metadata of a node is the metadata of its record, for filters. What else a node has (relationships,
templates, the type) is one JSON text beside it, under the key that other stores of LlamaIndex use.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from llama_index.core.schema import BaseNode, MetadataMode, TextNode
from llama_index.core.vector_stores.utils import metadata_dict_to_node

from evervec.model.records import Vectors

CONTENT, TYPE, ID = "_node_content", "_node_type", "_node_id"
SOURCE = ("document_id", "doc_id", "ref_doc_id")
"""names by which LlamaIndex filters for the source document of nodes"""
NO_SOURCE = "None"
"""how LlamaIndex says that a node has none"""
_RESERVED = frozenset({*SOURCE, CONTENT, TYPE, ID})
_ELSEWHERE = ("text", "text_resource", "embedding", "metadata")
"""parts of a node that are kept as parts of the record"""


def record_of(node: BaseNode, model: str | None) -> dict[str, Any]:
    """A record for `add_many`. The metadata that LlamaIndex embeds with the text is the title,
    which evervec embeds too: a change of it changes the vector. `model`: that of the node's own
    vector."""
    text = node.get_content(metadata_mode=MetadataMode.NONE)
    dumped = node.model_dump(mode="json")
    metadata: dict[str, Any] = dumped["metadata"]
    content = {name: part for name, part in dumped.items() if name not in _ELSEWHERE}
    # Names are kept in their order, and what is not kept as metadata: for filters, an empty list
    # is no value.
    content["metadata"] = {
        key: value if value == [] or key in _RESERVED else None for key, value in metadata.items()
    }
    if not text.strip():
        content["text"] = text
    source = node.ref_doc_id or NO_SOURCE
    record: dict[str, Any] = {
        "id": node.node_id,
        "text": text if text.strip() else node.node_id,  # a record needs a text
        "title": node.get_metadata_str(mode=MetadataMode.EMBED) or None,
        "metadata": {key: value for key, value in metadata.items() if value != []}
        | dict.fromkeys(SOURCE, source)
        | {CONTENT: json.dumps(content, ensure_ascii=False), TYPE: node.class_name()}
        | {ID: node.node_id},
    }
    if node.embedding is not None and model is not None:
        record["vectors"] = Vectors(model, [node.embedding])
    return record


def node_of(id: str, text: str, metadata: Mapping[str, Any]) -> BaseNode:
    """The node of a record; a text node if LlamaIndex did not write the record."""
    try:
        return _restored(text, metadata)
    except (KeyError, TypeError, ValueError, AttributeError):
        return TextNode(id_=id, text=text, metadata=dict(metadata))


def _restored(text: str, metadata: Mapping[str, Any]) -> BaseNode:
    """The node as it was added, with the current text and metadata of its record."""
    content: dict[str, Any] = json.loads(metadata[CONTENT])
    own = {key: value for key, value in metadata.items() if key not in _RESERVED}
    kept = {}
    for key, value in content["metadata"].items():
        if key in own:
            kept[key] = own.pop(key)
        elif value is not None or key in _RESERVED:
            kept[key] = value
    content["metadata"] = kept | own
    shown = {CONTENT: json.dumps(content), TYPE: metadata.get(TYPE)}
    return metadata_dict_to_node(shown, text=content.get("text", text))
