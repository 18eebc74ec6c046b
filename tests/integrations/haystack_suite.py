"""Haystack's own suites for document stores, run by pytest in a process of its own: they need a plugin
for asyncio that the other tests do without."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from haystack import Document
from haystack.testing.document_store import (
    CountDocumentsByFilterTest,
    CountUniqueMetadataByFilterTest,
    DocumentStoreBaseExtendedTests,
    FilterableDocsFixtureMixin,
    GetMetadataFieldMinMaxTest,
    GetMetadataFieldsInfoTest,
    GetMetadataFieldUniqueValuesTest,
)
from haystack.testing.document_store_async import (
    CountDocumentsAsyncTest,
    CountDocumentsByFilterAsyncTest,
    CountUniqueMetadataByFilterAsyncTest,
    DeleteAllAsyncTest,
    DeleteByFilterAsyncTest,
    DeleteDocumentsAsyncTest,
    FilterDocumentsAsyncTest,
    GetMetadataFieldMinMaxAsyncTest,
    GetMetadataFieldsInfoAsyncTest,
    GetMetadataFieldUniqueValuesAsyncTest,
    UpdateByFilterAsyncTest,
    WriteDocumentsAsyncTest,
)

import evervec
from evervec.integrations.haystack import EvervecDocumentStore

DOCUMENT = Document(content="by default, a document replaces another of the same id")


class TestStore(
    CountDocumentsByFilterTest,
    CountUniqueMetadataByFilterTest,
    DocumentStoreBaseExtendedTests,
    GetMetadataFieldMinMaxTest,
    GetMetadataFieldsInfoTest,
    GetMetadataFieldUniqueValuesTest,
):
    @pytest.fixture
    def document_store(self) -> Iterator[EvervecDocumentStore]:
        store = EvervecDocumentStore("memory:", embedder="hashing")
        yield store
        store.close()

    def test_write_documents(self, document_store: Any) -> None:
        """The suite leaves this one to the store."""
        assert document_store.write_documents([DOCUMENT]) == 1
        assert document_store.write_documents([DOCUMENT]) == 1
        self.assert_documents_are_equal(document_store.filter_documents(), [DOCUMENT])


class AsyncTests(
    CountDocumentsAsyncTest,
    CountDocumentsByFilterAsyncTest,
    CountUniqueMetadataByFilterAsyncTest,
    DeleteAllAsyncTest,
    DeleteByFilterAsyncTest,
    DeleteDocumentsAsyncTest,
    FilterDocumentsAsyncTest,
    GetMetadataFieldMinMaxAsyncTest,
    GetMetadataFieldsInfoAsyncTest,
    GetMetadataFieldUniqueValuesAsyncTest,
    UpdateByFilterAsyncTest,
    WriteDocumentsAsyncTest,
    FilterableDocsFixtureMixin,
):
    @pytest.mark.asyncio
    async def test_write_documents_async(self, document_store: Any) -> None:
        """The suite leaves this one to the store."""
        assert await document_store.write_documents_async([DOCUMENT]) == 1
        assert await document_store.write_documents_async([DOCUMENT]) == 1
        found = await document_store.filter_documents_async()
        self.assert_documents_are_equal(found, [DOCUMENT])


class TestStoreInThreads(AsyncTests):
    @pytest.fixture
    def document_store(self) -> Iterator[EvervecDocumentStore]:
        store = EvervecDocumentStore("memory:", embedder="hashing")
        yield store
        store.close()


class TestAsyncStore(AsyncTests):
    @pytest_asyncio.fixture
    async def document_store(self) -> AsyncIterator[EvervecDocumentStore]:
        async with evervec.aopen("memory:", embedder="hashing") as ev:
            yield EvervecDocumentStore(ev=ev)
