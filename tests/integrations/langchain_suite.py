"""LangChain's own suites for vector stores and retrievers, run by pytest in a process of its own:
they need plugins that the other tests do without."""

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import VectorStore
from langchain_tests.integration_tests import (
    RetrieversIntegrationTests,
    VectorStoreIntegrationTests,
)

import evervec
from evervec.integrations.langchain import EvervecRetriever, EvervecStore, model_of


class TestStore(VectorStoreIntegrationTests):
    """Documents are embedded when they are added."""

    @pytest.fixture
    def vectorstore(self) -> Iterator[VectorStore]:
        model = DeterministicFakeEmbedding(size=6)
        with evervec.open("memory:", embedder=model_of(model)) as ev:
            yield EvervecStore(ev)


class TestStoreWithWorker(VectorStoreIntegrationTests):
    """A worker embeds the documents, and searches wait for it."""

    @pytest.fixture
    def vectorstore(self) -> Iterator[VectorStore]:
        model = DeterministicFakeEmbedding(size=6)
        with evervec.open("memory:", embedder=model_of(model)) as ev, ev.worker():
            yield EvervecStore(ev, embed=False)


class TestRetriever(RetrieversIntegrationTests):
    @property
    def retriever_constructor(self) -> type[EvervecRetriever]:
        return EvervecRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        ev = evervec.open("memory:", embedder="hashing")
        store = EvervecStore(ev)
        store.add_documents([Document(page_content=f"tea of sort {n}") for n in range(6)])
        return {"store": store}

    @property
    def retriever_query_example(self) -> str:
        return "tea"
