"""The methods of `Evervec` for records: write, read, search."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from evervec.embedding.prepared import Vectors as PreparedVectors
from evervec.errors import InvalidArgument
from evervec.facade.parts import Parts
from evervec.indexes.fields import declare
from evervec.model.bounds import check_limit, check_seq, check_whole
from evervec.model.filters import read_filter
from evervec.model.jobs import Job, Ticket
from evervec.model.ranking import Rescore
from evervec.model.records import ChunkVector, Hits, Record, Records, Vectors, Version
from evervec.queue.ticket_waiter import check_seconds, check_ticket, check_wait
from evervec.records.drafts import (
    check_after,
    check_given,
    check_name,
    existing_id,
    existing_ids,
)
from evervec.records.frames import ArrowStream
from evervec.records.kinds import Kind, typed_record
from evervec.rerankers.base import Reranker
from evervec.search.request import Request, read_request
from evervec.stores.values import Draft

if TYPE_CHECKING:
    from numpy.typing import NDArray


class RecordMethods(Parts):
    """Writes, reads and searches the records of one tenant."""

    # kinds
    def register(self, kind: Kind) -> None:
        """Register a kind in this process; an unregistered kind accepts plain text. Its
        `index_fields` and `rescore` are saved for all processes."""
        if not isinstance(kind, Kind):
            raise InvalidArgument(f"register needs an evervec.Kind, not {type(kind).__name__}")
        if not self.store.read_only:
            if kind.field_types is not None:
                declare(self.store, kind.name, kind.field_types)
            if kind.rescoring is not None:
                self.store.versions.set_rescore(kind.name, kind.rescoring)
        self._kinds[kind.name] = kind
        self._search.forget()

    # writing
    def add(
        self,
        kind: str,
        data: Any,
        *,
        id: str | int | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        weight: float | None = None,
        priority: int = 0,
        delay: float = 0.0,
        max_attempts: int | None = None,
        version: int | None = None,
        created_at: Any = None,
        updated_at: Any = None,
        boxed: bool = False,
        vectors: Vectors | Mapping[str, Any] | None = None,
        wait: float | None = None,
        if_seq: int | None = None,
        conn: Any = None,
    ) -> Ticket:
        """Save a record and enqueue its embedding job, in one transaction. When `add` returns, both
        are durable. `boxed`: the record stays hidden until it is embedded. `vectors`: your own, one
        for each chunk, so that nothing is embedded. `wait`: seconds to wait until it is embedded.
        `version`: only if the record's version is older; `if_seq`: only if the record still has that
        seq, and no newer content of it waits in a box or a row. Otherwise the ticket is not
        `accepted`, and there is nothing to wait for.
        `conn`: your own open transaction, which you commit."""
        options = {
            "id": id, "title": title, "metadata": metadata, "weight": weight,
            "priority": priority, "delay": delay, "max_attempts": max_attempts,
            "version": version, "created_at": created_at, "updated_at": updated_at,
            "boxed": boxed, "vectors": vectors,
        }  # fmt: skip
        check_wait(wait, conn)
        draft = self.draft(kind, data, options)
        draft.if_seq = check_seq(if_seq)
        ticket = self._writer.save(kind, draft, conn)
        if wait is not None and ticket.accepted:
            self.wait(ticket, wait)
        return ticket

    def draft(self, kind: str, data: Any, options: Mapping[str, Any]) -> Draft:
        """A record as `add` would save it, checked and rendered; `options`: the other arguments of
        `add`."""
        return self._writer.draft(kind, data, options)

    def chunks(self, kind: str, data: Any, *, title: str | None = None) -> list[str]:
        """The texts that would be embedded for a record, one for each chunk, for those who make
        the vectors themselves. Each includes the title."""
        return self._writer.chunks(kind, data, {"title": title})

    def add_many(
        self, kind: str, records: Iterable[Any] | ArrowStream, *, conn: Any = None
    ) -> Iterator[Ticket]:
        """Save many records, or the rows of a data frame, as a stream: yields tickets in order, and
        saves one batch per transaction. An invalid record raises `InvalidRecord` with its position, after all records
        before it were saved and their tickets yielded."""
        return self._writer.many(kind, records, conn)

    def delete(
        self,
        kind: str,
        id: str | int,
        *,
        version: int | None = None,
        wait: float | None = None,
        if_seq: int | None = None,
        conn: Any = None,
    ) -> Ticket:
        """Delete a record: searches no longer return it, and its vectors are removed soon after.
        If it did not exist, the ticket is not `accepted`. `version`: delete it only if its version
        is older; an `add` that is not newer is then refused, for as long as deletes are kept.
        `if_seq`: only if the record still has that seq, and no newer content of it waits."""
        check_wait(wait, conn)
        ticket = self._writer.delete(kind, id, conn, version=version, if_seq=if_seq)
        if wait is not None and ticket.accepted:
            self.wait(ticket, wait)
        return ticket

    def delete_where(
        self, filter: Mapping[str, Any], kind: str | None = None, *, dry_run: bool = False
    ) -> int:
        """Delete all records that fit a filter on metadata; returns how many. `dry_run`: only count
        them. A call that was interrupted can be repeated."""
        return self._writer.delete_where(filter, kind, dry_run=dry_run)

    # reading
    def count(self, kind: str | None = None, filter: Mapping[str, Any] | None = None) -> int:
        """The number of records, of a kind or that fit a filter; boxed ones are not counted."""
        check_given(kind=kind)
        return self.store.records.count(self.tenant, kind, read_filter(filter, self.settings))

    def get(self, kind: str, id: str | int) -> Record | None:
        """The current record; None if it does not exist or is boxed."""
        check_name("kind", kind)
        found = self.store.records.get(self.tenant, kind, existing_id(id))
        return None if found is None else typed_record(self._kinds, found)

    def records(
        self,
        kind: str | None = None,
        *,
        embedded: bool | None = None,
        filter: Mapping[str, Any] | None = None,
        after: Record | tuple[str, str] | None = None,
        limit: int = 100,
    ) -> Records:
        """Records ordered by kind and id, starting after `after` (a record, or its kind and id).
        `embedded=False`: only those without current vectors."""
        check_limit(limit)
        wanted = read_filter(filter, self.settings)
        check_given(kind=kind)
        place = check_after(after)
        found = self.store.records.page(
            self.tenant, kind=kind, embedded=embedded, filter=wanted, after=place, limit=limit
        )
        return Records(typed_record(self._kinds, record) for record in found)

    def search(
        self,
        query: str | None = None,
        k: int = 10,
        *,
        vector: Sequence[float] | NDArray[Any] | None = None,
        kind: str | Sequence[str] | None = None,
        mode: str = "hybrid",
        filter: Mapping[str, Any] | None = None,
        after: Ticket | None = None,
        wait: float = 5.0,
        rows: bool = False,
        explain: bool = False,
        min_similarity: float | None = None,
        min_relevance: float | None = None,
        offset: int = 0,
        group_by: str | None = None,
        groups: int = 10,
        diversity: float | None = None,
        fields: Sequence[str] | None = None,
        rerank: bool | str | Reranker | None = None,
        version: str | None = None,
    ) -> Hits:
        """The best records for a query, a vector, or both.

        `mode`: hybrid, semantic or text. `kind`: one or several. `after`: wait up to `wait` seconds
        until that change is in the index. `rows`: set `hit.row` to the current row of an attached
        table; hits whose row is deleted, or now belongs to another tenant, are omitted. `explain`:
        set `hit.explanation`. `min_similarity`, `min_relevance`: omit hits below. `offset`: skip so
        many hits; pages of the same `k` do not overlap while nothing changes. `group_by`: the best
        `k` hits of each of the best `groups` values of a metadata field. `diversity`: 0 to 1, how
        much hits should differ from each other. `fields`: which of title, text, metadata and
        data to return. `rerank`: a reranker, or its name, that orders the best candidates; True: the one of
        the setting `reranker`, which is also used unless False is given. If it fails, or takes
        longer than `rerank_seconds`, `hits.rerank_error` says why. `version`: search the vectors of
        that embedding version, such as one that a migration is building, and only kinds that have
        it.
        """
        request = read_request(
            self.settings, query, k, vector=vector, kind=kind, mode=mode, filter=filter,
            explain=explain, min_similarity=min_similarity, min_relevance=min_relevance,
            offset=offset, group_by=group_by, groups=groups, diversity=diversity, fields=fields,
            rerank=rerank, version=version,
        )  # fmt: skip
        if after is not None:
            self.wait(check_ticket(after), check_seconds("wait", wait))
        hits = self._found(request, fresh=after is not None)
        return self.attachments.with_rows(self.tenant, hits) if rows else hits

    def _found(self, request: Request, *, fresh: bool = False) -> Hits:
        return self.store.searching(lambda: self._search.search(request), fresh=fresh)

    def similar(
        self,
        kind: str,
        id: str | int,
        k: int = 10,
        *,
        filter: Mapping[str, Any] | None = None,
        min_similarity: float | None = None,
        explain: bool = False,
    ) -> Hits:
        """The records of the same kind that are nearest to a record, by the mean of the vectors of
        its chunks. Raises `InvalidArgument` if it does not exist or is not embedded yet."""
        check_whole("k", k, 1, self.settings.most_hits)
        request = read_request(
            self.settings, None, k, vector=self._vectors.mean(kind, existing_id(id)), kind=kind,
            filter=filter, min_similarity=min_similarity, explain=explain,
        )  # fmt: skip
        hits = self._found(replace(request, k=k + 1))  # the record itself is the nearest
        hits[:] = [hit for hit in hits if hit.id != existing_id(id)][:k]
        return hits

    def vectors(self, kind: str, ids: Iterable[str | int]) -> dict[str, list[ChunkVector]]:
        """The vectors of records, by id and in the order of their chunks, in the version that
        serves searches. They are those that searches use: of the last embedded text, which may be
        older than the record's current one (then `start` and `end` are None). Records that do not
        exist, are boxed, or were never embedded are left out."""
        check_name("kind", kind)
        return self._vectors.read(kind, existing_ids(ids))

    def prepare(
        self, query: Any, *, kind: Any = None, mode: Any = "hybrid", version: Any = None
    ) -> PreparedVectors:
        """The vectors that a search for a query will need, made in advance; see
        `embedding.prepared`."""
        request = read_request(self.settings, query, 1, kind=kind, mode=mode, version=version)
        return self._search.prepare(request)

    def wait(self, ticket: Ticket, timeout: float | None = None) -> Job:
        """Wait until a change is in the index. Raises `WaitTimeout` or `JobFailed`."""
        given = self.settings.wait_seconds if timeout is None else timeout
        seconds = check_seconds("timeout", given)
        return self.waiter.wait(self.tenant, ticket, seconds)

    def kinds(self) -> dict[str, Rescore]:
        """The kinds of the tenant's records, and how weight and age change their relevance."""
        found = self.store.versions.collections_of(self.tenant)
        return {c.kind: c.rescore for c in sorted(found, key=lambda c: c.kind)}

    def versions(self, *, all_tenants: bool = False) -> list[Version]:
        """The embedding versions of the tenant's kinds, with counts of its records; `all_tenants`:
        of all kinds, with counts of the whole store."""
        return self._lifecycle.list_versions(None if all_tenants else self.tenant)
