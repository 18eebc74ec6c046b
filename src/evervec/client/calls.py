"""The library's methods over HTTP, with the same values and errors, for both clients: each yields its
requests, and a client sends them (see `Call`)."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evervec.client.batch import Batch, body_of
from evervec.client.connection import Call, error_of, read, record_path, to_json
from evervec.client.observation import ObservationCalls
from evervec.client.operations import MigrationCalls, job_of
from evervec.errors import (
    EvervecError,
    InvalidArgument,
    InvalidRecord,
    JobFailed,
    StoreError,
    WaitTimeout,
)
from evervec.model.basics import make_cursor
from evervec.model.bounds import MOST_VECTORS, check_seq
from evervec.model.filters import as_json
from evervec.model.findings import VerifyReport
from evervec.model.jobs import Job, Ticket
from evervec.model.records import ChunkVector, Hit, Hits, Record, Records, Vectors, Version
from evervec.model.usage import Usage
from evervec.queue.ticket_waiter import check_seconds, check_ticket, check_wait
from evervec.records.drafts import (
    check_after,
    existing_id,
    existing_ids,
    record_id,
)

_NDJSON = {"Content-Type": "application/x-ndjson"}


class Calls(ObservationCalls):
    """The calls of a client, with the methods of `Evervec`."""

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
    ) -> Call[Ticket]:
        """Save a record and enqueue its embedding job; when `add` returns, both are durable.
        `vectors`: your own, one for each chunk. `if_seq`: only if the record still has that seq."""
        options = {
            "id": record_id(id), "title": title, "metadata": metadata, "weight": weight,
            "priority": priority, "delay": delay, "max_attempts": max_attempts,
            "version": version, "created_at": created_at, "updated_at": updated_at,
            "boxed": boxed, "vectors": vectors,
        }  # fmt: skip
        headers = _headers(wait, if_seq)
        if version is not None or if_seq is not None:
            # without this key, a retry would conflict with the first request
            headers["Idempotency-Key"] = uuid.uuid4().hex
        body = body_of(kind, data, options)
        try:
            answered = yield from self._service.ask(
                "POST", "/v1/records", json_body=body, headers=headers, waits=wait or 0.0
            )
        except EvervecError as error:
            return _refused(error, kind, options["id"], 412)
        return _received(answered.json(), wait)

    def add_lines(self, batch: Batch) -> Call[tuple[list[Ticket], EvervecError | None]]:
        """Save the records of a batch: the tickets of those that were saved, and the error of the
        one after them."""
        lines, begin = batch.lines, batch.position
        batch.sent()
        if not lines:
            return [], batch.error
        answered = yield from self._service.ask(
            "POST", "/v1/records/batch", content=b"\n".join(lines), headers=_NDJSON
        )
        tickets: list[Ticket] = []
        for line in answered.content.splitlines():
            found = json.loads(line)
            if "status" in found:
                position = begin + (found.get("position") or len(tickets))
                return tickets, _placed(error_of(found), position)
            tickets.append(read(Ticket, found))
        if len(tickets) < len(lines):
            return tickets, StoreError(
                "the service closed the connection in the middle of a batch: records with tickets "
                "are saved, add the others again"
            )
        return tickets, batch.error

    def delete(
        self,
        kind: str,
        id: str | int,
        *,
        version: int | None = None,
        wait: float | None = None,
        if_seq: int | None = None,
    ) -> Call[Ticket]:
        """Delete a record: searches no longer return it. If it did not exist, the ticket is not
        `accepted`. `version`: only if the record's version is older."""
        try:
            answered = yield from self._service.ask(
                "DELETE", record_path(kind, id), params={"version": version},
                headers=_headers(wait, if_seq), waits=wait or 0.0,
            )  # fmt: skip
        except EvervecError as error:
            return _refused(error, kind, id, 404, 412)
        return _received(answered.json(), wait)

    def delete_where(
        self, filter: Mapping[str, Any], kind: str | None = None, *, dry_run: bool = False
    ) -> Call[int]:
        """Delete all records that fit a filter on metadata; returns how many. `dry_run`: only count
        them."""
        body = {"filter": as_json(filter), "kind": kind, "dry_run": dry_run}
        answered = yield from self._service.ask("POST", "/v1/records/delete", json_body=body)
        return int(answered.json()["count"])

    # reading
    def count(self, kind: str | None = None, filter: Mapping[str, Any] | None = None) -> Call[int]:
        """The number of records, of a kind or that fit a filter."""
        body = {"filter": as_json(filter), "kind": kind}
        answered = yield from self._service.ask("POST", "/v1/records/count", json_body=body)
        return int(answered.json()["count"])

    def get(self, kind: str, id: str | int) -> Call[Record | None]:
        """The current record; None if it does not exist or is boxed."""
        found = yield from self._service.find("GET", record_path(kind, id))
        return None if found is None else read(Record, found.json())

    def records(
        self,
        kind: str | None = None,
        *,
        embedded: bool | None = None,
        filter: Mapping[str, Any] | None = None,
        after: Record | tuple[str, str] | None = None,
        limit: int = 100,
    ) -> Call[Records]:
        """Records ordered by kind and id, starting after `after` (a record, or its kind and id)."""
        which, cursor = _which(kind, embedded, filter), _cursor(after)
        found = yield from self._service.items("/v1/records", "records", limit, cursor, **which)
        return Records(read(list[Record], found))

    def record_page(
        self,
        cursor: str | None,
        kind: str | None = None,
        *,
        embedded: bool | None = None,
        filter: Mapping[str, Any] | None = None,
        after: Record | tuple[str, str] | None = None,
        limit: int = 100,
    ) -> Call[tuple[list[Record], str | None]]:
        """A page of `records`, and the cursor of the next; None after the last."""
        which, cursor = _which(kind, embedded, filter), cursor or _cursor(after)
        page, following = yield from self._service.page("/v1/records", limit, cursor, **which)
        return read(list[Record], page["records"]), following

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
        version: str | None = None,
    ) -> Call[Hits]:
        """The best records for a query, a vector, or both; with `after`, the result includes that
        change. The arguments are those of `Evervec.search`; `rerank`: whether to use the service's
        own reranker."""
        body = {
            "query": query, "k": k, "vector": None if vector is None else _numbers(vector),
            "kind": kind, "mode": mode, "filter": as_json(filter),
            "after": None if after is None else _shown(check_ticket(after)),
            "wait": check_seconds("wait", wait), "explain": explain,
            "min_similarity": min_similarity, "min_relevance": min_relevance, "offset": offset,
            "group_by": group_by, "groups": groups, "diversity": diversity,
            "fields": [fields] if isinstance(fields, str) else fields,
            "rerank": rerank, "version": version,
        }  # fmt: skip
        found = yield from self._service.ask("POST", "/v1/search", json_body=body, waits=wait)
        return _hits(found.json())

    def similar(
        self,
        kind: str,
        id: str | int,
        k: int = 10,
        *,
        filter: Mapping[str, Any] | None = None,
        min_similarity: float | None = None,
        explain: bool = False,
    ) -> Call[Hits]:
        """The records of the same kind that are nearest to a record."""
        body = {
            "kind": kind, "id": existing_id(id), "k": k, "filter": as_json(filter),
            "min_similarity": min_similarity, "explain": explain,
        }  # fmt: skip
        found = yield from self._service.ask("POST", "/v1/similar", json_body=body)
        return _hits(found.json())

    def vectors(self, kind: str, ids: Iterable[str | int]) -> Call[dict[str, list[ChunkVector]]]:
        """The vectors of records by id, as `Evervec.vectors` returns them."""
        import numpy as np

        found: dict[str, list[ChunkVector]] = {}
        wanted = list(dict.fromkeys(existing_ids(ids)))
        while wanted:
            body = {"kind": kind, "ids": wanted[:MOST_VECTORS]}
            answered = (yield from self._service.ask("POST", "/v1/vectors", json_body=body)).json()
            for id, chunks in answered["vectors"].items():
                found[id] = [
                    ChunkVector(**{**c, "vector": np.array(c["vector"], np.float32)})
                    for c in chunks
                ]
            wanted = answered["left"] + wanted[MOST_VECTORS:]
        return found

    def wait(self, ticket: Ticket, timeout: float = 30.0) -> Call[Job]:
        """Wait until a change is in the index. Raises `WaitTimeout` or `JobFailed`."""
        body = {"ticket": _shown(ticket), "wait": check_seconds("timeout", timeout)}
        answered = yield from self._service.ask("POST", "/v1/wait", json_body=body, waits=timeout)
        return job_of(answered.json())

    def versions(self) -> Call[list[Version]]:
        """The embedding versions of the kinds that the key may see."""
        found = yield from self._service.ask("GET", "/v1/versions")
        return read(list[Version], found.json()["versions"])

    def usage(self) -> Call[Usage]:
        """The usage of the key's tenant, including today's, and its limits."""
        return self._service.get(Usage, "/v1/usage")

    def migrate(
        self,
        embedder: str,
        *,
        version: str | None = None,
        kind: str | None = None,
        switch: bool = False,
    ) -> Call[MigrationCalls]:
        """Migrate to another model, given by name, without downtime."""
        return MigrationCalls.begin(
            self._service, embedder=embedder, version=version, kind=kind, switch=switch
        )

    def verify(
        self,
        repair: bool = False,
        *,
        quick: bool = False,
        kind: str | None = None,
        faults: Iterable[str] | None = None,
    ) -> Call[VerifyReport]:
        """Compare the index with the records; `repair` fixes faults, `quick` does not compare the
        records' texts. `kind`: check only this kind; `faults`: repair only records with one of
        these."""
        chosen = None if faults is None else list(faults)
        body = {"repair": repair, "quick": quick, "kind": kind, "faults": chosen}
        answered = yield from self._service.ask("POST", "/v1/verify", json_body=body)
        return read(VerifyReport, answered.json())


