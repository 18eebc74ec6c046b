"""An independent judge of the promise: records, index and searches hold what was written last.

The oracle knows only what the application wrote, in the order in which it was committed. It
cuts the wanted texts itself, embeds them itself, and compares the result with the points of the
index and with what searches return. It never asks the ledger or `verify`, so it also finds what
those do not see. Each disagreement is a `Problem`; `check` raises them together with the history
of the records concerned.
"""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from evervec import Evervec, Hits, Job, Record, Status, Ticket
from evervec.chunking import chunk, parse_chunker
from evervec.embedders.hashing import HashingEmbedder
from evervec.embedding.registry import chunker_for
from evervec.indexes.base import Query
from evervec.model.filters import parse_filter
from evervec.stores.values import Collection

T = TypeVar("T")
SAME = 0.999
"""the least similarity of a text with itself"""
_AT_ONCE, _FEW = 500, 50


class Key(NamedTuple):
    """Which record is meant."""

    tenant: str
    kind: str
    id: str

    def __str__(self) -> str:
        return f"{self.kind} {self.id!r} of {self.tenant}"


class Wanted(NamedTuple):
    """A record as the application wrote it."""

    text: str
    metadata: Mapping[str, Any]
    title: str | None = None


class Event(NamedTuple):
    """One change, or one thing that was seen, in the life of a record."""

    at: float
    what: str
    ticket: Ticket | None = None

    def __str__(self) -> str:
        given = self.ticket and f" (job {self.ticket.job_id}, seq {self.ticket.seq})"
        return f"{self.at:9.4f} s  {self.what}{given or ''}"


class Problem(NamedTuple):
    """What is wrong, and with which record; None: with the store as a whole."""

    key: Key | None
    what: str
    sort: str = "lost"
    """lost, stale, doubled or resurrected"""

    def __str__(self) -> str:
        return f"{self.key or 'the store'}: {self.what}"


