"""The library's methods over HTTP, with the same values and errors."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any

from evervec.client.connection import Connection, error_of, read, record_path, to_json
from evervec.client.operations import RemoteMigration, RemoteQueue, job_of
from evervec.errors import (
    EvervecError,
    InvalidArgument,
    InvalidRecord,
    JobFailed,
    StoreError,
    WaitTimeout,
)
from evervec.model.bounds import MOST_VECTORS
from evervec.model.jobs import Job, Ticket
from evervec.model.records import ChunkVector, Hit, Hits, Record, Version
from evervec.model.reports import Usage, VerifyReport
from evervec.records.drafts import existing_ids, read_envelope, record_id

_LINES, _BYTES = 1000, 4 << 20
"""maximum lines and bytes in one request of `add_many`"""
_NDJSON = {"Content-Type": "application/x-ndjson"}


class Client(AbstractContextManager["Client"]):
    """A client of a service, with the methods of `Evervec`.

    `tenant`: the tenant to use with a platform admin's key. Requests are retried up to `retries`
    times after network errors, rate limits and restarts of the service.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        tenant: str | None = None,
        timeout: float = 30.0,
        retries: int = 6,
    ) -> None:
        self._connection = Connection(url, key, tenant, timeout, retries)
        self.queue = RemoteQueue(self._connection)

    def __repr__(self) -> str:
        return f"Client({self._connection.url!r})"

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

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
        wait: float | None = None,
        if_seq: int | None = None,
    ) -> Ticket:
        """Save a record and enqueue its embedding job; when `add` returns, both are durable.
        `if_seq`: only if the record still has that seq."""
        options = {
            "id": record_id(id), "title": title, "metadata": metadata, "weight": weight,
            "priority": priority, "delay": delay, "max_attempts": max_attempts,
            "version": version, "created_at": created_at, "updated_at": updated_at,
            "boxed": boxed,
        }  # fmt: skip
        headers = _headers(wait, if_seq)
        if version is not None or if_seq is not None:
            # without this key, a retry would conflict with the first request
            headers["Idempotency-Key"] = uuid.uuid4().hex
        body = _body(kind, data, options)
        answered = self._connection.ask(
            "POST", "/v1/records", json_body=body, headers=headers, waits=wait or 0.0
        ).json()
        return _received(answered, wait)

    def add_many(self, kind: str, records: Iterable[Any]) -> Iterator[Ticket]:
        """Save many records as a stream: yields tickets in order. An invalid record raises
        `InvalidRecord` with its position, after all records before it were saved and their tickets
        yielded."""
        source, position = iter(records), 0
        while batch := list(islice(source, _LINES)):
            for lines in _portions(kind, batch):
                yield from self._add_lines(lines, position)
                position += len(lines)

    def _add_lines(self, lines: list[bytes], position: int) -> Iterator[Ticket]:
        answered = self._connection.ask(
            "POST", "/v1/records/batch", content=b"\n".join(lines), headers=_NDJSON
        )
        count = 0
        for line in answered.content.splitlines():
            found = json.loads(line)
            if "status" in found:
                error = error_of(found)
                raise _placed(error, position + (found.get("position") or count))
            yield read(Ticket, found)
            count += 1
        if count < len(lines):
            raise StoreError(
                "the service closed the connection in the middle of a batch: records with tickets "
                "are saved, add the others again"
            )

    def delete(
        self, kind: str, id: str | int, *, wait: float | None = None, if_seq: int | None = None
    ) -> Ticket:
        """Delete a record: searches no longer return it. If it did not exist, the ticket is not
        `accepted`."""
        answered = self._connection.find(
            "DELETE", record_path(kind, id), headers=_headers(wait, if_seq), waits=wait or 0.0
        )
        if answered is None:
            return Ticket(kind, str(id), 0, 0, accepted=False, is_new=False, enqueued=False)
        return _received(answered.json(), wait)

    def delete_where(
        self, filter: Mapping[str, Any], kind: str | None = None, *, dry_run: bool = False
    ) -> int:
        """Delete all records that fit a filter on metadata; returns how many. `dry_run`: only count
        them."""
        body = {"filter": filter, "kind": kind, "dry_run": dry_run}
        found: int = self._connection.ask("POST", "/v1/records/delete", json_body=body).json()[
            "count"
        ]
        return found

    # reading
    def count(self, kind: str | None = None, filter: Mapping[str, Any] | None = None) -> int:
        """The number of records, of a kind or that fit a filter."""
        body = {"filter": filter, "kind": kind}
        found: int = self._connection.ask("POST", "/v1/records/count", json_body=body).json()[
            "count"
        ]
        return found

    def get(self, kind: str, id: str | int) -> Record | None:
        """The current record; None if it does not exist or is boxed."""
        found = self._connection.find("GET", record_path(kind, id))
        return None if found is None else read(Record, found.json())

    def records(
        self,
        kind: str | None = None,
        *,
        embedded: bool | None = None,
        filter: Mapping[str, Any] | None = None,
        limit: int = 100,
    ) -> list[Record]:
        """Records ordered by kind and id."""
        found = self._connection.items(
            "/v1/records",
            "records",
            limit,
            kind=kind,
            embedded=None if embedded is None else str(embedded).lower(),
            filter=None if filter is None else to_json(filter).decode(),
        )
        return read(list[Record], found)

    def search(
        self,
        query: str | None = None,
        k: int = 10,
        *,
        vector: Sequence[float] | None = None,
        kind: str | Sequence[str] | None = None,
        mode: str = "hybrid",
        filter: Mapping[str, Any] | None = None,
        after: Ticket | None = None,
        wait: float = 5.0,
        explain: bool = False,
        min_similarity: float | None = None,
        min_relevance: float | None = None,
        offset: int = 0,
        group_by: str | None = None,
        groups: int = 10,
        diversity: float | None = None,
        fields: Sequence[str] | None = None,
        rerank: bool | None = None,
    ) -> Hits:
        """The best records for a query, a vector, or both; with `after`, the result includes that
        change. The arguments are those of `Evervec.search`; `rerank`: whether to use the service's
        own reranker."""
        body = {
            "query": query, "k": k, "vector": None if vector is None else list(map(float, vector)),
            "kind": kind, "mode": mode, "filter": filter,
            "after": None if after is None else _shown(after), "wait": wait, "explain": explain,
            "min_similarity": min_similarity, "min_relevance": min_relevance, "offset": offset,
            "group_by": group_by, "groups": groups, "diversity": diversity, "fields": fields,
            "rerank": rerank,
        }  # fmt: skip
        return _hits(self._connection.ask("POST", "/v1/search", json_body=body, waits=wait).json())

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
        """The records of the same kind that are nearest to a record."""
        body = {
            "kind": kind, "id": str(id), "k": k, "filter": filter,
            "min_similarity": min_similarity, "explain": explain,
        }  # fmt: skip
        return _hits(self._connection.ask("POST", "/v1/similar", json_body=body).json())

    def vectors(self, kind: str, ids: Iterable[str | int]) -> dict[str, list[ChunkVector]]:
        """The vectors of records by id, as `Evervec.vectors` returns them."""
        import numpy as np

        found: dict[str, list[ChunkVector]] = {}
        wanted = list(dict.fromkeys(existing_ids(ids)))
        while wanted:
            body = {"kind": kind, "ids": wanted[:MOST_VECTORS]}
            answered = self._connection.ask("POST", "/v1/vectors", json_body=body).json()
            for id, chunks in answered["vectors"].items():
                found[id] = [
                    ChunkVector(**{**c, "vector": np.array(c["vector"], np.float32)})
                    for c in chunks
                ]
            wanted = answered["left"] + wanted[MOST_VECTORS:]
        return found

    def wait(self, ticket: Ticket, timeout: float = 30.0) -> Job:
        """Wait until a change is in the index. Raises `WaitTimeout` or `JobFailed`."""
        body = {"ticket": _shown(ticket), "wait": timeout}
        answered = self._connection.ask("POST", "/v1/wait", json_body=body, waits=timeout)
        return job_of(answered.json())

    def versions(self) -> list[Version]:
        """The embedding versions of the kinds that the key may see."""
        found = self._connection.ask("GET", "/v1/versions").json()
        return read(list[Version], found["versions"])

    def usage(self) -> Usage:
        """The usage of the key's tenant, including today's, and its limits."""
        return self._connection.get(Usage, "/v1/usage")

    def migrate(
        self,
        embedder: str,
        *,
        version: str | None = None,
        kind: str | None = None,
        switch: bool = False,
    ) -> RemoteMigration:
        """Migrate to another model, given by name, without downtime."""
        return RemoteMigration.begin(
            self._connection, embedder=embedder, version=version, kind=kind, switch=switch
        )

    def verify(self, repair: bool = False, *, quick: bool = False) -> VerifyReport:
        """Compare the index with the records; `repair` fixes faults, `quick` does not compare the
        records' texts."""
        body = {"repair": repair, "quick": quick}
        answered = self._connection.ask("POST", "/v1/verify", json_body=body)
        return read(VerifyReport, answered.json())


