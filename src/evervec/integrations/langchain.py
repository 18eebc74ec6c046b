"""LangChain: a vector store and a retriever over evervec.

Documents are records of one kind. An unchanged document is not embedded again, and a search waits
until the changes made through the same object are in the index.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from typing import Any
from uuid import uuid4

from evervec.errors import EvervecError, InvalidArgument
from evervec.integrations.documents import Documents, Plan
from evervec.model.explanations import Explanation
from evervec.model.records import Hit, Record
from evervec.runtime.packages import install_command

try:
    from langchain_core.callbacks import (
        AsyncCallbackManagerForRetrieverRun,
        CallbackManagerForRetrieverRun,
    )
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.vectorstores import VectorStore
    from pydantic import Field, field_validator
except ImportError as error:
    raise EvervecError(
        f"LangChain is not installed: {install_command('evervec[langchain]')}"
    ) from error


_EXPLANATION = "evervec"
"""the name in a found document's metadata"""
_PARTS_EXPLAINED = {field.name for field in fields(Explanation)}


class EvervecStore(VectorStore):
    """The documents of one kind.

    `ev`: what `evervec.open` or `evervec.aopen` returned, or a client of a service; the methods for
    asyncio are native with `aopen` and `AsyncClient`. `mode`: how texts are searched: "semantic",
    "hybrid" or "text". `whole`: return whole documents instead of their best chunks. `embed`: embed
    added documents at once, in this process; otherwise workers do, and searches wait for them for
    up to `wait` seconds. `explain`: add how each relevance was calculated to the metadata, as
    `evervec`.
    """

    def __init__(
        self,
        ev: Any,
        kind: str = "document",
        *,
        mode: str = "semantic",
        whole: bool = False,
        embed: bool = True,
        wait: float = 30.0,
        explain: bool = False,
    ) -> None:
        self._documents = Documents(ev, kind, embed=embed, wait=wait)
        self.kind = kind
        self._mode, self._whole, self._explain = mode, whole, explain

    @property
    def ev(self) -> Any:
        """The store with blocking methods."""
        return self._documents.ev

    @property
    def embeddings(self) -> Embeddings | None:
        """The model, for a store that is opened in this process."""
        local = self._documents.local
        return None if local is None else _Model(local)

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings | None = None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        ev: Any = None,
        **options: Any,
    ) -> EvervecStore:
        """A store with these texts: in `ev`, or in a new one in memory with the given model. `ev` has
        a model already: with it, `embedding` must be None, or what `embeddings` of it returned."""
        if ev is not None and not (embedding is None or _is_model_of(embedding, ev)):
            raise InvalidArgument(
                "`ev` embeds with the model that it was opened with: give None as `embedding`, or open "
                "the store with evervec.open(…, embedder=model_of(embedding))"
            )
        if ev is None:
            from evervec.opening import open

            ev = open("memory:", embedder="auto" if embedding is None else model_of(embedding))
        store = cls(ev, **options)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    # writing
    def add_documents(self, documents: list[Document], **options: Any) -> list[str]:
        """Add or replace documents, by their own ids unless `ids` is given; see `add_texts`."""
        return super().add_documents(documents, **_given(options))

    async def aadd_documents(self, documents: list[Document], **options: Any) -> list[str]:
        return await super().aadd_documents(documents, **_given(options))

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str | None] | list[str] | None = None,
        **_: Any,
    ) -> list[str]:
        """Add or replace documents; an unchanged document costs nothing. An empty text is not saved,
        because nothing could find it, and takes a document of its id away. Returns the ids of all,
        in order."""
        return self._documents.run(self._add(texts, metadatas, ids))

    async def aadd_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str | None] | list[str] | None = None,
        **_: Any,
    ) -> list[str]:
        return await self._documents.arun(self._add(texts, metadatas, ids))

    def _add(
        self,
        texts: Iterable[str],
        metadatas: Sequence[dict[str, Any]] | None,
        ids: Sequence[str | None] | None,
    ) -> Plan[list[str]]:
        records = _records(texts, metadatas, ids)
        tickets = iter(
            (yield from self._documents.add(r for r in records if not _is_empty(r["text"])))
        )
        last = {record["id"]: record for record in records if record["id"] is not None}
        if emptied := [id for id, record in last.items() if _is_empty(record["text"])]:
            yield from self._documents.delete(emptied)
        return [
            (r["id"] or str(uuid4())) if _is_empty(r["text"]) else next(tickets).id for r in records
        ]

    def delete(self, ids: list[str] | None = None, **_: Any) -> bool | None:
        """Delete documents; without `ids`, all."""
        self._documents.run(self._delete(ids))
        return True

    async def adelete(self, ids: list[str] | None = None, **_: Any) -> bool | None:
        await self._documents.arun(self._delete(ids))
        return True

    def _delete(self, ids: list[str] | None) -> Plan[object]:
        return self._documents.clear() if ids is None else self._documents.delete(ids)

    # reading
    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        return list(map(_document_of, self._documents.run(self._documents.get(ids))))

    async def aget_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        return list(map(_document_of, await self._documents.arun(self._documents.get(ids))))

    def find(self, query: str | None, k: int = 4, **options: Any) -> list[tuple[Document, float]]:
        """Documents with their relevance, 0 to 1. `options`: arguments of `Evervec.search`, such as
        `filter`, `mode`, `min_relevance` and `diversity`."""
        return _found(self._documents.run(self._search(query, k, options)))

    async def afind(
        self, query: str | None, k: int = 4, **options: Any
    ) -> list[tuple[Document, float]]:
        """`find`, awaited."""
        return _found(await self._documents.arun(self._search(query, k, options)))

    def _search(self, query: str | None, k: int, options: dict[str, Any]) -> Plan[list[Hit]]:
        options.setdefault("mode", "semantic" if query is None else self._mode)
        options.setdefault("explain", self._explain)
        return self._documents.search(query, k, whole=self._whole, **options)

    def similarity_search(self, query: str, k: int = 4, **options: Any) -> list[Document]:
        return [document for document, _ in self.find(query, k, **options)]

    async def asimilarity_search(self, query: str, k: int = 4, **options: Any) -> list[Document]:
        return [document for document, _ in await self.afind(query, k, **options)]

    def similarity_search_with_score(
        self, query: str, k: int = 4, **options: Any
    ) -> list[tuple[Document, float]]:
        return self.find(query, k, **options)

    async def asimilarity_search_with_score(
        self, query: str, k: int = 4, **options: Any
    ) -> list[tuple[Document, float]]:
        return await self.afind(query, k, **options)

    def _select_relevance_score_fn(self) -> Any:
        return lambda score: min(1.0, max(0.0, score))

    def similarity_search_by_vector(
        self, embedding: list[float], k: int = 4, **options: Any
    ) -> list[Document]:
        return [document for document, _ in self.find(None, k, vector=embedding, **options)]

    async def asimilarity_search_by_vector(
        self, embedding: list[float], k: int = 4, **options: Any
    ) -> list[Document]:
        return [document for document, _ in await self.afind(None, k, vector=embedding, **options)]

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **options: Any
    ) -> list[Document]:
        """Documents that differ from each other; `fetch_k` has no effect, evervec chooses how many
        candidates to compare."""
        return self.similarity_search(query, k, diversity=1.0 - lambda_mult, **options)

    async def amax_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **options: Any
    ) -> list[Document]:
        return await self.asimilarity_search(query, k, diversity=1.0 - lambda_mult, **options)

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        **options: Any,
    ) -> list[Document]:
        return self.similarity_search_by_vector(
            embedding, k, diversity=1.0 - lambda_mult, **options
        )

    async def amax_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        **options: Any,
    ) -> list[Document]:
        return await self.asimilarity_search_by_vector(
            embedding, k, diversity=1.0 - lambda_mult, **options
        )


