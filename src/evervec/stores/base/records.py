"""Protocols of the parts that change and read records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from evervec.model.filters import Conditions
from evervec.model.jobs import EnqueueResult, Ticket
from evervec.model.records import Record
from evervec.stores.values import (
    Candidate,
    Digest,
    Draft,
    Expected,
    ExportedRecord,
    Found,
    LedgerEntry,
    SampledRecord,
    Typed,
)


class Changes(Protocol):
    """The part that changes records, each with its jobs in one transaction."""

    def together(self) -> AbstractContextManager[Any]:
        """Several calls of `save` in the block in one transaction, committed at its end: its value
        is what they are given as `conn`. It is None, and each call has a transaction of its own,
        for engines whose transactions do not wait for each other, or have no savepoints."""

    def save(
        self, tenant: str, kind: str, drafts: Sequence[Draft], conn: Any = None
    ) -> list[Ticket]:
        """Write records and their jobs. An unchanged record enqueues nothing. A draft whose
        `version` is not newer than the stored one is not accepted. Of two drafts with the same
        id the later wins; every draft gets a ticket, in order. If the tenant's quota has no room
        for all of them, raises `QuotaExceeded` and changes nothing."""

    def delete(
        self,
        tenant: str,
        kind: str,
        ids: Sequence[str],
        conn: Any = None,
        if_seq: Mapping[str, int] | None = None,
        versions: Mapping[str, int] | None = None,
        *,
        despite_debts: bool = False,
    ) -> list[Ticket]:
        """Delete records immediately; a job deletes their points. An unknown id is not accepted,
        nor a record whose seq is no longer that of `if_seq` or, unless `despite_debts`, that has a
        box or a row waiting to be read, nor one whose version is not older than that of
        `versions`; each has one for each id. The store keeps the versions, also those
        of unknown ids, and refuses later saves that are not newer, until it purges old deletes."""

    def enqueue(
        self,
        tenant: str,
        kind: str,
        ids: Sequence[str],
        *,
        loaded: bool,
        owing: bool = True,
        app: bool = False,
        priority: int = 0,
        delay: float = 0.0,
        max_attempts: int | None = None,
        bounded: bool = False,
        conn: Any = None,
    ) -> list[EnqueueResult]:
        """Enqueue jobs for records as they are now; with `loaded`, for rows that the kind's loader
        fetches. A job keeps its debt (a row to load, a box to open), unless `owing` is False: then
        the debt can no longer be read. `app`: only a process that registered the kind can do the
        jobs. `bounded`: raise `QuotaExceeded` if the tenant's quota has no room for them."""

    def reopen(
        self, version: int, records: Sequence[int], *, forget: bool, priority: int = 0
    ) -> int:
        """Enqueue records again for a version. `forget` drops their ledger entries, so that every
        chunk is embedded again."""


class Records(Protocol):
    """The part that reads records."""

    def get(self, tenant: str, kind: str, id: str) -> Record | None:
        """A live record; its `data` is JSON, also in `page`."""

    def page(
        self,
        tenant: str,
        *,
        kind: str | None = None,
        embedded: bool | None = None,
        filter: Conditions = (),
        after: tuple[str, str] | None = None,
        limit: int = 100,
    ) -> list[Record]: ...

    def count(self, tenant: str, kind: str | None, filter: Conditions) -> int:
        """The number of live records."""
        ...

    def count_kinds(self, tenant: str) -> dict[str, int]:
        """The number of live records of each kind that has some, by kind."""

    def search_text(
        self,
        tenant: str,
        kind: str | None,
        query: str,
        limit: int,
        filter: Conditions,
        also: Sequence[int] = (),
    ) -> list[tuple[int, float]]:
        """Live records that match the query's words, with their scores: the `limit` best, best
        first, then those of `also` that match too. A score does not depend on `limit`. `also` are
        live records of the tenant that fit kind and filter."""

    def candidates(self, tenant: str, records: Sequence[int]) -> dict[int, Candidate]:
        """Those of `records` that are live and belong to the tenant."""

    def found(self, records: Sequence[int]) -> dict[int, Found]:
        """Those of `records` that are live, as hits show them."""

    def ledgers(self, records: Sequence[int], versions: Sequence[int]) -> dict[int, bytes]:
        """Packed chunks of those records whose vectors match their current text."""

    def entries(
        self, tenant: str, kind: str, ids: Sequence[str], version: int
    ) -> list[LedgerEntry]:
        """The ledger entries in one version of those records that are live."""

    def chunk_counts(
        self, tenant: str, kind: str, ids: Sequence[str], version: int
    ) -> dict[str, int]:
        """The number of chunks of each of those records that has some in a version, by id."""

    def exported(
        self, tenant: str, kind: str, version: int, after: str, limit: int
    ) -> list[ExportedRecord]:
        """Live records in order of their ids, above `after`, with their chunks in one version."""

    def sampled(
        self, tenant: str, kind: str, version: int, after: str, limit: int
    ) -> list[SampledRecord]:
        """Live records in order of their ids, above `after`, with the number of their chunks in one
        version."""

    def last_id(self, tenant: str, kind: str) -> str | None:
        """The greatest id of a live record."""

    def digests(self, tenant: str, kind: str, ids: Sequence[str]) -> dict[str, Digest]:
        """Digests of those records that are live or have an open job."""

    def sizes(self, records: Sequence[int]) -> int:
        """How many characters the titles and texts of these records have in total."""

    def any_unread(self, kind: str) -> bool:
        """Whether content of a kind, boxed or in rows, waits to be read."""

    def typed(self, kind: str, after: int, limit: int) -> list[Typed]:
        """Live records that were rendered from typed objects, in order of their number."""

    def expected(self, tenant: str | None, version: int, after: int, limit: int) -> list[Expected]:
        """Records in order of their number, starting after number `after`."""