@dataclass
class Oracle:
    """What the application wrote, and whether it is so. Several threads may tell it at once."""

    about: str = ""
    """printed with every failure, such as the seed"""
    wanted: dict[Key, Wanted] = field(default_factory=dict)
    _seen: dict[Key, list[Event]] = field(default_factory=lambda: defaultdict(list))
    _latest: dict[Key, int] = field(default_factory=dict)
    _tickets: list[tuple[str, Ticket]] = field(default_factory=list)
    _went_wrong: list[Problem] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _began: float = field(default_factory=time.monotonic)

    # what the application tells
    def wrote(self, key: Key, text: str, ticket: Ticket, **more: Any) -> None:
        """A record was added or changed. Of changes that meet, the larger seq is the later."""
        wanted = Wanted(text, more.get("metadata") or {}, more.get("title"))
        how = " boxed" if more.get("boxed") else ""
        self._change(key, wanted, ticket, f"added{how}: {shortened(text)} {dict(wanted.metadata)}")

    def deleted(self, key: Key, ticket: Ticket) -> None:
        what = "deleted" if ticket.accepted else "was not there to be deleted"
        self._change(key, None, ticket, what)

    def rows(self, tenant_kinds: Iterable[tuple[str, str]], rows: Mapping[Key, Wanted]) -> None:
        """Of these tenants' kinds there is to be what a table of the application holds now."""
        kinds = set(tenant_kinds)
        with self._lock:
            self.wanted = {k: w for k, w in self.wanted.items() if k[:2] not in kinds}
            self.wanted.update(rows)

    def note(self, key: Key, what: str) -> None:
        """Something that helps to find the cause of a failure."""
        with self._lock:
            self._seen[key].append(Event(time.monotonic() - self._began, what))

    def blame(self, key: Key | None, what: str, sort: str = "lost") -> None:
        """Something was seen to be wrong while work went on."""
        with self._lock:
            self._went_wrong.append(Problem(key, what, sort))
            if key is not None:
                self.note(key, f"WRONG: {what}")

    def _change(self, key: Key, wanted: Wanted | None, ticket: Ticket, what: str) -> None:
        with self._lock:
            self._seen[key].append(Event(time.monotonic() - self._began, what, ticket))
            if not ticket.accepted:
                return
            self._tickets.append((key.tenant, ticket))
            if ticket.seq < self._latest.get(key, 0):
                return  # it was told later than it was committed
            self._latest[key] = ticket.seq
            if wanted is None:
                self.wanted.pop(key, None)
            else:
                self.wanted[key] = wanted

    @property
    def went_wrong(self) -> list[Problem]:
        """What was blamed so far."""
        with self._lock:
            return list(self._went_wrong)

    def texts(self, kind: str, tenant: str = "default") -> dict[str, str]:
        """The wanted texts of a kind by id."""
        return {
            k.id: w.text for k, w in self.wanted.items() if (k.tenant, k.kind) == (tenant, kind)
        }

    # what it finds
    def check(self, ev: Evervec) -> None:
        """Raise everything that is wrong, once all work is done."""
        self.require(ev, self.problems(ev))

    def require(self, ev: Evervec, problems: Sequence[Problem]) -> None:
        """Raise these problems, if there are any, with the histories of their records."""
        if problems:
            raise AssertionError(self.explained(ev, problems))

    def problems(self, ev: Evervec) -> list[Problem]:
        """All that is wrong in a store where nothing is left to do."""
        return [
            *self.went_wrong,
            *self._of_queue(ev),
            *self._of_tickets(ev),
            *self._of_records(ev),
            *self.of_index(ev),
            *self._of_search(ev),
        ]

    def explained(self, ev: Evervec, problems: Sequence[Problem], most: int = 5) -> str:
        """The problems, and what happened to the first few of the records concerned."""
        lines = [f"{len(problems)} problems; {self.about}", *(f"- {p}" for p in problems[:40])]
        for key in list(dict.fromkeys(p.key for p in problems if p.key))[:most]:
            lines += ["", f"history of {key}:", *(f"  {event}" for event in self._seen[key][-60:])]
            queue = ev.of(key.tenant).queue
            with suppress(KeyError):  # which is a problem of its own
                lines += [f"  {_said(job)}" for job in queue.jobs(kind=key.kind, id=key.id)]
            lines += [
                f"  attempt {a.attempt} by {a.worker}: {a.outcome} at seq {a.seq}, "
                f"{a.chunks_embedded} embedded, {a.chunks_reused} kept, "
                f"{a.started_at} to {a.finished_at} {a.error or ''}"
                for a in queue.history(key.kind, key.id)[-20:]
            ]
        return "\n".join(lines)

    # the store
    def _of_queue(self, ev: Evervec) -> Iterator[Problem]:
        try:
            for status in (Status.PENDING, Status.PROCESSING, Status.FAILED):
                for job in ev.store.jobs.page(None, status=status, limit=20):
                    key = Key(job.tenant, job.kind, job.record_id)
                    yield Problem(key, f"is not settled: {_said(job)}")
        except KeyError as error:
            yield Problem(None, f"jobs cannot be listed: there is no version {error}")
        stats = ev.store.jobs.stats(None)
        left = stats.pending + stats.processing + stats.failed
        if left:
            yield Problem(None, f"{left} jobs are left")

    def _of_tickets(self, ev: Evervec) -> Iterator[Problem]:
        for some in _slices(self._tickets):
            ends = ev.store.jobs.settled(some)
            for (tenant, ticket), end in zip(some, ends, strict=True):
                if end is not Status.DONE:
                    key = Key(tenant, ticket.kind, ticket.id)
                    yield Problem(key, f"its ticket of seq {ticket.seq} is {end or 'not settled'}")

    def _of_records(self, ev: Evervec) -> Iterator[Problem]:
        """Listed exactly, and each as it was written."""
        for tenant in self._tenants(ev):
            mine, after = ev.of(tenant), None
            listed: dict[Key, Record] = {}
            while page := mine.records(after=after, limit=_AT_ONCE):
                after = page[-1]
                listed.update((Key(tenant, r.kind, r.id), r) for r in page)
            wanted = {key: w for key, w in self.wanted.items() if key.tenant == tenant}
            for key in listed.keys() - wanted.keys():
                yield Problem(key, "is listed, but was deleted or never written", "resurrected")
            for key, want in wanted.items():
                if key not in listed:
                    yield Problem(key, "is not listed")
                got = mine.get(key.kind, key.id)
                if got is None:
                    yield Problem(key, "cannot be got")
                elif (got.text, got.metadata) != (want.text, want.metadata):
                    yield Problem(
                        key,
                        f"is {shortened(got.text)} {got.metadata}, not {shortened(want.text)} "
                        f"{dict(want.metadata)}",
                        "stale",
                    )
                elif not got.embedded:
                    yield Problem(key, "is said not to be embedded")

    def _tenants(self, ev: Evervec) -> set[str]:
        return {ev.tenant, *(key.tenant for key in (*self.wanted, *self._seen))}

    # the index
    def of_index(self, ev: Evervec) -> list[Problem]:
        """What is wrong with the points of every version that is in use."""
        found = [p for c in _in_use(ev) for p in self._of_collection(ev, c)]
        known = {c.version for c in ev.store.versions.collections()}
        found.extend(
            Problem(None, f"the index holds points of no known version: {stray}", "resurrected")
            for stray in ev.index.strays(known, None)
        )
        return found

    def _of_collection(self, ev: Evervec, c: Collection) -> Iterator[Problem]:
        held = ev.index.held(c.version, None, 0, None)
        numbers = sorted({point.record for point in held})
        names = {
            number: found
            for some in _slices(numbers)
            for number, found in ev.store.records.found(some).items()
        }
        said = f"in version {c.spec.name if c.spec else '?'}"
        points: dict[Key, Counter[bytes]] = defaultdict(Counter)
        for point in held:
            record = names.get(point.record)
            if record is None:
                what = f"points of record {point.record}, which is not live, {said}"
                yield Problem(None, what, "resurrected")
                continue
            points[Key(point.tenant, record.kind, record.id)][point.hash] += 1
            if not point.sound:
                key = Key(point.tenant, record.kind, record.id)
                yield Problem(key, f"a bad vector {said}", "stale")
        wanted = {key: w for key, w in self.wanted.items() if key.kind == c.kind}
        for key in points.keys() - wanted.keys():
            what = f"{points[key].total()} points of what should not be there {said}"
            yield Problem(key, what, "resurrected")
        for key, want in wanted.items():
            needed, there = _cut(ev, c, want)[0], points[key]
            if missing := len(needed - there.keys()):
                yield Problem(key, f"{missing} of its {len(needed)} points are missing {said}")
            if extra := len(there.keys() - needed):
                yield Problem(key, f"{extra} points of another text {said}", "stale")
            if doubled := there.total() - len(there):
                yield Problem(key, f"{doubled} points are there more than once {said}", "doubled")

    # searches
    def _of_search(self, ev: Evervec) -> Iterator[Problem]:
        """Each piece of each record is found by itself, once, and only by its own tenant."""
        for c in _in_use(ev):
            if c.spec is None:
                continue
            wanted = {key: w for key, w in self.wanted.items() if key.kind == c.kind}
            searches = _Searches(ev, c.kind, len(wanted) + 10)
            for key, want in wanted.items():
                for piece in _cut(ev, c, want)[1]:
                    yield from self._found(searches, c, key, piece)

    def _found(
        self, searches: "_Searches", c: Collection, key: Key, piece: str
    ) -> Iterator[Problem]:
        where = dict(self.wanted[key].metadata) or None
        if c.state == "serving":
            yield from self._hit(searches, key, piece, where)
            return
        assert c.spec is not None
        ev, limit, said = searches.ev, searches.limit, f"in version {c.spec.name}"
        vector = HashingEmbedder(c.spec.dimensions).embed([piece])[0]
        matches = ev.index.search(Query(c.version, key.tenant, vector, limit, parse_filter(where)))
        numbers = Counter(match.record for match in matches)
        names = ev.store.records.found(list(numbers))
        mine = [n for n, found in names.items() if (found.kind, found.id) == (key.kind, key.id)]
        similar = [m.similarity for m in matches if m.record in mine]
        if not similar or max(similar) < SAME:
            yield Problem(key, f"the index does not find {shortened(piece)} {said}: {similar}")
        if max(numbers.values(), default=0) > 1:
            yield Problem(key, f"a search finds a record more than once {said}", "doubled")

    def _hit(
        self, searches: "_Searches", key: Key, piece: str, where: dict[str, Any] | None
    ) -> Iterator[Problem]:
        hits = searches.hits(key.tenant, piece, where)
        mine = [hit for hit in hits if hit.id == key.id]
        if len(mine) != 1 or (mine[0].similarity or 0) < SAME:
            seen = [(hit.id, hit.similarity) for hit in mine]
            sort = "doubled" if len(mine) > 1 else "lost"
            yield Problem(key, f"a search does not find {shortened(piece)} once: {seen}", sort)
        for hit in hits:
            other = Key(key.tenant, hit.kind, hit.id)
            if other not in self.wanted or hit.text not in self.wanted[other].text:
                yield Problem(
                    other, f"a search by {key.tenant} shows {shortened(hit.text)}", "stale"
                )