def _headers(wait: float | None, if_seq: int | None) -> dict[str, str]:
    headers = {}
    if wait is not None:
        headers["Prefer"] = f"wait={max(0, round(wait))}"
    if if_seq is not None:
        headers["If-Match"] = f'"{if_seq}"'
    return headers


def _body(kind: str, data: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    content = {"text": data} if isinstance(data, str) else {"data": data}
    return {"kind": kind, **content, **{k: v for k, v in options.items() if v is not None}}


def _portions(kind: str, batch: list[Any]) -> Iterator[list[bytes]]:
    """Records as lines, in portions that fit into a request. Each gets its id before it is sent."""
    lines: list[bytes] = []
    size = 0
    for item in batch:
        text, options = (item, {}) if hasattr(item, "model_dump") else read_envelope(item)
        line = to_json(_body(kind, text, {**options, "id": record_id(options.get("id"))}))
        if lines and size + len(line) > _BYTES:
            yield lines
            lines, size = [], 0
        lines.append(line)
        size += len(line)
    if lines:
        yield lines


def _received(answered: dict[str, Any], wait: float | None) -> Ticket:
    """The ticket of a change; raises if it failed or the wait timed out."""
    status, error = answered.pop("status", None), answered.pop("error", None)
    ticket = read(Ticket, answered)
    if status == "failed":
        raise JobFailed(
            f"{ticket.kind} {ticket.id!r} could not be embedded: {error}; fix the cause, then "
            f"client.queue.retry({ticket.job_id})"
        )
    if wait is not None and status == "pending":
        raise WaitTimeout(
            f"{ticket.kind} {ticket.id!r} was not embedded within {wait:g} s; it is saved and "
            "waiting"
        )
    return ticket


def _hits(found: dict[str, Any]) -> Hits:
    return Hits(
        read(list[Hit], found["hits"]), via=found["via"], version=found["version"],
        reranked=found.get("reranked", False), rerank_error=found.get("rerank_error"),
    )  # fmt: skip


def _shown(ticket: Ticket) -> dict[str, Any]:
    return {name: getattr(ticket, name) for name in Ticket.__slots__}


def _placed(error: EvervecError, position: int) -> EvervecError:
    """The error of a rejected record, with its position in the input of `add_many`."""
    if not isinstance(error, InvalidArgument | InvalidRecord):
        return error
    reason = str(error).partition(": ")[2]  # after the position within the request
    return InvalidRecord(reason or str(error), position=position)
