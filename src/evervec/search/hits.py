"""Makes hits of ranked records: the best chunk of each, what was asked for, and why."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from evervec.chunking import SizeChunker
from evervec.model.basics import quick_maker
from evervec.model.bounds import check_bound
from evervec.model.deadlines import check
from evervec.model.filters import group_key
from evervec.model.records import Hit
from evervec.records.kinds import Kind, read_data
from evervec.search.cache import Read, Scope, SearchCache
from evervec.search.explanation import Explainer
from evervec.search.ranking import Evidence, Order, Ranked
from evervec.search.request import FIELDS, Request
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.stores.ledger import find_chunk
from evervec.stores.sql.words import terms

_LEDGERS = 64
"""number of records whose chunks are looked up at once"""
_TOO_MUCH = (
    "data: the hits have {} characters or more of it, so ask for fewer hits, or leave it out with "
    "fields"
)
_TOO_LONG = "hits: have {} characters or more, so ask for fewer hits, or for fewer parts of them with fields"
_WORD = 100
"""about how many characters an explanation has for each matched word"""
_make_hit = quick_maker(Hit)


class Passage(NamedTuple):
    """The part of a record's text that a hit shows."""

    text: str
    start: int = 0
    position: int | None = None
    """of the chunk that vectors found, from 0"""


class _Chosen(NamedTuple):
    """A record that is shown."""

    ranked: Ranked
    group: Any = None

    @property
    def record(self) -> int:
        return self.ranked[1]