class EvervecRetriever(BaseRetriever):
    """Retrieves documents of an `EvervecStore`, by default by meaning and by words. `options`:
    further arguments of `Evervec.search`, such as `filter` and `min_relevance`."""

    store: Any
    k: int = 4
    mode: str = "hybrid"
    options: dict[str, Any] = Field(default_factory=dict)

    @field_validator("store")
    @classmethod
    def _check_store(cls, store: Any) -> Any:
        if not isinstance(store, VectorStore):
            raise ValueError(
                f"must be an EvervecStore, not {type(store).__name__}: EvervecRetriever("
                "store=EvervecStore(ev))"
            )
        return store

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **given: Any
    ) -> list[Document]:
        found: list[Document] = self.store.similarity_search(query, **self._asked(given))
        return found

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **given: Any
    ) -> list[Document]:
        found: list[Document] = await self.store.asimilarity_search(query, **self._asked(given))
        return found

    def _asked(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"k": self.k, "mode": self.mode, **self.options, **given}


class _Model(Embeddings):
    """The model of an open store."""

    def __init__(self, ev: Any) -> None:
        self._ev = ev

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        found: list[list[float]] = self._ev.embedder.embed(texts).tolist()
        return found

    def embed_query(self, text: str) -> list[float]:
        found: list[float] = self._ev.provider.embed_query(text, self._ev.tenant).tolist()
        return found


