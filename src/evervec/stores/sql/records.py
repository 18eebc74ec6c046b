"""Reading records: as callers saved them, for searches, and for `verify`."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from itertools import starmap
from typing import Any, NamedTuple

from evervec.model.basics import as_datetime
from evervec.model.filters import Conditions
from evervec.model.jobs import Status
from evervec.model.records import Record
from evervec.stores.ledger import count_chunks, unpack_chunks
from evervec.stores.sql.engine import Part
from evervec.stores.sql.words import part_of_text, terms
from evervec.stores.values import (
    Candidate,
    Digest,
    Expected,
    ExportedRecord,
    Found,
    LedgerEntry,
    SampledRecord,
    Typed,
)

Scores = list[tuple[int, float]]
"""records with their scores, best first"""


class TextQuery(NamedTuple):
    """A full-text search."""

    tenant: str
    kind: str | None
    words: list[str]
    """words and phrases"""
    limit: int
    conditions: Conditions
    also: Sequence[int]
    """records whose scores are wanted however low they are"""


class Records(Part):
    """The part of the store that reads records. Each engine has its own full-text search."""

    def get(self, tenant: str, kind: str, id: str) -> Record | None:
        query = f"select {self.sql.record_columns}\n{self.sql.record}"
        row = self.read_one(query, tenant, kind, id)
        return _record(row) if row else None

    def page(
        self,
        tenant: str,
        *,
        kind: str | None = None,
        embedded: bool | None = None,
        filter: Conditions = (),
        after: tuple[str, str] | None = None,
        limit: int = 100,
    ) -> list[Record]:
        values, tests = [tenant, limit], ["r.tenant = $1 and r.state = 'live'"]
        if kind is not None:
            values.append(kind)
            tests.append(f"r.kind = ${len(values)}")
        if after is not None and kind is None:
            values += after
            tests.append(f"(r.kind, r.id) > (${len(values) - 1}, ${len(values)})")
        elif after is not None and kind is not None:
            if after[0] > kind:
                return []
            if (
                after[0] == kind
            ):  # by a pair, SQLite would sort the kind: 0.7 s at a million records
                values.append(after[1])
                tests.append(f"r.id > ${len(values)}")
        given = self.engine.filter(filter, len(values))
        shown = "true" if embedded is None else "embedded" if embedded else "not embedded"
        query = self.engine.dialect(
            f"select * from (select {self.sql.record_columns} where {' and '.join(tests)}"
            f"{given.clause}) as f where {shown} order by kind, id limit $2"
        )
        return list(map(_record, self.read(query, *values, *given.values)))

    def count(self, tenant: str, kind: str | None, filter: Conditions) -> int:
        ((count,),) = self._matching(self.sql.count_records, [tenant, kind], filter)
        return int(count)

    def count_kinds(self, tenant: str) -> dict[str, int]:
        return {kind: int(count) for kind, count in self.read(self.sql.count_kinds, tenant)}

    # search
    def search_text(
        self,
        tenant: str,
        kind: str | None,
        query: str,
        limit: int,
        filter: Conditions,
        also: Sequence[int] = (),
    ) -> Scores:
        asked = TextQuery(tenant, kind, terms(query), limit, filter, also)
        if asked.words and (found := self._ranked(asked)):
            return found
        # for what the engine cannot split into words, such as a part of Chinese or Japanese text
        if (part := part_of_text(query)) is None:
            return []
        found = self._matching(self.sql.contains_text, [tenant, kind, limit, part], filter)
        if also and len(found) == limit:
            known = {record for record, _ in found}
            rest = self.read(self.sql.contains_text_among, self.engine.listed(also), part)
            found += [item for item in rest if item[0] not in known]
        return found

    @abstractmethod
    def _ranked(self, asked: TextQuery) -> Scores:
        """The live records that contain words or phrases, as `search_text` returns them."""

    def _matching(self, query: str, head: list[Any], conditions: Conditions) -> list[Any]:
        """The rows of a query that is filtered by metadata; `head`: its other parameters."""
        given = self.engine.filter(conditions, len(head))
        return self.read(query.replace("{filter}", given.clause), *head, *given.values)

    def _best_first(self, query: str, head: list[Any], conditions: Conditions) -> Scores:
        """The scored records of a query that selects some of them twice."""
        rows = set(map(tuple, self._matching(query, head, conditions)))
        return sorted(rows, key=lambda item: (-item[1], item[0]))

    def candidates(self, tenant: str, records: Sequence[int]) -> dict[int, Candidate]:
        rows = self.read(self.sql.candidates, self.engine.listed(records), tenant)
        return {found.record: found for found in starmap(Candidate, rows)}

    def ledgers(self, records: Sequence[int], versions: Sequence[int]) -> dict[int, bytes]:
        listed = self.engine.listed
        return dict(self.read(self.sql.ledgers, listed(records), listed(versions)))

    def entries(
        self, tenant: str, kind: str, ids: Sequence[str], version: int
    ) -> list[LedgerEntry]:
        rows = self.read(self.sql.entries, tenant, kind, self.engine.listed(ids), version)
        return [
            LedgerEntry(record, id, unpack_chunks(chunks), bool(current))
            for record, id, chunks, current in rows
        ]

    def chunk_counts(
        self, tenant: str, kind: str, ids: Sequence[str], version: int
    ) -> dict[str, int]:
        rows = self.read(self.sql.entries, tenant, kind, self.engine.listed(ids), version)
        return {id: count_chunks(chunks) for _, id, chunks, _ in rows}

    def exported(
        self, tenant: str, kind: str, version: int, after: str, limit: int
    ) -> list[ExportedRecord]:
        rows = self.read(self.sql.exported, tenant, kind, version, after, limit)
        return [ExportedRecord._make((*row[:-1], unpack_chunks(row[-1]))) for row in rows]

    def sampled(
        self, tenant: str, kind: str, version: int, after: str, limit: int
    ) -> list[SampledRecord]:
        rows = self.read(self.sql.sampled, tenant, kind, version, after, limit)
        return [SampledRecord._make((*row[:-1], count_chunks(row[-1]))) for row in rows]

    def last_id(self, tenant: str, kind: str) -> str | None:
        (last,) = self.read_one(self.sql.last_id, tenant, kind) or (None,)
        return last

    def found(self, records: Sequence[int]) -> dict[int, Found]:
        rows = self.read(self.sql.found, self.engine.listed(records))
        return {found.record: found for found in starmap(Found, rows)}

    # attached tables, backfill and verify
    def digests(self, tenant: str, kind: str, ids: Sequence[str]) -> dict[str, Digest]:
        rows = self.read(self.sql.digests, tenant, kind, self.engine.listed(ids))
        return {
            id: Digest(hash, metadata, weight, updated_at, bool(busy))
            for id, state, hash, metadata, weight, updated_at, busy in rows
            if state == "live" or busy
        }

    def sizes(self, records: Sequence[int]) -> int:
        (size,) = self.read_one(self.sql.sizes, self.engine.listed(records))
        return int(size)

    def any_unread(self, kind: str) -> bool:
        return bool(self.read_one(self.sql.any_unread, kind)[0])

    def typed(self, kind: str, after: int, limit: int) -> list[Typed]:
        return list(map(Typed._make, self.read(self.sql.typed, after, kind, limit)))

    def expected(self, tenant: str | None, version: int, after: int, limit: int) -> list[Expected]:
        return [
            Expected(
                record, owner, kind, id, state == "live",
                ledger_seq is not None and ledger_seq >= seq and not doubtful,
                (ledger_seq or 0) >= cut_since, None if status is None else Status(status),
                unpack_chunks(chunks), points_seq or 0, bool(doubtful),
            )
            for (
                record, owner, kind, id, state, seq, ledger_seq, points_seq, doubtful, chunks,
                cut_since, status,
            ) in self.read(self.sql.expected, version, after, tenant, limit)
        ]  # fmt: skip


def _record(row: tuple[Any, ...]) -> Record:
    tenant, kind, id, seq, title, text, metadata, weight, created, updated, data, embedded = row
    return Record(
        tenant, kind, id, seq, title, text, json.loads(metadata), weight,
        as_datetime(created), as_datetime(updated), bool(embedded), data,  # type: ignore[arg-type]
    )  # fmt: skip
