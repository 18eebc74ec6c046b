"""The way of a record through a worker, stage by stage: claim, prepare, embed, write.

Each stage is a plain method with no threads of its own, so that they can be stepped
one by one; `worker` overlaps them. A batch carries everything between the stages.
Only what the ledger does not know is embedded, and nothing is written for a record
until all of its chunks are there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from evervec.chunking import Chunker, SizeChunker, chunk, parse_chunker
from evervec.drafts import make_draft
from evervec.embedders.base import PROBE, Embedder, describe, embed, spec_of
from evervec.errors import InvalidInput, InvalidRecord, ProviderUnavailable, RateLimited
from evervec.indexes.base import Index
from evervec.kinds import Kind
from evervec.model import Change, Chunk, Job, Op, Point, Status
from evervec.queue import Queue
from evervec.settings import Settings
from evervec.stores.base import Draft, Finish, Loaded, Store, Unreadable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NOBODYS_FAULT = (ProviderUnavailable, RateLimited)


class _Refused(Exception):
    """A record that cannot be prepared; `permanent` when trying again would not help."""

    def __init__(self, message: str, *, permanent: bool) -> None:
        super().__init__(message)
        self.permanent = permanent


@dataclass(slots=True)
class Item:
    """One record on its way."""

    job: Job
    seq: int
    chunks: Sequence[Chunk] = ()
    kept: dict[bytes, int] = field(default_factory=dict)
    fresh: dict[bytes, tuple[int, str]] = field(default_factory=dict)
    """position and text of the chunks that must be embedded, by hash"""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    weight: float = 1.0
    updated_at: float = 0.0
    reveal: Draft | None = None
    gone: bool = False
    error: str | None = None
    permanent: bool = False


@dataclass(slots=True)
class Batch:
    """Records that go through the stages together."""

    items: list[Item]
    texts: list[str] = field(default_factory=list)
    rows: dict[bytes, int] = field(default_factory=dict)
    """the row of `texts` and `vectors` that a chunk's hash has"""
    vectors: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    errors: dict[int, Exception] = field(default_factory=dict)
    outage: Exception | None = None
    calls_left: int = 0
    characters: int = 0
    suspect: bool = False
    """a worker died of it: whatever is in it must not take others along"""

    @property
    def jobs(self) -> list[Job]:
        return [item.job for item in self.items]