class _Searches:
    """Searches of one kind while nothing changes: records with the same text have the same."""

    def __init__(self, ev: Evervec, kind: str, limit: int) -> None:
        self.ev = ev
        self.limit = limit
        self._kind = kind
        self._found: dict[tuple[str, str, str], Hits] = {}

    def hits(self, tenant: str, text: str, where: dict[str, Any] | None) -> Hits:
        asked = (tenant, text, repr(where))
        if (known := self._found.get(asked)) is not None:
            return known
        found = self.ev.of(tenant).search(
            text, self.limit, kind=self._kind, mode="semantic", filter=where
        )
        if self.limit <= _FEW:  # many records rarely have the same text, and much would be kept
            self._found[asked] = found
        return found


class Application:
    """Writes through a handle, and tells the oracle."""

    def __init__(self, ev: Evervec, oracle: Oracle, kind: str = "note") -> None:
        self.ev = ev
        self.oracle = oracle
        self.kind = kind

    def key(self, id: str) -> Key:
        return Key(self.ev.tenant, self.kind, id)

    def add(self, id: str, text: str, **options: Any) -> Ticket:
        ticket = self.ev.add(self.kind, text, id=id, **options)
        self.oracle.wrote(self.key(id), text, ticket, **options)
        return ticket

    def delete(self, id: str) -> Ticket:
        ticket = self.ev.delete(self.kind, id)
        self.oracle.deleted(self.key(id), ticket)
        return ticket


