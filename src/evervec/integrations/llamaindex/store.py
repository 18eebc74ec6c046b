"""The vector store of LlamaIndex."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)
from pydantic import PrivateAttr

from evervec.chunking import SizeChunker
from evervec.errors import InvalidArgument
from evervec.integrations.documents import Documents, Plan
from evervec.integrations.llamaindex.filters import Filter, combine, filter_of
from evervec.integrations.llamaindex.nodes import ID, SOURCE, node_of, record_of
from evervec.model.filters import matches, parse_filter
from evervec.model.records import Hit, Record
from evervec.records.kinds import Kind

_WHOLE = 16_000_000
"""characters of a chunk: LlamaIndex has cut the texts already"""
_CANDIDATES = 4
"""how many times the requested nodes are ranked again with `alpha`"""
_MOST_CANDIDATES = 1000
_MODES = {
    VectorStoreQueryMode.DEFAULT: "semantic",
    VectorStoreQueryMode.MMR: "semantic",
    VectorStoreQueryMode.SPARSE: "text",
    VectorStoreQueryMode.TEXT_SEARCH: "text",
    VectorStoreQueryMode.HYBRID: "hybrid",
}
_BOTH_WAYS = 0.5
"""LlamaIndex's default for `mmr_threshold`"""


class EvervecVectorStore(BasePydanticVectorStore):
    """The nodes of one kind, each with one vector.

    `ev`: what `evervec.open` or `evervec.aopen` returned, or a client of a service; the methods for
    asyncio are native with `aopen` and `AsyncClient`. `kind` must have no other records: it is
    registered with a chunker that leaves texts whole. Nodes with a vector keep it; `model` is the
    model that made it, by default the one of the store. Nodes without one are embedded by evervec.
    `is_embedding_query=False`: queries are embedded by evervec too. `embed`: process added nodes at
    once, in this process; otherwise workers do, and queries wait for them for up to `wait` seconds.
    """

    stores_text: bool = True
    _documents: Documents = PrivateAttr()
    _model: str | None = PrivateAttr()

    def __init__(
        self,
        ev: Any,
        kind: str = "node",
        *,
        model: str | None = None,
        is_embedding_query: bool = True,
        embed: bool = True,
        wait: float = 30.0,
    ) -> None:
        super().__init__(is_embedding_query=is_embedding_query)  # type: ignore[call-arg]
        self._documents = Documents(ev, kind, embed=embed, wait=wait)
        local = self._documents.local
        if local is not None:
            local.register(Kind(kind, chunker=SizeChunker(_WHOLE)))
        self._model = model or (None if local is None else local.embedder.model)

    @classmethod
    def class_name(cls) -> str:
        return "EvervecVectorStore"

    @property
    def client(self) -> Any:
        """The store with blocking methods."""
        return self._documents.ev

    @property
    def documents(self) -> Documents:
        """The records of the nodes."""
        return self._documents

    # writing
    def add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        """Add or replace nodes; an unchanged node costs nothing."""
        return self._documents.run(self._add(nodes))

    async def async_add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        return await self._documents.arun(self._add(nodes))

    def _add(self, nodes: Sequence[BaseNode]) -> Plan[list[str]]:
        if self._model is None and any(node.embedding is not None for node in nodes):
            raise InvalidArgument(
                "the model that made the vectors of these nodes is not known: give its name as "
                "EvervecVectorStore(…, model=…)"
            )
        tickets = yield from self._documents.add([record_of(node, self._model) for node in nodes])
        return [ticket.id for ticket in tickets]

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        """Delete the nodes of a document."""
        self._documents.run(self._documents.delete_where({SOURCE[-1]: ref_doc_id}))

    async def adelete(self, ref_doc_id: str, **_: Any) -> None:
        await self._documents.arun(self._documents.delete_where({SOURCE[-1]: ref_doc_id}))

    def delete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **_: Any,
    ) -> None:
        """Delete nodes by id, by filter, or those that fit both."""
        self._documents.run(self._delete(node_ids, filters))

    async def adelete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **_: Any,
    ) -> None:
        await self._documents.arun(self._delete(node_ids, filters))

    def _delete(self, ids: list[str] | None, filters: MetadataFilters | None) -> Plan[None]:
        filter = filter_of(filters)
        if filter is not None and ids is None:
            yield from self._documents.delete_where(filter)
        elif ids is None:
            raise InvalidArgument(
                "delete_nodes needs node_ids or filters; to delete all nodes, use clear"
            )
        else:
            found = ids if filter is None else [r.id for r in (yield from self._some(ids, filter))]
            yield from self._documents.delete(found)

    def clear(self) -> None:
        """Delete all nodes of the kind."""
        self._documents.run(self._documents.clear())

    async def aclear(self) -> None:
        await self._documents.arun(self._documents.clear())

    # reading
    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Nodes by id, by filter, or those that fit both; without either, all."""
        return self._documents.run(self._get(node_ids, filters))

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        return await self._documents.arun(self._get(node_ids, filters))

    def _get(self, ids: list[str] | None, filters: MetadataFilters | None) -> Plan[list[BaseNode]]:
        filter = filter_of(filters)
        if ids is None:
            found = yield from self._documents.all(filter)
        else:
            found = yield from self._some(ids, filter)
        return [node_of(record.id, record.text, record.metadata) for record in found]

    def _some(self, ids: list[str], filter: Filter | None) -> Plan[list[Record]]:
        """Those of the records that exist and fit a filter."""
        found, conditions = (yield from self._documents.get(ids)), parse_filter(filter)
        return [record for record in found if matches(record.metadata, conditions)]

    def query(self, query: VectorStoreQuery, **options: Any) -> VectorStoreQueryResult:
        """The best nodes. Similarities are cosines in the modes `default` and `mmr`, otherwise
        relevances from 0 to 1. `options`: arguments of `Evervec.search`, such as `rerank`."""
        return self._documents.run(self._query(query, options))

    async def aquery(self, query: VectorStoreQuery, **options: Any) -> VectorStoreQueryResult:
        return await self._documents.arun(self._query(query, options))

    def _query(
        self, query: VectorStoreQuery, options: dict[str, Any]
    ) -> Plan[VectorStoreQueryResult]:
        mode, k = _mode(query), query.similarity_top_k
        threshold = options.pop("mmr_threshold", query.mmr_threshold)
        if query.mode == VectorStoreQueryMode.MMR:  # it may be a text
            options["diversity"] = 1.0 - (_BOTH_WAYS if threshold is None else threshold)
        text = query.query_str if mode != "semantic" or query.query_embedding is None else None
        vector = None if mode == "text" else query.query_embedding
        filter = combine(filter_of(query.filters), _chosen(query))
        alpha = query.alpha if mode == "hybrid" else None
        if query.mode == VectorStoreQueryMode.HYBRID and query.hybrid_top_k is not None:
            k = query.hybrid_top_k
        if alpha is not None:
            options["explain"] = True
        found = yield from self._documents.search(
            text, k if alpha is None else max(k, min(_CANDIDATES * k, _MOST_CANDIDATES)),
            vector=vector, mode=mode, filter=filter, **options,
        )  # fmt: skip
        scored = [(_score(hit) if alpha is None else _weighed(hit, alpha), hit) for hit in found]
        if alpha is not None:
            scored.sort(key=lambda pair: -pair[0])
        return VectorStoreQueryResult(
            nodes=[node_of(hit.id, hit.text, hit.metadata) for _, hit in scored[:k]],
            similarities=[score for score, _ in scored[:k]],
            ids=[hit.id for _, hit in scored[:k]],
        )


def _mode(query: VectorStoreQuery) -> str:
    """The mode of a search. `alpha` 1 asks for vectors alone, and 0 for words alone."""
    mode = _MODES.get(query.mode)
    if mode is None:
        known, given = ", ".join(mode.value for mode in _MODES), getattr(query.mode, "value", None)
        raise InvalidArgument(f"unknown mode {given or query.mode!r}; choose one of {known}")
    if mode == "hybrid" and query.alpha is not None:
        if not 0.0 <= query.alpha <= 1.0:
            raise InvalidArgument(f"alpha must be a number from 0 to 1, not {query.alpha!r}")
        return {0.0: "text", 1.0: "semantic"}.get(query.alpha, mode)
    return mode


def _chosen(query: VectorStoreQuery) -> Filter | None:
    """The filter for the ids of nodes and documents that a query names. LlamaIndex asks a store
    that has the texts with an empty list, if all nodes are wanted."""
    found: Filter = {}
    if query.node_ids:
        found[ID] = query.node_ids
    if query.doc_ids:
        found[SOURCE[-1]] = query.doc_ids
    return found or None


def _score(hit: Hit) -> float:
    """The relevance; the cosine of a record that points away from the query, as other stores have."""
    return hit.relevance or min(hit.similarity or 0.0, 0.0)


def _weighed(hit: Hit, alpha: float) -> float:
    """What vectors and words say of a hit, by their shares."""
    assert hit.explanation is not None
    return alpha * hit.explanation.meaning + (1.0 - alpha) * hit.explanation.words