@dataclass(slots=True)
class Written:
    """What became of a batch."""

    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    released: int = 0
    lost: int = 0
    errors: list[tuple[int, str]] = field(default_factory=list)

    @property
    def processed(self) -> int:
        return self.succeeded + self.failed + self.retried

    def add(self, other: Written) -> None:
        for name in ("succeeded", "failed", "retried", "released", "lost"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.errors.extend(other.errors)


class Pipeline:
    """The stages over one store, index and embedder."""

    def __init__(
        self,
        store: Store,
        index: Index,
        embedder: Embedder,
        queue: Queue,
        kinds: Mapping[str, Kind],
        settings: Settings,
    ) -> None:
        self.store = store
        self.index = index
        self.embedder = embedder
        self.queue = queue
        self._kinds = kinds
        self._settings = settings
        self._model = spec_of(embedder)
        self._default_chunker = SizeChunker(settings.chunk_chars)
        self._chunkers: dict[int, Chunker] = {}
        self.memory = settings.memory_mb << 19
        """characters of text held at once: a half of the setting, for what is made of them"""

    def serves(self) -> list[int]:
        """The versions whose jobs this process can do: its model's, cut in a way it knows."""
        if self._model is None:
            return []
        specs = {name: kind.spec(self._default_chunker) for name, kind in self._kinds.items()}
        served = []
        for c in self.store.collections(self._model, specs):
            kind = self._kinds.get(c.kind)
            chunker = kind.chunker if kind else None
            chunker = chunker or parse_chunker(c.chunker, self._default_chunker)
            if c.spec == self._model and chunker and (kind or not c.app):
                self._chunkers[c.version] = chunker
                served.append(c.version)
        return served

    def claim(self, limit: int, *, suspects: bool = True) -> list[Job]:
        """Lease the next jobs that this process can do; `suspects`: also what killed workers."""
        served = self.serves()
        return self.queue.claim(limit, versions=served, suspects=suspects) if served else []

    def prepare(self, jobs: Sequence[Job]) -> tuple[Batch, Sequence[Job]]:
        """Load, cut and compare claimed jobs; those behind the first so many that memory is
        set for are given back for a later call."""
        loaded = self.store.load(jobs, self.memory)
        batch = Batch([], suspect=jobs[0].crashes > 0)
        for job, found in zip(jobs, loaded, strict=False):
            if found is not None:  # else it was cancelled, and nobody waits for it
                batch.items.append(self._prepare(job, found))
        for item in batch.items:
            for hash, (_, text) in item.fresh.items():
                if hash not in batch.rows:
                    batch.rows[hash] = len(batch.texts)
                    batch.texts.append(text)
                    batch.characters += len(text)
        return batch, jobs[len(loaded) :]

    def _prepare(self, job: Job, loaded: Loaded | Unreadable) -> Item:
        if isinstance(loaded, Unreadable):
            error = f"the record cannot be read ({loaded.error}); add it again"
            return Item(job, job.seq, error=error, permanent=True)
        item = Item(job, loaded.seq)
        try:
            title, text = self._content(item, loaded)
        except _Refused as error:
            item.error, item.permanent = str(error), error.permanent
            return item
        if text is None:
            return item
        try:
            item.chunks, texts = chunk(self._chunkers[job.version], title, text)
        except Exception as error:  # noqa: BLE001 - a kind's own chunker may raise anything
            item.error = f"its chunker failed: {describe(error)}"
            return item
        there = {piece.hash for piece in loaded.chunks}
        for place, (piece, content) in enumerate(zip(item.chunks, texts, strict=True)):
            if piece.hash in there:
                item.kept.setdefault(piece.hash, place)
            elif piece.hash not in item.fresh:
                item.fresh[piece.hash] = (place, content)
        return item

    def _content(self, item: Item, loaded: Loaded) -> tuple[str | None, str | None]:
        """Title and text to embed; no text: its points are to go."""
        draft = None
        if loaded.op is Op.OPEN:
            draft = self._open(item.job, loaded.box)
        elif loaded.op is Op.LOAD:
            draft = self._fetch(item.job)
            item.gone = draft is None
        elif loaded.live:
            item.metadata, item.weight = loaded.metadata, loaded.weight
            item.updated_at = loaded.updated_at
            return loaded.title, loaded.text
        if draft is None:
            return None, None
        item.reveal = draft
        item.metadata, item.weight = json.loads(draft.metadata), draft.weight
        item.updated_at = self.store.now() if draft.updated_at is None else draft.updated_at
        return draft.title, draft.text

    def _open(self, job: Job, box: str | None) -> Draft:
        try:
            content = json.loads(box or "")
            content["metadata"] = json.loads(content["metadata"])
            return make_draft(
                content.pop("text"), {**content, "id": job.record_id}, content.pop("data")
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise _Refused(
                f"the boxed record cannot be read ({describe(error)}); add it again",
                permanent=True,
            ) from error

    def _fetch(self, job: Job) -> Draft | None:
        kind = self._kinds.get(job.kind)
        if kind is None or kind.load is None:
            raise _Refused(
                f"there is no record {job.record_id!r} of kind {job.kind!r}, and this process has "
                f"no loader for it: register Kind({job.kind!r}, load=...), then retry the job",
                permanent=True,
            )
        try:
            given = kind.load(job.record_id)
        except Exception as error:
            raise _Refused(f"its loader failed: {describe(error)}", permanent=False) from error
        if given is None:
            return None
        try:
            return kind.draft(given, {"id": job.record_id})
        except InvalidRecord as error:
            raise _Refused(f"what its loader gave is refused: {error}", permanent=True) from error
        except Exception as error:
            raise _Refused(f"its kind failed: {describe(error)}", permanent=False) from error

    def calls(self, batch: Batch) -> list[range]:
        """The provider calls that a batch needs, as rows of its texts."""
        size = max(1, self.embedder.max_batch)
        count = len(batch.texts)
        batch.calls_left = -(-count // size)
        return [range(i, min(i + size, count)) for i in range(0, count, size)]

    def call(self, batch: Batch, rows: range) -> None:
        """One provider call; the batch keeps its vectors, its errors, or its outage."""
        self.queue.in_flight(+1)
        try:
            answer = embed(self.embedder, batch.texts[rows.start : rows.stop])
        except NOBODYS_FAULT as error:
            batch.outage = error
            return
        finally:
            self.queue.in_flight(-1)
        for place, row in enumerate(rows):
            if place in answer.errors:
                batch.errors[row] = answer.errors[place]
            else:
                batch.vectors[row] = answer.vectors[place]

    def embed(self, batch: Batch) -> None:
        """All calls of a batch, one after the other, until one meets an outage."""
        for rows in self.calls(batch):
            if batch.outage is None:
                self.call(batch, rows)

    def probe(self) -> Exception | None:
        """Whether the provider is still away; None when it answers."""
        try:
            embed(self.embedder, [PROBE])
        except NOBODYS_FAULT as error:
            return error
        return None

    def write(self, batch: Batch) -> Written:
        """Points, ledger and finish of what succeeded; the rest fails or waits."""
        written = Written()
        finishes, failures, waiting = [], [], []
        for item in batch.items:
            self._settle(item, batch)
            if item.error is not None:
                failures.append((item.job, item.error, item.permanent))
            elif all(batch.rows[h] in batch.vectors for h in item.fresh):
                finishes.append(self._finish(item, batch))
            else:
                waiting.append(item.job)
        if finishes:
            done = self._finish_all(finishes)
            written.succeeded = sum(done)
            written.lost += len(done) - sum(done)
        if failures:
            ends = self.queue.fail_many(failures)
            written.failed = sum(end is Status.FAILED for end in ends)
            written.retried = sum(end is Status.PENDING for end in ends)
            written.lost += sum(end is None for end in ends)
            written.errors += [(job.job_id, error) for job, error, _ in failures]
        if waiting:
            reason = describe(batch.outage) if batch.outage else None
            written.released = sum(self.queue.release_many(waiting, reason))
        return written

    def _settle(self, item: Item, batch: Batch) -> None:
        """A record fails by the first of its chunks that failed."""
        for hash, (place, _) in item.fresh.items():
            error = batch.errors.get(batch.rows[hash])
            if error is not None:
                where = f"chunk {place + 1} of {len(item.chunks)}: " if len(item.chunks) > 1 else ""
                item.error = where + describe(error)
                item.permanent = isinstance(error, InvalidInput)
                return

    def _finish(self, item: Item, batch: Batch) -> Finish:
        job = item.job
        points = [
            Point(hash, place, text, batch.vectors[batch.rows[hash]])
            for hash, (place, text) in item.fresh.items()
        ]
        change = Change(
            job.record, job.version, job.tenant, job.kind, job.record_id, item.seq,
            points, item.kept, item.metadata, item.weight, item.updated_at,
        )  # fmt: skip
        return Finish(
            job, change, item.chunks, item.reveal, item.gone,
            embedded=len(points), reused=len(item.kept), worker=self.queue.worker,
        )  # fmt: skip

    def _finish_all(self, finishes: list[Finish]) -> list[bool]:
        if self.index.shares_store:
            return self.store.finish(finishes, self.index.apply)
        held = self.queue.renew_many([f.job for f in finishes])
        kept = [f for f, good in zip(finishes, held, strict=True) if good]
        self.index.apply([f.change for f in kept if f.change])
        done = dict(zip((f.job.job_id for f in kept), self.store.finish(kept), strict=True))
        for f in kept:
            if not done[f.job.job_id]:  # written, but no longer ours: somebody must look again
                self.store.reopen(f.job.version, [f.job.record], forget=False)
        return [done.get(f.job.job_id, False) for f in finishes]
