"""The document store of Haystack."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from haystack import Document, default_from_dict, default_to_dict
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.utils import Secret

from evervec.errors import InvalidArgument
from evervec.integrations.documents import Documents, Plan
from evervec.integrations.haystack.documents import document_of, meta_of, record_of
from evervec.integrations.haystack.filters import field_of, filter_of
from evervec.model.filters import matches, parse_filter
from evervec.model.records import Record

T = TypeVar("T")
Filters = dict[str, Any] | None
_ENVIRONMENT = Secret.from_env_var("EVERVEC_KEY", strict=False)


class EvervecDocumentStore:
    """The documents of one kind.

    `store`, `index`, `embedder`, `tenant` and `settings` are the arguments of `evervec.open`, which
    is called when the store is first used. `url` and `key`: a service instead. `ev`: an open store
    or client instead; such a document store cannot be saved with a pipeline, and with
    `evervec.aopen` and `AsyncClient` its methods for asyncio are native. `embed`: embed written
    documents at once, in this process; otherwise workers do, and retrievers wait for them for up to
    `wait` seconds.
    """

    def __init__(
        self,
        store: str | None = None,
        *,
        index: str | None = None,
        embedder: str = "auto",
        tenant: str = "default",
        kind: str = "document",
        url: str | None = None,
        key: Secret | None = _ENVIRONMENT,
        embed: bool = True,
        wait: float = 30.0,
        settings: dict[str, Any] | None = None,
        ev: Any = None,
    ) -> None:
        self._given: dict[str, Any] = {
            "store": store, "index": index, "embedder": embedder, "tenant": tenant, "kind": kind,
            "url": url, "embed": embed, "wait": wait, "settings": settings or {},
        }  # fmt: skip
        self._key, self._ev = key, ev
        self._opened: Documents | None = None
        self._opens = threading.Lock()

    def to_dict(self) -> dict[str, Any]:
        if self._ev is not None:
            raise InvalidArgument(
                "a document store over an open evervec store cannot be saved: give the path or URL "
                "of the store instead of `ev`"
            )
        key = None if self._key is None else self._key.to_dict()
        return default_to_dict(self, **self._given, key=key)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> EvervecDocumentStore:
        given = data.get("init_parameters", {})
        if isinstance(given.get("key"), dict):
            given["key"] = Secret.from_dict(given["key"])
        found: EvervecDocumentStore = default_from_dict(cls, data)
        return found

    @property
    def documents(self) -> Documents:
        """The records of the documents; opens the store."""
        with self._opens:
            if self._opened is None:
                given = self._given
                self._opened = Documents(
                    self._open() if self._ev is None else self._ev,
                    given["kind"], embed=given["embed"], wait=given["wait"],
                )  # fmt: skip
            return self._opened

    def _open(self) -> Any:
        given = self._given
        if given["url"] is not None:
            from evervec.client import Client

            key = None if self._key is None else self._key.resolve_value()
            return Client(given["url"], key)
        from evervec.opening import open

        return open(
            given["store"], index=given["index"], embedder=given["embedder"],
            tenant=given["tenant"], **given["settings"],
        )  # fmt: skip

    def close(self) -> None:
        """Close what this document store opened."""
        with self._opens:
            if self._opened is not None and self._ev is None:
                self._opened.ev.close()
            self._opened = None

    def run(self, plan: Plan[T]) -> T:
        """Make the calls of a plan."""
        return self.documents.run(plan)

    async def arun(self, plan: Plan[T]) -> T:
        """`run`, awaited."""
        opened = self._opened
        if opened is None:
            opened = await asyncio.to_thread(lambda: self.documents)
        return await opened.arun(plan)

    # writing
    def write_documents(
        self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE
    ) -> int:
        """Write documents; an unchanged document costs nothing. By default documents with known
        ids replace the old ones. With `FAIL` and `SKIP`, ids are looked up before writing. Returns
        how many were written."""
        return self.run(self._write(_checked(documents), policy))

    async def write_documents_async(
        self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE
    ) -> int:
        return await self.arun(self._write(_checked(documents), policy))

    def _write(self, documents: Sequence[Document], policy: DuplicatePolicy) -> Plan[int]:
        if policy in (DuplicatePolicy.FAIL, DuplicatePolicy.SKIP):
            fresh = {document.id: document for document in reversed(documents)}
            known = yield from self.documents.get(fresh)
            if policy is DuplicatePolicy.FAIL and (known or len(fresh) < len(documents)):
                ids = [document.id for document in documents]
                double = known[0].id if known else next(id for id in ids if ids.count(id) > 1)
                raise DuplicateDocumentError(
                    f"a document with the id {double!r} exists: nothing was written"
                )
            for record in known:
                del fresh[record.id]
            documents = list(reversed(fresh.values()))
        tickets = yield from self.documents.add(record_of(document) for document in documents)
        return len(tickets)

    def delete_documents(self, document_ids: list[str]) -> None:
        self.run(self._delete(document_ids))

    async def delete_documents_async(self, document_ids: list[str]) -> None:
        await self.arun(self._delete(document_ids))

    def _delete(self, ids: list[str]) -> Plan[None]:
        yield from self.documents.delete(ids)

    def delete_all_documents(self, recreate_index: bool = False) -> None:
        """Delete the documents of the kind. `recreate_index` changes nothing: the index is kept in
        step with the records, and other kinds share it."""
        self.run(self._delete_all())

    async def delete_all_documents_async(self, recreate_index: bool = False) -> None:
        await self.arun(self._delete_all())

    def _delete_all(self) -> Plan[None]:
        yield from self.documents.clear()

    def delete_by_filter(self, filters: dict[str, Any]) -> int:
        """Delete the documents that fit; returns how many."""
        return self.run(self._delete_where(filters))

    async def delete_by_filter_async(self, filters: dict[str, Any]) -> int:
        return await self.arun(self._delete_where(filters))

    def _delete_where(self, filters: Filters) -> Plan[int]:
        return (yield from self.documents.delete_where(filter_of(filters) or {}))

    def update_by_filter(self, filters: dict[str, Any], meta: dict[str, Any]) -> int:
        """Set fields of the metadata of the documents that fit; returns how many. A document that
        others change at the same time keeps their change."""
        return self.run(self._update(filters, meta))

    async def update_by_filter_async(self, filters: dict[str, Any], meta: dict[str, Any]) -> int:
        return await self.arun(self._update(filters, meta))

    def _update(self, filters: Filters, meta: dict[str, Any]) -> Plan[int]:
        filter, count = filter_of(filters), 0
        found = yield from self.documents.all(filter)
        while found:
            changed = []
            for record in found:
                if (yield from self.documents.change(record, record.metadata | meta)):
                    count += 1
                else:
                    changed.append(record.id)
            conditions = parse_filter(filter)
            current = yield from self.documents.get(changed)
            found = [record for record in current if matches(record.metadata, conditions)]
        yield from self.documents.process()
        return count

    # reading
    def count_documents(self) -> int:
        return self.run(self._count(None))

    async def count_documents_async(self) -> int:
        return await self.arun(self._count(None))

    def count_documents_by_filter(self, filters: dict[str, Any]) -> int:
        return self.run(self._count(filters))

    async def count_documents_by_filter_async(self, filters: dict[str, Any]) -> int:
        return await self.arun(self._count(filters))

    def _count(self, filters: Filters) -> Plan[int]:
        return (yield from self.documents.count(filter_of(filters)))

    def filter_documents(self, filters: Filters = None) -> list[Document]:
        """The documents that fit, in the order in which they were written."""
        return self.run(self._filter(filters))

    async def filter_documents_async(self, filters: Filters = None) -> list[Document]:
        return await self.arun(self._filter(filters))

    def _filter(self, filters: Filters) -> Plan[list[Document]]:
        found = yield from self.documents.all(filter_of(filters))
        return [document_of(record) for record in sorted(found, key=lambda record: record.seq)]

    # metadata; these read all documents that fit
    def get_metadata_fields_info(self) -> dict[str, dict[str, str]]:
        """The types of the metadata fields: boolean, int, float or keyword."""
        return self.run(self._fields())

    async def get_metadata_fields_info_async(self) -> dict[str, dict[str, str]]:
        return await self.arun(self._fields())

    def _fields(self) -> Plan[dict[str, dict[str, str]]]:
        types: dict[str, dict[str, str]] = {}
        for record in (yield from self.documents.all()):
            for name, value in meta_of(record.metadata).items():
                if value is not None:
                    types[name] = {"type": _TYPES.get(type(value), "keyword")}
        return types

    def get_metadata_field_min_max(self, metadata_field: str) -> dict[str, Any]:
        """The smallest and the largest value of a field; None if it has none that can be
        compared."""
        return self.run(self._min_max(metadata_field))

    async def get_metadata_field_min_max_async(self, metadata_field: str) -> dict[str, Any]:
        return await self.arun(self._min_max(metadata_field))

    def _min_max(self, name: str) -> Plan[dict[str, Any]]:
        values = [v for v in (yield from self._values(name)) if isinstance(v, (int, float, str))]
        if not values or len({isinstance(value, str) for value in values}) > 1:
            return {"min": None, "max": None}
        return {"min": min(values), "max": max(values)}

    def get_metadata_field_unique_values(
        self,
        metadata_field: str,
        search_term: str | None = None,
        from_: int = 0,
        size: int = 10,
        filters: Filters = None,
    ) -> tuple[list[Any], int]:
        """A page of the different values of a field that contain a term, ordered as text, and how
        many there are."""
        return self.run(self._unique(metadata_field, search_term, from_, size, filters))

    async def get_metadata_field_unique_values_async(
        self,
        metadata_field: str,
        search_term: str | None = None,
        from_: int = 0,
        size: int = 10,
        filters: Filters = None,
    ) -> tuple[list[Any], int]:
        return await self.arun(self._unique(metadata_field, search_term, from_, size, filters))

    def _unique(
        self, name: str, term: str | None, start: int, size: int, filters: Filters
    ) -> Plan[tuple[list[Any], int]]:
        found = _different((yield from self._values(name, filters)))
        if term:
            found = [value for value in found if term.lower() in str(value).lower()]
        found.sort(key=lambda value: (str(value), type(value).__name__))
        return found[start : start + size], len(found)

    def count_unique_metadata_by_filter(
        self, filters: Filters, metadata_fields: list[str]
    ) -> dict[str, int]:
        """How many different values fields have in the documents that fit."""
        return self.run(self._count_unique(filters, metadata_fields))

    async def count_unique_metadata_by_filter_async(
        self, filters: Filters, metadata_fields: list[str]
    ) -> dict[str, int]:
        return await self.arun(self._count_unique(filters, metadata_fields))

    def _count_unique(self, filters: Filters, names: list[str]) -> Plan[dict[str, int]]:
        found = yield from self.documents.all(filter_of(filters))
        return {field_of(name): len(_different(_values(found, name))) for name in names}

    def _values(self, name: str, filters: Filters = None) -> Plan[list[Any]]:
        return _values((yield from self.documents.all(filter_of(filters))), name)


_TYPES = {bool: "boolean", int: "int", float: "float"}


def _checked(documents: Any) -> list[Document]:
    if not isinstance(documents, Iterable) or isinstance(documents, str):
        raise InvalidArgument(f"write_documents needs a list of documents, not {documents!r}")
    listed = list(documents)
    for document in listed:
        if not isinstance(document, Document):
            raise InvalidArgument(f"write_documents needs documents, not {document!r}")
    return listed


def _values(records: Iterable[Record], name: str) -> list[Any]:
    """The values of a field, except nulls."""
    found = (record.metadata.get(field_of(name)) for record in records)
    return [value for value in found if value is not None]


def _different(values: Iterable[Any]) -> list[Any]:
    """Each value once; 1, 1.0, True and "1" differ."""
    seen = {(type(v).__name__, json.dumps(v, sort_keys=True)): v for v in values}
    return list(seen.values())
