"""Search: full text and vectors, fused, re-scored by weight and age.

More candidates than asked for are fetched, so that re-scoring has a choice. Hits are
joined with the live records, so what was deleted is gone at once. Where there are no
vectors to search (no embedder, provider or index away), text answers and `via` says so.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from itertools import chain
from typing import Any, NamedTuple

from evervec.chunking import SizeChunker, parse_chunker
from evervec.drafts import check_text
from evervec.embedders.base import describe
from evervec.errors import IndexUnavailable, InvalidArgument
from evervec.filters import Condition, matches, parse_filter
from evervec.indexes.base import Index, Matches
from evervec.kinds import Kind, Rescore
from evervec.model import Hit, Hits, quick_maker
from evervec.models import Model, Models
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.stores.ledger import find_chunk
from evervec.stores.values import Candidate, Collection, Found

log = logging.getLogger("evervec")

MODES = ("hybrid", "semantic", "text")
_PLAIN = Rescore()
_MOST_STANDING = 100_000
_MOST_CHARACTERS = 16_000_000
_make_hit = quick_maker(Hit)
_WORD = re.compile(r"\w+")


class _Read(NamedTuple):
    """A live record as it was read."""

    found: Found
    whole: str | None
    """its text, if that is one chunk for sure"""
    flat: dict[str, Any] | None
    """its metadata, if a copy of that has nothing in common with it"""

    def fits(self, conditions: tuple[Condition, ...]) -> bool:
        metadata = json.loads(self.found.metadata) if self.flat is None else self.flat
        return matches(metadata, conditions)


class _Serving(NamedTuple):
    """The vectors that a kind is searched by."""

    kind: str
    version: int
    name: str
    model: Model
    whole: int
    """the bytes up to which a text is one chunk for sure"""


class _Memory:
    """What searches read of versions and records: true as long as the store's mark is this."""

    def __init__(self, mark: int, serving: list[_Serving]) -> None:
        self.mark = mark
        self.serving = serving
        self.whole = {s.kind: s.whole for s in serving}
        self.standing: dict[int, tuple[float, float, float] | None] = {}
        """by record, None for one that is not alive: strength, time of its update, seconds of decay"""
        self.found: dict[int, _Read] = {}
        self.characters = 0

    @property
    def full(self) -> bool:
        return len(self.standing) > _MOST_STANDING or self.characters > _MOST_CHARACTERS


