"""The retriever of LlamaIndex, over any records of evervec."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.vector_stores.types import MetadataFilters

from evervec.errors import InvalidArgument
from evervec.integrations.documents import Documents, Plan
from evervec.integrations.llamaindex.filters import combine, filter_of
from evervec.integrations.llamaindex.nodes import node_of
from evervec.integrations.llamaindex.store import EvervecVectorStore


class EvervecRetriever(BaseRetriever):
    """Retrieves records by a text, by default by meaning and by words. They may come from anywhere:
    LlamaIndex, `ev.add`, attached tables.

    `source`: an `EvervecVectorStore`, or what `evervec.open` or `evervec.aopen` returned, or a
    client of a service. `kind`: one or several, by default all; a vector store has its own. `whole`:
    return whole records instead of their best chunks. `options`: further arguments of
    `Evervec.search`, such as `filter`, `min_relevance` and `rerank`.
    """

    def __init__(
        self,
        source: Any,
        kind: str | Sequence[str] | None = None,
        *,
        similarity_top_k: int = 10,
        mode: str = "hybrid",
        filters: MetadataFilters | None = None,
        whole: bool = False,
        options: dict[str, Any] | None = None,
        callback_manager: CallbackManager | None = None,
        **others: Any,
    ) -> None:
        super().__init__(callback_manager=callback_manager, **others)
        if isinstance(source, EvervecVectorStore):
            if kind is not None:
                raise InvalidArgument("a vector store has one kind: leave out `kind`")
            self._documents = source.documents
        else:
            self._documents = Documents(source, kind, embed=False)
        self._top_k, self._mode, self._whole = similarity_top_k, mode, whole
        self._options = dict(options or {})
        self._options["filter"] = combine(filter_of(filters), self._options.get("filter"))

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self._documents.run(self._find(query_bundle))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await self._documents.arun(self._find(query_bundle))

    def _find(self, query: QueryBundle) -> Plan[list[NodeWithScore]]:
        hits = yield from self._documents.search(
            query.query_str, self._top_k, whole=self._whole, mode=self._mode, **self._options
        )
        return [
            NodeWithScore(node=node_of(hit.id, hit.text, hit.metadata), score=hit.relevance)
            for hit in hits
        ]