@dataclass(slots=True)
class HitMaker:
    """Makes the hits of one search. Records are read in portions: few long texts are in memory at
    once."""

    _store: Store
    _recall: SearchCache
    _scope: Scope
    _request: Request
    _settings: Settings
    _kinds: Mapping[str, Kind]
    _cut: dict[int, Passage] = field(default_factory=dict)
    """passages that were read already, by record"""

    def texts(self, ranked: Sequence[Ranked], evidence: Evidence) -> dict[int, str]:
        """What the hits of these records would show, with the title; by record, in their order.
        Deleted records are left out."""
        texts, chosen = {}, [_Chosen(entry) for entry in ranked]
        for entry, read, passage in self._passages(chosen, evidence):
            self._cut[entry.record] = passage
            texts[entry.record] = f"{read.title or ''}\n{passage.text}".strip()
        return texts

    def make(self, order: Order, evidence: Evidence) -> list[Hit]:
        """The hits of the requested page or groups, each with its best chunk. Records that were
        deleted since they were ranked are left out."""
        chosen = self._groups(order) if self._request.group_by else self._page(order)
        explainer = None
        if self._request.explain:
            query = self._request.query
            explainer = Explainer(self._recall, self._scope, query, order, evidence)
        fields, words, hits = self._request.fields, evidence.text_scores, []
        shows_data, size = "data" in fields, 0
        shows_metadata, most, total = "metadata" in fields, self._settings.hit_chars, 0
        is_shown = "text" in fields or self._request.explain
        for entry, read, passage in self._passages(chosen, evidence, is_shown=is_shown):
            rank, record, similarity = entry.ranked
            way = "text" if similarity is None else "hybrid" if record in words else "semantic"
            data = read.found.data if shows_data else None
            total += len(read.title or "") + len(passage.text)
            if shows_metadata:
                total += len(read.found.metadata)
            if data is not None:
                size += len(data)
                total += len(data)
                check_bound(self._settings, "hit_data_chars", size, _TOO_MUCH)
                data = read_data(self._kinds, read.kind, data)
            hit = _make_hit(
                read.kind, read.id, read.title, passage.text, similarity, -rank,
                _metadata(read), way, None, None, entry.group, data,
            )  # fmt: skip
            if explainer is not None:
                hit = explainer.explained(hit, passage, read)
                total += _WORD * len(hit.explanation.matched) if hit.explanation else 0
            if total > most:
                check_bound(self._settings, "hit_chars", total, _TOO_LONG)
            hits.append(hit if fields is FIELDS else _reduced(hit, fields))
        return hits

    def _page(self, order: Order) -> list[_Chosen]:
        page = order.ranked[self._request.offset : self._request.end]
        if not self._request.diversity:
            # what a deeper search adds follows, so that pages do not overlap, and may be better
            page.sort(key=itemgetter(0))
        return [_Chosen(ranked) for ranked in page]

    def _groups(self, order: Order) -> list[_Chosen]:
        """The best records of each group, the groups with the best records first."""
        groups: dict[Hashable, list[_Chosen]] = {}
        full = 0
        read = self._read([record for _, record, _ in order.ranked])
        for ranked, known in zip(order.ranked, read, strict=True):
            if known is None:
                continue
            check()
            value = _metadata(known).get(self._request.group_by or "")
            name = group_key(value)
            if name not in groups and len(groups) == self._request.groups:
                continue
            group = groups.setdefault(name, [])
            if len(group) < self._request.k:
                group.append(_Chosen(ranked, value))
                full += len(group) == self._request.k
                if full == self._request.groups:
                    break
        return list(chain.from_iterable(groups.values()))

    def _read(self, records: Sequence[int]) -> Iterator[Read | None]:
        """The records as they are now; None for one that was deleted since it was found, or changed
        so that it no longer fits the filter."""
        conditions = self._request.conditions
        for read in self._recall.read(records):
            is_shown = read is not None and (not conditions or read.fits(conditions))
            yield read if is_shown else None

    def _passages(
        self, chosen: Sequence[_Chosen], evidence: Evidence, *, is_shown: bool = True
    ) -> Iterator[tuple[_Chosen, Read, Passage]]:
        """The live records, each with the chunk that vectors found. For one that words found, or
        whose text changed after its vector was made, the piece with most of the query's words."""
        size = 4 * self._settings.chunk_tokens
        versions = [s.version for s in self._scope.serving]
        ledgers: dict[int, bytes] = {}
        looked = 0
        all = zip(chosen, self._read([entry.record for entry in chosen]), strict=True)
        for place, (entry, read) in enumerate(all):
            if read is None:
                continue
            check()
            record, similarity = entry.record, entry.ranked[2]
            text, whole = read.found.text, read.whole
            if not is_shown:
                yield entry, read, Passage("")
                continue
            if record in self._cut:
                yield entry, read, self._cut[record]
                continue
            if whole is not None:
                start = len(text) - len(text.lstrip())
                yield entry, read, Passage(whole, start, None if similarity is None else 0)
                continue
            if place >= looked:
                looked = place + _LEDGERS
                records = [later.record for later in chosen[place:looked]]
                ledgers = self._store.records.ledgers(records, versions)
            ledger = ledgers.get(record)
            hash = evidence.hash_of(record) if ledger and similarity is not None else None
            chunk = find_chunk(ledger, hash) if ledger and hash else None
            if chunk:
                position, start, end = chunk
                yield entry, read, Passage(text[start:end], start, position)
            else:
                yield entry, read, best_piece(self._request.query or "", text, size)


def best_piece(query: str, text: str, size: int) -> Passage:
    """The piece that contains most of the query's full-text terms, which are few."""
    words = {term.lower() for term in terms(query)}
    best, most = Passage(""), -1
    for start, end in SizeChunker(size).split(text):
        check()
        piece = text[start:end]
        lowered = piece.lower()
        count = sum(word in lowered for word in words)
        if count > most:
            best, most = Passage(piece, start), count
        if most == len(words):
            break
    return best


def _metadata(read: Read) -> dict[str, Any]:
    return read.metadata() if read.flat is None else read.flat.copy()


def _reduced(hit: Hit, fields: frozenset[str]) -> Hit:
    """A hit with only some of its parts."""
    return _make_hit(
        hit.kind, hit.id,
        hit.title if "title" in fields else None,
        hit.text if "text" in fields else "",
        hit.similarity, hit.relevance,
        hit.metadata if "metadata" in fields else {},
        hit.via, hit.row, hit.explanation, hit.group, hit.data,
    )  # fmt: skip