class Search:
    """Searches of one tenant."""

    def __init__(
        self,
        store: Store,
        index: Index,
        models: Models,
        kinds: Mapping[str, Kind],
        settings: Settings,
        tenant: str,
    ) -> None:
        self._store = store
        self._index = index
        self._models = models
        self._kinds = kinds
        self._settings = settings
        self._tenant = tenant
        self._chunker = SizeChunker(4 * settings.chunk_tokens)
        self._memory: _Memory | None = None

    def search(
        self,
        query: str,
        k: int = 10,
        kind: str | None = None,
        mode: str = "hybrid",
        filter: Mapping[str, Any] | None = None,
    ) -> Hits:
        _check(query, k, mode)
        parse_filter(filter)
        limit = k * self._settings.overfetch
        memory = self._recall()
        serving = [s for s in memory.serving if kind in (None, s.kind)]
        matches = None
        if mode != "text" and serving:
            matches = self._by_vector(query, serving, limit, filter, memory)
        via = "text" if matches is None else mode
        scores: dict[int, float] = {}
        if via != "semantic":
            scores = dict(self._store.search_text(self._tenant, kind, query, limit, filter))
        near = matches.similarity if matches else {}
        ranked = self._rank(memory, near, scores, via)[:k]
        hits = self._hits(query, memory, ranked, matches or Matches({}), scores, serving)
        names = sorted({s.name for s in serving}) if matches is not None else ()
        return Hits(hits, via=via, version=", ".join(names) or None)

    def _recall(self) -> _Memory:
        """What is remembered of versions and records; nothing once anything was written."""
        mark, memory = self._store.mark(), self._memory
        if memory is None or memory.mark != mark or memory.full:
            memory = self._memory = _Memory(mark, self._serving())
        return memory

    def _serving(self) -> list[_Serving]:
        """Of each kind the version that serves; where this process cannot make the vector of a
        question for that, the one that stands by, which gets every change too."""
        chosen: dict[str, _Serving] = {}
        for state in ("serving", "standby"):
            for c in self._store.collections():
                if c.state == state and c.kind not in chosen and (model := self._models.of(c.spec)):
                    assert c.spec is not None
                    chosen[c.kind] = _Serving(
                        c.kind, c.version, c.spec.name, model, self._whole(c, model)
                    )
        return list(chosen.values())

    def _by_vector(
        self,
        query: str,
        serving: list[_Serving],
        limit: int,
        filter: Mapping[str, Any] | None,
        memory: _Memory,
    ) -> Matches | None:
        """The nearest records of all kinds; None when model or index is away."""
        try:
            models = dict.fromkeys(s.model for s in serving)
            vectors = {model: model.provider.embed_query(query) for model in models}
            found = [
                self._index.search(
                    s.version, self._tenant, vectors[s.model], limit, filter, memory.mark
                )
                for s in serving
            ]
        except IndexUnavailable as error:
            log.warning("search answers from text alone: %s", error)
            return None
        except Exception as error:  # noqa: BLE001 - whatever the model does, text can answer
            log.warning("search answers from text alone: %s", describe(error))
            return None
        all = found[0] if len(found) == 1 else Matches.of(chain.from_iterable(found), limit)
        if filter and not self._index.shares_store:
            return self._still_fitting(memory, all, filter)
        return all

    def _still_fitting(self, memory: _Memory, found: Matches, filter: Mapping[str, Any]) -> Matches:
        """An index apart from the store knows metadata as of its last write: leave out what
        is otherwise by now."""
        conditions = parse_filter(filter)
        known = self._read(memory, list(found.similarity))
        good = (m for m in found if m.record in known and known[m.record].fits(conditions))
        return Matches.of(good, len(found))

    def _rank(
        self, memory: _Memory, near: dict[int, float], scores: dict[int, float], via: str
    ) -> list[tuple[float, int]]:
        """The records that are alive, best first, each behind its negated relevance."""
        base = fuse(near, scores) if via == "hybrid" else _single(near, scores)
        known = memory.standing
        if not base.keys() <= known.keys():
            unknown = [record for record in base if record not in known]
            found = self._store.candidates(self._tenant, unknown)
            known.update((record, self._standing(found.get(record))) for record in unknown)
        now = self._store.now()
        ranked = []
        for record, score in base.items():
            standing = known[record]
            if standing is not None:  # else it was deleted since its vector was written
                strength, updated_at, decay = standing
                age = now - updated_at if now > updated_at else 0.0
                ranked.append((-score * strength / (1.0 + age / decay), record))
        ranked.sort()
        return ranked

    def _standing(self, candidate: Candidate | None) -> tuple[float, float, float] | None:
        """What of a record's relevance does not change with the question or the time."""
        if candidate is None:
            return None
        kind = self._kinds.get(candidate.kind)
        rescore = kind.rescore if kind else _PLAIN
        strength = rescore.base + rescore.gain * candidate.weight
        return strength, candidate.updated_at, rescore.days * 86400

    def _whole(self, collection: Collection, model: Model) -> int:
        kind = self._kinds.get(collection.kind)
        chunker = kind.chunker if kind else None
        chunker = chunker or parse_chunker(collection.chunker, model.chunker)
        return getattr(chunker, "whole", 0)

    def forget(self) -> None:
        """A kind was registered: what was remembered may stand otherwise now."""
        self._memory = None

    def _read(self, memory: _Memory, records: list[int]) -> dict[int, _Read]:
        """At least the live ones of the records, from memory where they are there."""
        known = memory.found
        unknown = [record for record in records if record not in known]
        if unknown:
            for record, found in self._store.found(unknown).items():
                size = len(found.text) if found.text.isascii() else 4 * len(found.text)
                short = size <= memory.whole.get(found.kind, 0)
                whole = found.text.strip() if short else None
                known[record] = _Read(found, whole, _flat(json.loads(found.metadata)))
                memory.characters += size
        return known

    def _hits(
        self,
        query: str,
        memory: _Memory,
        ranked: list[tuple[float, int]],
        matches: Matches,
        scores: Mapping[int, float],
        serving: list[_Serving],
    ) -> list[Hit]:
        """What is shown of the best records, each with its best chunk."""
        near = matches.similarity
        known = self._read(memory, [record for _, record in ranked])
        long = [r for _, r in ranked if r in near and r in known and known[r].whole is None]
        ledgers = self._store.ledgers(long, [s.version for s in serving]) if long else {}
        hits = []
        for rank, record in ranked:
            if record not in known:
                continue
            found, text, flat = known[record]
            if text is None:
                entry = ledgers.get(record)
                place = find_chunk(entry, matches.hash_of(record)) if entry else None
                # found by words, or the text moved on since its vector was made: look for them
                text = found.text[slice(*place)] if place else self._best_piece(query, found)
            similarity = near.get(record)
            way = "text" if similarity is None else "hybrid" if record in scores else "semantic"
            # each hit has its own: what a caller does to it stays there
            metadata = json.loads(found.metadata) if flat is None else flat.copy()
            hits.append(
                _make_hit(
                    found.kind, found.id, found.title, text, similarity, -rank, metadata, way
                )
            )  # fmt: skip
        return hits

    def _best_piece(self, query: str, found: Found) -> str:
        """The piece that holds most of the query's words."""
        words = {word.lower() for word in _WORD.findall(query)}
        best, most = "", -1
        for start, end in self._chunker.split(found.text):
            piece = found.text[start:end]
            lowered = piece.lower()
            count = sum(word in lowered for word in words)
            if count > most:
                best, most = piece, count
        return best