def _headers(wait: float | None, if_seq: int | None) -> dict[str, str]:
    headers = {}
    check_wait(wait)
    if wait is not None:
        headers["Prefer"] = f"wait={math.ceil(wait)}"
    if check_seq(if_seq) is not None:
        headers["If-Match"] = f'"{if_seq}"'
    return headers


def _cursor(after: Record | tuple[str, str] | None) -> str | None:
    place = check_after(after)
    return None if place is None else make_cursor(*place)


def _which(
    kind: str | None, embedded: bool | None, filter: Mapping[str, Any] | None
) -> dict[str, Any]:
    return {
        "kind": kind,
        "embedded": None if embedded is None else str(embedded).lower(),
        "filter": None if filter is None else to_json(as_json(filter)).decode(),
    }


def _numbers(vector: Any) -> list[float]:
    try:
        numbers = list(vector)
        if not any(isinstance(number, str | bytes | bool) for number in numbers):
            return list(map(float, numbers))
    except (TypeError, ValueError):
        pass
    raise InvalidArgument("vector must be a list of numbers")


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


def _refused(error: EvervecError, kind: str, id: Any, *statuses: int) -> Ticket:
    """The ticket of a change that the service refused with one of these: the record does not exist
    (404), or no longer has the given seq (412). Raises any other error."""
    if getattr(error, "status", None) not in statuses:
        raise error
    return Ticket(kind, str(id), 0, 0, accepted=False, is_new=False, enqueued=False)


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