def _is_model_of(embedding: Embeddings, ev: Any) -> bool:
    local = getattr(ev, "sync", ev)
    return isinstance(embedding, _Model) and embedding._ev is local


class _LangChainEmbedder:
    """A LangChain model as an embedder of evervec."""

    name, max_batch = "langchain", 256

    def __init__(self, model: Embeddings, name: str, dimensions: int) -> None:
        self._model = model
        self.model, self.dimensions = name, dimensions

    def embed(self, texts: Sequence[str]) -> Any:
        import numpy as np

        return np.asarray(self._model.embed_documents(list(texts)), dtype=np.float32)

    def embed_query(self, text: str) -> Any:
        import numpy as np

        return np.asarray(self._model.embed_query(text), dtype=np.float32)


def model_of(embedding: Embeddings, name: str | None = None) -> Any:
    """A LangChain model as an embedder, for `evervec.open(embedder=…)`. `name` identifies the model
    in the store; by default its own `model` or `model_name`, else its class."""
    own = getattr(embedding, "model", None) or getattr(embedding, "model_name", None)
    dimensions = len(embedding.embed_query("dimensions"))
    return _LangChainEmbedder(embedding, name or str(own or type(embedding).__name__), dimensions)


def _records(
    texts: Iterable[str],
    metadatas: Sequence[dict[str, Any]] | None,
    ids: Sequence[str | None] | None,
) -> list[dict[str, Any]]:
    listed = list(texts)
    for name, given in (("metadatas", metadatas), ("ids", ids)):
        if given is not None and len(given) != len(listed):
            raise InvalidArgument(
                f"{len(listed)} texts have {len(given)} {name}: give one for each"
            )
    return [
        {
            "id": ids[place] if ids is not None else None,
            "text": text,
            "metadata": _own(metadatas[place]) if metadatas is not None else None,
        }
        for place, text in enumerate(listed)
    ]


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """Without `ids=None`, for which LangChain would ignore the ids of documents."""
    return {name: value for name, value in options.items() if name != "ids" or value is not None}


def _is_empty(text: Any) -> bool:
    return isinstance(text, str) and (not text or text.isspace())


def _own(metadata: dict[str, Any] | None) -> dict[str, Any] | None:
    """The metadata of a document without the explanation that a search added."""
    explained = (metadata or {}).get(_EXPLANATION)
    if not isinstance(explained, dict) or explained.keys() != _PARTS_EXPLAINED:
        return metadata
    return {name: value for name, value in (metadata or {}).items() if name != _EXPLANATION}


def _document_of(record: Record) -> Document:
    return Document(id=record.id, page_content=record.text, metadata=record.metadata)


def _found(hits: Iterable[Hit]) -> list[tuple[Document, float]]:
    """Documents with their relevance."""
    found = []
    for hit in hits:
        metadata = dict(hit.metadata)
        if hit.explanation is not None:
            metadata[_EXPLANATION] = asdict(hit.explanation)
        document = Document(id=hit.id, page_content=hit.text, metadata=metadata)
        found.append((document, hit.relevance))
    return found