def fuse(near: Mapping[int, float], scores: Mapping[int, float]) -> dict[int, float]:
    """Half of each score, both stretched to 0..1 between the least and the best that was found.

    Cosines of good and bad hits lie close together, and those of words far apart: stretched,
    neither side can drown the other. What one side did not find counts nothing there.
    """
    meaning, words = _stretched(near), _stretched(scores)
    return {
        record: 0.5 * meaning.get(record, 0.0) + 0.5 * words.get(record, 0.0)
        for record in meaning.keys() | words.keys()
    }


def _stretched(scores: Mapping[int, float]) -> dict[int, float]:
    best = max(scores.values(), default=0.0)
    least = min(scores.values(), default=0.0)
    if best <= least:
        return dict.fromkeys(scores, 1.0)
    return {record: (score - least) / (best - least) for record, score in scores.items()}


def _flat(metadata: dict[str, Any]) -> dict[str, Any] | None:
    return None if any(isinstance(v, list | dict) for v in metadata.values()) else metadata


def _single(near: Mapping[int, float], scores: Mapping[int, float]) -> Mapping[int, float]:
    """One kind of score alone: the cosine itself, or the text's share of its best."""
    if not scores:
        return near
    best = max(scores.values())
    return {record: score / best if best > 0 else 1.0 for record, score in scores.items()}


def _check(query: Any, k: Any, mode: Any) -> None:
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise InvalidArgument(f"k must be a whole number of at least 1, not {k!r}")
    if mode not in MODES:
        raise InvalidArgument(f"there is no mode {mode!r}; there are {', '.join(MODES)}")
    try:
        check_text("query", query)
    except ValueError as error:
        raise InvalidArgument(str(error)) from None
