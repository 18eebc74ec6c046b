"""The retriever of Haystack: a query as text, without an embedder in the pipeline."""

from __future__ import annotations

from typing import Any

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.document_stores.types import FilterPolicy
from haystack.document_stores.types.filter_policy import apply_filter_policy

from evervec.errors import InvalidArgument
from evervec.integrations.documents import Plan
from evervec.integrations.haystack.documents import document_of
from evervec.integrations.haystack.filters import filter_of
from evervec.integrations.haystack.store import EvervecDocumentStore


@component
class EvervecRetriever:
    """Retrieves documents by a text, by default by meaning and by words. Scores are relevances from
    0 to 1.

    `mode`: "hybrid", "semantic" or "text". `whole`: return whole documents; otherwise their content
    is their best chunk. `options`: further arguments of `Evervec.search`, such as `min_relevance`
    and `rerank`.
    """

    def __init__(
        self,
        document_store: EvervecDocumentStore,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        *,
        mode: str = "hybrid",
        whole: bool = True,
        filter_policy: FilterPolicy = FilterPolicy.REPLACE,
        options: dict[str, Any] | None = None,
    ) -> None:
        if not isinstance(document_store, EvervecDocumentStore):
            raise InvalidArgument(
                f"document_store must be an EvervecDocumentStore, not {document_store!r}"
            )
        self.document_store = document_store
        self.filters = filters
        self.top_k = top_k
        self.mode = mode
        self.whole = whole
        self.filter_policy = filter_policy
        self.options = options or {}

    def to_dict(self) -> dict[str, Any]:
        return default_to_dict(
            self,
            document_store=self.document_store.to_dict(),
            filters=self.filters,
            top_k=self.top_k,
            mode=self.mode,
            whole=self.whole,
            filter_policy=self.filter_policy.value,
            options=self.options,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> EvervecRetriever:
        given = data["init_parameters"]
        given["document_store"] = EvervecDocumentStore.from_dict(given["document_store"])
        if "filter_policy" in given:
            given["filter_policy"] = FilterPolicy.from_str(given["filter_policy"])
        found: EvervecRetriever = default_from_dict(cls, data)
        return found

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """The best documents for a query. `filters` replace those of the retriever, or are combined
        with them, by its filter policy."""
        return {"documents": self.document_store.run(self._find(query, filters, top_k))}

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """`run`, awaited."""
        return {"documents": await self.document_store.arun(self._find(query, filters, top_k))}

    def _find(
        self, query: str, filters: dict[str, Any] | None, top_k: int | None
    ) -> Plan[list[Document]]:
        wanted = apply_filter_policy(self.filter_policy, self.filters, filters)
        k = self.top_k if top_k is None else top_k
        if k == 0:  # what Haystack's own retrievers accept
            return []
        found = yield from self.document_store.documents.search(
            query, k, whole=self.whole, mode=self.mode, filter=filter_of(wanted), **self.options,
        )  # fmt: skip
        return [document_of(hit) for hit in found]
