"""The stages of a worker, in order: claim, prepare, embed, write.

Each stage is a plain method that starts no threads, so that tests can step through them; `worker`
overlaps them. A batch carries all data between the stages. Only chunks that are not in the ledger
are embedded, and nothing is written for a record until all of its chunks are embedded.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress
from typing import NamedTuple

from evervec.chunking import Chunker, Window, chunk_all
from evervec.embedders.base import count_tokens, describe
from evervec.embedding.registry import EmbedderRegistry, Model
from evervec.errors import EvervecError, IndexMismatch, WrongCollection
from evervec.indexes.base import Index
from evervec.indexes.location import check_generation
from evervec.model.jobs import Job, Status
from evervec.model.records import Point
from evervec.queue.queue import Queue
from evervec.records.kinds import Kind
from evervec.records.vectors import unpack_vectors
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.stores.values import Finish, Loaded, Unreadable
from evervec.tables.tables import FoundRow, Tables
from evervec.telemetry.counters import ATTEMPTS, STAGES
from evervec.telemetry.traces import tell
from evervec.worker.batch import Batch, Call, Item, Written
from evervec.worker.index_writer import IndexWriter
from evervec.worker.reader import RecordReader, Refused, unreadable
from evervec.worker.served import ServedVersions

log = logging.getLogger("evervec")

_PATIENCE = 0.1
"""seconds that work for one model waits for another model's provider to answer"""


