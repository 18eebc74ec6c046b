"""LangChain's indexing API over its own vector store in memory.

It hashes each document, skips those that its record manager knows, and keeps the rest
with their vectors in a dict. There is no queue, no lease, no retry and no full text,
and a new process begins without vectors. Its documentation pairs it with the
SQLRecordManager; the InMemoryRecordManager, it says, is for testing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.indexing import InMemoryRecordManager, index
from langchain_core.vectorstores import InMemoryVectorStore

from benchmarks.made_up import vectors

BATCH = 1000


class PreparedLists(Embeddings):
    """The embedder of no cost in LangChain's form, which is lists of floats."""

    def __init__(self) -> None:
        self._rows = vectors(BATCH).tolist()
        self.texts = 0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.texts += len(texts)
        rows: list[list[float]] = self._rows[: len(texts)]
        return rows

    def embed_query(self, text: str) -> list[float]:
        row: list[float] = self._rows[0]
        return row


class LangChain:
    """Documents whose source is themselves, as one record is to evervec."""

    def __init__(self, record_manager: Any) -> None:
        self.embedder = PreparedLists()
        self._known = record_manager
        self._known.create_schema()
        self._store = InMemoryVectorStore(self.embedder)

    def load(self, documents: Sequence[Document]) -> Mapping[str, object]:
        """How many were added and skipped. Its documentation asks for another hash than the
        default; blake2b is the fastest of those that it offers."""
        return index(
            documents,
            self._known,
            self._store,
            batch_size=BATCH,
            cleanup="incremental",
            source_id_key="source",
            key_encoder="blake2b",
        )


def documents(texts: Sequence[str]) -> list[Document]:
    return [
        Document(page_content=text, metadata={"source": str(place)})
        for place, text in enumerate(texts)
    ]


def has_sql() -> bool:
    """Whether langchain-classic is there, which has the SQLRecordManager."""
    return find_spec("langchain_classic") is not None and find_spec("greenlet") is not None


def over_sql(file: Path | None) -> LangChain:
    """With the SQLRecordManager, on an SQLite file or (its best) on SQLite in memory."""
    indexes = import_module("langchain_classic.indexes")
    url = f"sqlite:///{file}" if file else "sqlite://"
    return LangChain(indexes.SQLRecordManager("bench", db_url=url))


def over_dict() -> LangChain:
    """With the InMemoryRecordManager."""
    return LangChain(InMemoryRecordManager("bench"))