def _in_use(ev: Evervec) -> list[Collection]:
    """The collections that serve, or are kept in step to serve."""
    return [c for c in ev.store.versions.collections() if c.state != "retired"]


def _cut(ev: Evervec, c: Collection, want: Wanted) -> tuple[set[bytes], list[str]]:
    """The hashes of a record's chunks, and the texts that are embedded of it, each once."""
    assert c.spec is not None
    tokens = ev.settings.chunk_tokens
    return _cut_by(c.spec.dimensions, tokens, c.chunker, want.title, want.text)


@lru_cache(1000)
def _cut_by(
    dimensions: int, tokens: int, spec: str, title: str | None, text: str
) -> tuple[set[bytes], list[str]]:
    chunker = parse_chunker(spec, chunker_for(HashingEmbedder(dimensions), tokens))
    assert chunker is not None, f"only code can cut texts as {spec}"
    pieces, texts = chunk(chunker, title, text)
    return {piece.hash for piece in pieces}, list(dict.fromkeys(texts))


def _said(job: Job) -> str:
    return (
        f"job {job.job_id} of {job.embedding_version}: {job.op} {job.status}, seq {job.seq}, "
        f"claimed {job.claimed_seq}, due {job.scheduled_for}, attempts {job.attempts}, "
        f"crashes {job.crashes}, error {job.error!r}"
    )


def shortened(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:40]}…{text[-15:]}")


def _slices(values: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), _AT_ONCE):
        yield values[start : start + _AT_ONCE]