class Pipeline:
    """The stages over one store and index, for all models of this process."""

    def __init__(
        self,
        store: Store,
        index: Index,
        models: EmbedderRegistry,
        kinds: Mapping[str, Kind],
        queue: Queue,
        tables: Tables,
        reader: RecordReader,
        settings: Settings,
    ) -> None:
        self.store = store
        self._index = index
        self.models = models
        self.served = ServedVersions(store, index, models, kinds)
        self.queue = queue
        self._tables = tables
        self._reader = reader
        self._unavailable: list[Model] = []
        self._used_up: set[str] = set()
        """tenants that used up their daily quota since the last claim; their jobs are released"""
        self._writer = IndexWriter(store, index, queue, settings.lease_seconds)
        self.memory = settings.memory_mb << 19
        """characters of text held at once: half of the setting, the rest is for data derived from
        them"""

    def probe_providers(self, stopping: Callable[[], bool] = lambda: False) -> bool:
        """Probe the providers whose pause is over; returns whether any may be called now. Jobs of
        the others' versions are not claimed."""
        models = list(self.models)
        if len(models) > 1:  # a provider that hangs must not delay the others
            models.sort(key=lambda model: model.provider.gate() is not None)
        ready = [m for m in models[:1] if m.provider.try_resume(stopping)]
        deadline = time.monotonic() + (_PATIENCE if ready else math.inf)
        ready += [
            m
            for m in models[1:]
            if m.provider.try_resume(lambda: stopping() or time.monotonic() > deadline)
        ]
        self._unavailable = [m for m in models if m not in ready]
        return bool(ready)

    @property
    def waits(self) -> float:
        """Seconds until it is worth checking again whether a provider is ready; 0 when one is."""
        return min((m.provider.waits for m in self.models), default=0.0)

    def claim(self, limit: int, *, suspects: bool = True) -> list[Job]:
        """Claim the next jobs that this process can do; `suspects`: also jobs that killed a worker.
        Raises `IndexMismatch` when the store's vectors have moved to another index since it was
        opened."""
        check_generation(self.store, self._index)
        self._tables.attempt(self._tables.follow)
        served = self.served.refresh_claimable(self._unavailable)
        if not served:
            return []
        began = time.perf_counter()
        self._used_up.clear()  # claims skip these tenants' jobs
        claimed = self._claim_versions(served, limit, suspects)
        if claimed:  # claims that find nothing are not counted as work
            STAGES.observe(time.perf_counter() - began, "claim")
        return claimed

    def _claim_versions(self, served: list[int], limit: int, suspects: bool) -> list[Job]:
        """Claim jobs of these versions. Jobs of a version created since they were listed are
        released: this process may not be able to do them."""
        claimed = self.queue.claim(limit, versions=served, suspects=suspects)
        strange = [job for job in claimed if job.version not in self.served.models]
        if strange:
            self.queue.release_many(strange)
            claimed = [job for job in claimed if job.version in self.served.models]
        return claimed

    def check_followed(self) -> None:
        """Raise the error that keeps attached tables from being followed; called when no other work
        is left."""
        if failing := self._tables.failing:
            raise failing

    @STAGES.timing("prepare")
    def prepare(self, jobs: Sequence[Job], characters: int = 0) -> tuple[Batch, Sequence[Job]]:
        """Load and chunk claimed jobs and compare them with the ledger, until there are so many
        characters to embed; by default as many as the provider does in a few seconds. Returns the
        batch and the jobs left for a later call: the remaining ones, and those of another model
        than the first job's."""
        began = time.time_ns()
        if self._used_up:
            jobs = self._within_quota(jobs)
            if not jobs:
                return Batch([], next(iter(self.models))), []
        if any(job.version not in self.served.models for job in jobs):
            self.served.refresh()  # another process, or this one before a restart, claimed them
        model = self.served.models[jobs[0].version]
        mine = [job for job in jobs if self.served.models[job.version] is model]
        others = [job for job in jobs if self.served.models[job.version] is not model]
        batch = Batch([], model, suspect=jobs[0].crashes > 0)
        most = slice_ = min(characters or model.provider.pace.of_batch, self.memory)
        done = held = 0
        while done < len(mine) and batch.characters <= most // 2 and held < self.memory:
            taken = self._load(batch, mine[done:], min(slice_, self.memory - held))
            if not taken:
                break
            done += taken
            held += slice_
            slice_ = held  # little of it is new: double the size, so that loads stay few
        batch.oversize = batch.characters > 2 * most
        batch.mark("prepare", began)
        return batch, mine[done:] + others

    def prepare_all(self, jobs: Sequence[Job]) -> Iterator[Batch]:
        """Prepare jobs in batches that are only bounded by memory, to embed them elsewhere."""
        while jobs:
            batch, jobs = self.prepare(jobs, self.memory)
            yield batch

    def _within_quota(self, jobs: Sequence[Job]) -> list[Job]:
        """The claimed jobs whose tenants have quota left today; the others are released."""
        spent = [job for job in jobs if job.tenant in self._used_up]
        if spent:
            self.queue.release_many(spent)
        return [job for job in jobs if job.tenant not in self._used_up]

    def _load(self, batch: Batch, jobs: Sequence[Job], characters: int) -> int:
        """Load the first records, up to about `characters`, into a batch; returns how many. A
        record that is larger by itself gets its own batch, because the others, of any tenant, would
        wait for it."""
        loaded = self.store.leases.load(jobs, characters)
        if batch.items and len(loaded) == 1 and _length(loaded[0]) > characters:
            return 0
        rows = self._reader.rows(zip(jobs, loaded, strict=False))
        items: list[Item] = []
        read: dict[_Splitter, list[_Text]] = {}
        for job, found in zip(jobs, loaded, strict=False):
            if found is None:
                batch.gone.append(job)
                continue
            item, text = self._read(job, found, rows.get(job.job_id))
            items.append(item)
            if text is not None:
                splitter = self.served.chunkers[job.version], self.served.models[job.version].window
                read.setdefault(splitter, []).append(text)
        for (chunker, window), texts in read.items():
            _chunk(chunker, window, texts)
        self._take_given(batch.model, items)
        batch.add(items)
        return len(loaded)

    def _read(
        self, job: Job, loaded: Loaded | Unreadable, row: FoundRow | None
    ) -> tuple[Item, _Text | None]:
        """An item, and the text to embed if there is one."""
        if isinstance(loaded, Unreadable):
            return Item(job, job.seq, error=unreadable(loaded), permanent=True), None
        item = Item(job, loaded.seq, loaded.text_seq, trace=loaded.trace)
        try:
            title, text = self._reader.read(item, loaded, row)
        except Refused as error:
            if error.wait and self.served.needs_app(job.version):
                item.waits = str(error)
            else:
                item.error, item.permanent = str(error), error.permanent
            return item, None
        return item, None if text is None else _Text(item, loaded, title, text)

    def _take_given(self, model: Model, items: Sequence[Item]) -> None:
        """Use the vectors that came with records, instead of embedding these chunks."""
        records = [item.job.record for item in items if item.fresh]
        found = self.store.shared.given(model.key, records) if records else {}
        for item in items if found else ():
            if item.job.record not in found:
                continue
            item.given_seq, packed = found[item.job.record]
            vectors = unpack_vectors(packed, model.spec.dimensions)
            item.given = [
                Point(hash, *item.fresh.pop(hash), vectors[hash])
                for hash in vectors.keys() & item.fresh.keys()
            ]

    def calls(self, batch: Batch) -> list[range]:
        """The provider calls that a batch needs, as row ranges of its texts. A call holds as many
        texts as the provider accepts and embeds in a few seconds. A last call is not much smaller
        than the others: it would cost a GPU nearly as much as they do."""
        provider = batch.model.provider
        size, characters = max(1, provider.embedder.max_batch), provider.pace.characters
        size = math.ceil(len(batch.texts) / max(1, math.ceil(len(batch.texts) / size)))
        most = getattr(provider.embedder, "max_tokens", None)
        calls, start, length, tokens = [], 0, 0, 0
        for row, text in enumerate(batch.texts):
            needed = count_tokens(provider.embedder, text) if most else 0
            if row > start and (
                row - start >= size
                or length + len(text) > characters
                or (most and tokens + needed > most)
            ):
                calls.append(range(start, row))
                start, length, tokens = row, 0, 0
            length += len(text)
            tokens += needed
        if start < len(batch.texts):
            calls.append(range(start, len(batch.texts)))
        batch.calls_left = len(calls)
        return calls

    @STAGES.timing("embed")
    def call(self, batch: Batch, rows: range, stopping: Callable[[], bool] = lambda: False) -> Call:
        """Make one provider call, in any thread; `Batch.take` adds its result.

        An exception here concerns the whole provider, the store, the disk or the process, never a
        single text: the batch is released, and no attempt is spent. Errors of single texts are in
        the answer.
        """
        began = time.time_ns()
        try:
            answer = batch.model.provider.embed(batch.texts[rows.start : rows.stop], stopping)
        except Exception as error:  # noqa: BLE001 - no exception is the fault of a text
            return Call(rows, began, time.time_ns(), outage=error)
        return Call(rows, began, time.time_ns(), answer)

    def embed(self, batch: Batch) -> None:
        """Make all calls of a batch, one after the other, until one meets an outage."""
        for rows in self.calls(batch):
            if batch.outage is None:
                batch.take(self.call(batch, rows))

    @STAGES.timing("write")
    def write(self, batch: Batch) -> Written:
        """Write points and ledger and finish the jobs that succeeded; fail or release the others.
        If the store or index cannot be written, the same batch can be written again."""
        written, began = Written(), time.time_ns()
        self._account(batch)
        self._cache(batch)
        settled = batch.settle(self.queue.worker, self.store.now())
        for job, why in settled.postponed:
            written.released += self.queue.postpone(job, why)
        if settled.finishes:
            self._finish(settled.finishes, written)
            self._drop_given(batch)
        if settled.failures:
            ends = self.queue.fail_many(settled.failures)
            written.failed = sum(end is Status.FAILED for end in ends)
            written.retried = sum(end is Status.PENDING for end in ends)
            written.lost += sum(end is None for end in ends)
            written.errors += [(job.job_id, error) for job, error, _ in settled.failures]
        if settled.waiting:
            reason = describe(batch.outage) if batch.outage else None
            written.released += sum(self.queue.release_many(settled.waiting, reason))
        # tokens count once: other records with the same text cost nothing more
        for row in batch.counted:
            batch.tokens.pop(row, None)
        for outcome, count in written.by_outcome().items():
            ATTEMPTS.add(count, outcome)
        batch.mark("write", began)
        self._trace(batch, settled.waiting)
        return written

    def _finish(self, finishes: list[Finish], written: Written) -> None:
        """Write the points of embedded records and finish their jobs. A collection that cannot hold
        a version's vectors concerns that version only: the others are written."""
        while finishes:
            try:
                done = self._writer.finish(finishes)
            except WrongCollection as error:
                refused = [f.job for f in finishes if f.job.version == error.version]
                if not refused:
                    raise
                finishes = [f for f in finishes if f.job.version != error.version]
                self.served.refuse(error)
                written.released += sum(self.queue.release_many(refused, str(error)))
                written.errors += [(job.job_id, str(error)) for job in refused]
                continue
            except IndexMismatch:  # the jobs are for processes that have the present index
                self.queue.release_many([f.job for f in finishes])
                raise
            self.queue.recorder.finished(finishes if all(done) else list(compress(finishes, done)))
            written.succeeded = sum(done)
            written.lost += len(done) - sum(done)
            return

    def _account(self, batch: Batch) -> None:
        """Record the cost of the calls; only once, however often the batch is written."""
        spent, tokens = batch.share_costs()
        batch.model.provider.record(spent)
        batch.costs.clear()
        self.queue.recorder.spent(spent, batch.model.provider.spending.money)
        if tokens:
            self._used_up |= self.store.tenants.hold_spent({tenant for tenant, _ in spent})
        for row, count in tokens.items():
            batch.tokens[row] = batch.tokens.get(row, 0) + count

    def _cache(self, batch: Batch) -> None:
        """Store vectors in the cache for other records; a failure is only logged."""
        if not batch.model.cache or not batch.vectors:
            return
        rows = {batch.rows[hash] for item in batch.items for hash in item.fresh}
        new = {batch.texts[r]: batch.vectors[r] for r in rows if r >= 0 and r in batch.vectors}
        try:
            batch.model.cache.keep(new)
        except EvervecError as error:
            log.warning("vectors were not cached: %s", error)

    def _drop_given(self, batch: Batch) -> None:
        """Drop the vectors that came with records whose jobs are done now. If that fails,
        housekeeping drops them."""
        if not batch.used:
            return
        try:
            self.store.shared.drop_given(batch.used)
        except EvervecError as error:
            log.warning("vectors that came with records are dropped later: %s", error)

    def _trace(self, batch: Batch, waiting: list[Job]) -> None:
        """Report each record's outcome in the trace of the request that changed it."""
        for item in batch.items:
            if item.trace is not None:
                job, error = item.job, item.error
                if batch.outage is not None and job in waiting:
                    error = describe(batch.outage)
                tell(item.trace, batch.marks, error, job_id=job.job_id, kind=job.kind)


class _Text(NamedTuple):
    """What is to be chunked of a record."""

    item: Item
    loaded: Loaded
    title: str | None
    text: str


_Splitter = tuple[Chunker, Window | None]


def _chunk(chunker: Chunker, window: Window | None, texts: Sequence[_Text]) -> None:
    """Chunk records, and tell chunks that the ledger has from those to embed."""
    all_chunks = chunk_all(chunker, [(given.title, given.text) for given in texts], window)
    for (item, loaded, _, _), chunked in zip(texts, all_chunks, strict=True):
        if isinstance(chunked, Exception):
            item.error = f"the chunker failed: {describe(chunked)}"
            continue
        item.chunks, pieces = chunked
        there = {piece.hash for piece in loaded.chunks}
        for place, (piece, content) in enumerate(zip(item.chunks, pieces, strict=True)):
            if piece.hash in there:
                item.kept.setdefault(piece.hash, place)
            elif piece.hash not in item.fresh:
                item.fresh[piece.hash] = (place, content)


def _length(loaded: Loaded | Unreadable | None) -> int:
    """The characters of a record, in its row or its box."""
    return len(loaded.text or "") + len(loaded.box or "") if isinstance(loaded, Loaded) else 0
