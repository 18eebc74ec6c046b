"""Full text, the records behind hits, and the store's side of `verify`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from evervec.filters import parse_filter
from evervec.model import Status
from evervec.stores.base import Candidate, Expected, Found, Typed
from evervec.stores.ledger import unpack_chunks
from evervec.stores.sqlite.changes import scope
from evervec.stores.sqlite.engine import SQL, Engine, listed
from evervec.stores.sqlite.filtering import filter_sql

_TERM = re.compile(r'"([^"]+)"|(\w+)')
_MOST_TERMS = 64
_LITTLE_WORDS = frozenset(
    [
        "a",
        "an",
        "and",
        "any",
        "are",
        "as",
        "at",
        "be",
        "by",
        "can",
        "did",
        "do",
        "does",
        "for",
        "from",
        "had",
        "has",
        "have",
        "how",
        "i",
        "if",
        "in",
        "into",
        "is",
        "it",
        "its",
        "me",
        "my",
        "no",
        "not",
        "of",
        "on",
        "or",
        "our",
        "so",
        "that",
        "the",
        "their",
        "them",
        "then",
        "there",
        "these",
        "they",
        "this",
        "to",
        "was",
        "we",
        "were",
        "what",
        "when",
        "where",
        "which",
        "who",
        "whom",
        "why",
        "will",
        "with",
        "would",
        "you",
        "your",
    ]
)
"""Words of a question that say nothing of its answer, and yet are rare where answers are terse."""


class Finding(Engine):
    """The part of the store that searches use."""

    def mark(self) -> int:
        with self.db.reading() as conn:
            mark: int = conn.execute(SQL.mark).fetchone()[0]
        return mark

    def search_text(
        self,
        tenant: str,
        kind: str | None,
        query: str,
        limit: int,
        filter: Mapping[str, Any] | None,
    ) -> list[tuple[int, float]]:
        clause, needed = filter_sql(parse_filter(filter))
        with self.db.reading() as conn:
            match = match_expression(query, tenant)
            if match:
                ranked = f"{SQL.match_text}{clause} {SQL.rank_text}"
                values = [match, tenant, kind, *needed, limit]
                rows = conn.execute(ranked, values).fetchall()
                if rows:
                    return rows
            # words that the tokenizer cannot find, such as a part of Chinese or Japanese text
            plain = f"{SQL.contains_text}{clause} order by r.record desc limit ?"
            values = [query.strip(), tenant, kind, *needed, limit]
            return conn.execute(plain, values).fetchall()

    def candidates(self, tenant: str, records: Sequence[int]) -> dict[int, Candidate]:
        with self.db.reading() as conn:
            rows = conn.execute(SQL.candidates, (listed(records), tenant)).fetchall()
        return {row[0]: Candidate(*row) for row in rows}

    def ledgers(self, records: Sequence[int], versions: Sequence[int]) -> dict[int, bytes]:
        with self.db.reading() as conn:
            found = conn.execute(SQL.ledgers, (listed(records), listed(versions)))
            return dict(found.fetchall())

    def found(self, records: Sequence[int]) -> dict[int, Found]:
        with self.db.reading() as conn:
            rows = conn.execute(SQL.found, (listed(records),)).fetchall()
        return {row[0]: Found(*row) for row in rows}

    def sizes(self, records: Sequence[int]) -> int:
        with self.db.reading() as conn:
            size: int = conn.execute(SQL.sizes, (listed(records),)).fetchone()[0]
        return size

    def typed(self, kind: str, after: int, limit: int) -> list[Typed]:
        with self.db.reading() as conn:
            return [Typed(*row) for row in conn.execute(SQL.typed, (after, kind, limit))]

    def expected(self, tenant: str | None, version: int, after: int, limit: int) -> list[Expected]:
        with self.db.reading() as conn:
            rows = conn.execute(SQL.expected, (version, after, tenant, limit)).fetchall()
        return [
            Expected(
                record, owner, kind, id, state == "live",
                ledger_seq is not None and ledger_seq >= seq, (ledger_seq or 0) >= cut_since,
                None if status is None else Status(status),
                frozenset(chunk.hash for chunk in unpack_chunks(chunks)),
            )
            for record, owner, kind, id, state, seq, ledger_seq, chunks, cut_since, status in rows
        ]  # fmt: skip


def match_expression(query: str, tenant: str) -> str | None:
    """Any of the query's words or quoted phrases, among the tenant's records only."""
    terms = [phrase or word for phrase, word in _TERM.findall(query)][:_MOST_TERMS]
    terms = [t for t in terms if any(c.isalnum() for c in t)]
    terms = [t for t in terms if t.lower() not in _LITTLE_WORDS] or terms
    if not terms:
        return None
    words = " OR ".join(f'"{term}"' for term in terms)
    return f"scope : {scope(tenant)} AND {{title text}} : ({words})"
