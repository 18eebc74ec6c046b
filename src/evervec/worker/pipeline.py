"""The stages of a worker, in order: claim, prepare, embed, write.

Each stage is a plain method that starts no threads, so that tests can step through them; `worker`
overlaps them. A batch carries all data between the stages. Only chunks that are not in the ledger
are embedded, and nothing is written for a record until all of its chunks are embedded.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import compress, groupby
from operator import attrgetter

from evervec.chunking import Chunker, Cutter, chunk, parse_chunker
from evervec.embedders.base import count_tokens, describe
from evervec.embedding.registry import EmbedderRegistry, Model
from evervec.errors import EvervecError, IndexUnavailable, InvalidInput, WrongCollection
from evervec.indexes.base import Index
from evervec.indexes.location import check_generation, generation
from evervec.model.jobs import Job, Status
from evervec.model.records import Change, Point
from evervec.queue.queue import Queue
from evervec.records.kinds import Kind
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.stores.values import Collection, Finish, KindSpec, Loaded, Unreadable
from evervec.tables.tables import FoundRow, Tables
from evervec.telemetry.counters import ATTEMPTS, CHUNKS, FRESHNESS, STAGES
from evervec.telemetry.traces import tell
from evervec.worker.batch import Batch, Call, Item, Written
from evervec.worker.index_writer import IndexWriter
from evervec.worker.reader import RecordReader, Refused

log = logging.getLogger("evervec")

_ASK_AGAIN = 5.0
"""seconds between two checks of a collection that cannot hold a version's vectors"""
_PATIENCE = 0.1
"""seconds that work for one model waits for another model's provider to answer"""


class Pipeline:
    """The stages over one store and index, for all models of this process."""

    def __init__(
        self,
        store: Store,
        index: Index,
        models: EmbedderRegistry,
        queue: Queue,
        kinds: Mapping[str, Kind],
        tables: Tables,
        contents: RecordReader,
        settings: Settings,
    ) -> None:
        self.store = store
        self.index = index
        self.models = models
        self.queue = queue
        self._kinds = kinds
        self._tables = tables
        self._contents = contents
        self._chunkers: dict[int, Chunker] = {}
        self._makers: dict[int, Model] = {}
        self._unavailable: list[Model] = []
        self._served: tuple[list[Collection], tuple[object, ...], float, list[int]] = (
            [],
            (),
            0.0,
            [],
        )
        """cached result of `serves`: collections, models and kinds it was computed from, expiry,
        versions"""
        self._used_up: set[str] = set()
        """tenants that used up their daily quota since the last claim; their jobs are released"""
        self._refused: dict[int, float] = {}
        """versions whose collection in the index is wrong, and when to check again"""
        self._generation = generation(store)
        self._writer = IndexWriter(store, index, queue, settings.lease_seconds)
        self.memory = settings.memory_mb << 19
        """characters of text held at once: half of the setting, the rest is for data derived from
        them"""

    def serves(self) -> list[int]:
        """The versions whose jobs this process can do: it has the model and the chunker. Also
        describes its models and chunkers to the store."""
        found, known = self.store.versions.collections(), self._models_and_kinds()
        told, knew, until, served = self._served
        if found is told and known == knew and time.monotonic() < until:
            return served
        found, served, until = self._describe_collections(), [], math.inf
        for c in found:
            model = self.models.of(c.spec)
            if c.state == "retired":
                continue
            if model is None:  # it may become possible to open the model later
                until = time.monotonic() + _ASK_AGAIN
            elif chunker := self.chunker_of(c):
                self._chunkers[c.version] = chunker
                self._makers[c.version] = model
                served.append(c.version)
        self._served = (found, self._models_and_kinds(), until, served)
        return served

    def _models_and_kinds(self) -> tuple[object, ...]:
        """The models and kinds that this process has."""
        return (*self.models, *self._kinds.values())

    def chunker_of(self, c: Collection) -> Chunker | None:
        """The chunker of a collection; None where this process lacks the model, or the code of the
        kind's chunker or loader."""
        model, kind = self.models.of(c.spec), self._kinds.get(c.kind)
        if model is None or (c.app and kind is None):
            return None
        own = kind.chunker if kind else None
        return own or parse_chunker(c.chunker, model.chunker)

    def cutter_of(self, c: Collection) -> Cutter | None:
        """The collection's chunker together with its model's window."""
        chunker, model = self.chunker_of(c), self.models.of(c.spec)
        return Cutter(chunker, model.window) if chunker and model else None

    def _describe_collections(self) -> list[Collection]:
        """The store's collections, after the store was given the models and chunkers of this
        process."""
        found = self.store.versions.collections()
        spec = self.models.for_new_kinds(found)
        if spec and any(c.spec is None for c in found):
            self.store.versions.adopt(spec)
            found = self.store.versions.collections()
        told = {c.version: way for c in found if (way := self._undescribed(c))}
        if told:
            self.store.versions.describe(told)
            found = self.store.versions.collections()
        return found

    def _undescribed(self, c: Collection) -> KindSpec | None:
        """How this process chunks a collection's texts, if the store does not have that yet."""
        model, kind = self.models.of(c.spec), self._kinds.get(c.kind)
        if model is None or (kind is None and (c.chunker or c.app)):
            return None
        way = kind.spec(model.chunker) if kind else KindSpec(model.chunker.spec)
        return None if (way.chunker, way.app) == (c.chunker, c.app) else way

    def ready(self, stopping: Callable[[], bool] = lambda: False) -> bool:
        """Whether the provider of any model may be called now."""
        models = list(self.models)
        if len(models) > 1:  # a provider that hangs must not delay the others
            models.sort(key=lambda model: model.provider.gate() is not None)
        ready = [m for m in models[:1] if m.provider.ready(stopping)]
        deadline = time.monotonic() + (_PATIENCE if ready else math.inf)
        ready += [
            m
            for m in models[1:]
            if m.provider.ready(lambda: stopping() or time.monotonic() > deadline)
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
        check_generation(self.store, self._generation)
        self._tables.attempt(self._tables.follow)
        served = self.serves()
        if self._refused:
            served = [version for version in served if not self._is_refused(version)]
        if self._unavailable:
            served = [
                version for version in served if self._makers[version] not in self._unavailable
            ]
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
        strange = [job for job in claimed if job.version not in self._makers]
        if strange:
            self.queue.release_many(strange)
            claimed = [job for job in claimed if job.version in self._makers]
        return claimed

    def check_followed(self) -> None:
        """Raise the error that keeps attached tables from being followed; called when no other work
        is left."""
        if failing := self._tables.failing:
            raise failing

    def _refuse(self, error: WrongCollection) -> None:
        """Claim no jobs of a version until the index can hold its vectors."""
        if error.version not in self._refused:
            log.error("jobs of an embedding version are waiting: %s", error)
        self._refused[error.version] = time.monotonic() + _ASK_AGAIN

    def _is_refused(self, version: int) -> bool:
        if time.monotonic() < self._refused.get(version, math.inf):
            return version in self._refused
        found = next((c for c in self.store.versions.collections() if c.version == version), None)
        try:
            refused = found and found.spec and self.index.refuses(found.kind, found.spec)
        except IndexUnavailable as error:
            refused = str(error)
        if refused:
            self._refused[version] = time.monotonic() + _ASK_AGAIN
        else:
            del self._refused[version]
        return bool(refused)

    @STAGES.timing("prepare")
    def prepare(self, jobs: Sequence[Job]) -> tuple[Batch, Sequence[Job]]:
        """Load and chunk claimed jobs and compare them with the ledger, until there is as much to
        embed as the provider does in a few seconds. Returns the batch and the jobs left for a later
        call: the remaining ones, and those of another model than the first job's."""
        began = time.time_ns()
        if self._used_up:
            jobs = self._within_quota(jobs)
            if not jobs:
                return Batch([], next(iter(self.models))), []
        model = self._makers[jobs[0].version]
        mine = [job for job in jobs if self._makers[job.version] is model]
        others = [job for job in jobs if self._makers[job.version] is not model]
        batch = Batch([], model, suspect=jobs[0].crashes > 0)
        most = slice_ = min(model.provider.pace.of_batch, self.memory)
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
        rows = self._contents.rows(zip(jobs, loaded, strict=False))
        items = []
        for job, found in zip(jobs, loaded, strict=False):
            if found is None:
                batch.gone.append(job)
            else:
                items.append(self._prepare(job, found, rows.get(job.job_id)))
        batch.items += items
        self._gather(batch, items)
        return len(loaded)

    def _gather(self, batch: Batch, items: Sequence[Item]) -> None:
        """Collect the texts to embed, each once; texts whose vectors are cached are left out."""
        fresh = {
            hash: (text, item.job)
            for item in items
            for hash, (_, text) in item.fresh.items()
            if hash not in batch.rows
        }
        cache = batch.model.cache
        known = cache.find([text for text, _ in fresh.values()]) if cache else {}
        for hash, (text, job) in fresh.items():
            vector = known.get(text)
            if vector is not None:
                batch.rows[hash] = -1 - len(batch.rows)  # negative: not a row of `texts`
                batch.vectors[batch.rows[hash]] = vector
                continue
            batch.rows[hash] = len(batch.texts)
            batch.texts.append(text)
            batch.owners.append((job.tenant, job.kind))
            batch.characters += len(text)

    def _prepare(self, job: Job, loaded: Loaded | Unreadable, row: FoundRow | None) -> Item:
        if isinstance(loaded, Unreadable):
            error = f"record is unreadable ({loaded.error}): add it again"
            return Item(job, job.seq, error=error, permanent=True)
        item = Item(job, loaded.seq, trace=loaded.trace)
        try:
            title, text = self._contents.read(item, loaded, row)
        except Refused as error:
            if error.wait and self._is_for_app(job.version):
                item.waits = str(error)
            else:
                item.error, item.permanent = str(error), error.permanent
            return item
        if text is None:
            return item
        try:
            window = self._makers[job.version].window
            item.chunks, texts = chunk(self._chunkers[job.version], title, text, window)
        except Exception as error:  # noqa: BLE001 - a kind's own chunker may raise anything
            item.error = f"the chunker failed: {describe(error)}"
            return item
        there = {piece.hash for piece in loaded.chunks}
        for place, (piece, content) in enumerate(zip(item.chunks, texts, strict=True)):
            if piece.hash in there:
                item.kept.setdefault(piece.hash, place)
            elif piece.hash not in item.fresh:
                item.fresh[piece.hash] = (place, content)
        return item

    def _is_for_app(self, version: int) -> bool:
        """Whether only a process that registered the kind can do its jobs; read again, because it
        may have changed since the claim."""
        return any(c.app for c in self.store.versions.collections() if c.version == version)

    def calls(self, batch: Batch) -> list[range]:
        """The provider calls that a batch needs, as row ranges of its texts. A call holds as many
        texts as the provider accepts and embeds in a few seconds."""
        provider = batch.model.provider
        size, characters = max(1, provider.embedder.max_batch), provider.pace.characters
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
        batch.counted.clear()
        self._cache(batch)
        finishes, failures, waiting = [], [], []
        for item in batch.items:
            self._settle(item, batch)
            if item.waits is not None:
                written.released += self.queue.postpone(item.job, item.waits)
            elif item.error is not None:
                failures.append((item.job, item.error, item.permanent))
            elif batch.is_embedded(item):
                finishes.append(self._finish(item, batch))
            else:
                waiting.append(item.job)
        while finishes:
            try:
                done = self._writer.finish(finishes)
            except WrongCollection as error:  # concerns one version: the others are written
                refused = [f.job for f in finishes if f.job.version == error.version]
                if not refused:
                    raise
                finishes = [f for f in finishes if f.job.version != error.version]
                self._refuse(error)
                written.released += sum(self.queue.release_many(refused, str(error)))
                written.errors += [(job.job_id, str(error)) for job in refused]
                continue
            self._tell(finishes, done)
            written.succeeded = sum(done)
            written.lost += len(done) - sum(done)
            break
        if failures:
            ends = self.queue.fail_many(failures)
            written.failed = sum(end is Status.FAILED for end in ends)
            written.retried = sum(end is Status.PENDING for end in ends)
            written.lost += sum(end is None for end in ends)
            written.errors += [(job.job_id, error) for job, error, _ in failures]
        if waiting:
            reason = describe(batch.outage) if batch.outage else None
            written.released += sum(self.queue.release_many(waiting, reason))
        # tokens count once: other records with the same text cost nothing more
        for row in batch.counted:
            batch.tokens.pop(row, None)
        for outcome, count in written.by_outcome().items():
            ATTEMPTS.add(count, outcome)
        batch.mark("write", began)
        self._trace(batch, waiting)
        return written

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

    def _trace(self, batch: Batch, waiting: list[Job]) -> None:
        """Report each record's outcome in the trace of the request that changed it."""
        for item in batch.items:
            if item.trace is not None:
                job, error = item.job, item.error
                if batch.outage is not None and job in waiting:
                    error = describe(batch.outage)
                tell(item.trace, batch.marks, error, job_id=job.job_id, kind=job.kind)

    def _tell(self, finishes: list[Finish], done: list[bool]) -> None:
        """Count the records that became searchable."""
        good = finishes if all(done) else list(compress(finishes, done))
        now = self.store.now()
        # records saved together share their due time and are adjacent in the claim
        for due, same in groupby(good, attrgetter("job.scheduled_for")):
            FRESHNESS.observe(max(0.0, now - due.timestamp()), times=sum(1 for _ in same))
        CHUNKS.add(sum(map(attrgetter("embedded"), good)), "embedded")
        CHUNKS.add(sum(map(attrgetter("reused"), good)), "reused")

    def _account(self, batch: Batch) -> None:
        """Share the cost of the calls among their texts, by length; only once, however often the
        batch is written."""
        spent: dict[tuple[str, str], tuple[float, float]] = {}
        share: dict[int, int] = {}
        for cost in batch.costs:
            if not cost.tokens:
                continue
            lengths = [len(batch.texts[row]) for row in cost.rows]
            each, whole, upto, shared = cost.calls / len(lengths), sum(lengths), 0, 0
            for row, length in zip(cost.rows, lengths, strict=True):
                upto += length
                # rounded so that the shares add up to the total
                tokens = round(cost.tokens * upto / whole) - shared
                shared += tokens
                share[row] = share.get(row, 0) + tokens
                calls, so_far = spent.get(batch.owners[row], (0.0, 0.0))
                spent[batch.owners[row]] = (calls + each, so_far + tokens)
        batch.model.provider.record(spent)
        batch.costs.clear()
        if share:
            self._used_up |= self.store.tenants.hold_spent({tenant for tenant, _ in spent})
        for row, tokens in share.items():
            batch.tokens[row] = batch.tokens.get(row, 0) + tokens

    def _settle(self, item: Item, batch: Batch) -> None:
        """Fail a record with the error of its first chunk that failed."""
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
        embedded = sum(batch.rows[hash] >= 0 for hash in item.fresh)
        # a text shared by several records is counted for the first of them
        mine = {batch.rows[hash] for hash in item.fresh} - batch.counted
        batch.counted |= mine
        change = Change(
            job.record, job.version, job.tenant, job.kind, job.record_id, item.seq,
            points, item.kept, item.metadata, item.weight, item.updated_at,
        )  # fmt: skip
        return Finish(
            job, change, item.chunks, item.reveal, item.gone,
            embedded=embedded, reused=len(item.kept) + len(points) - embedded,
            tokens=sum(batch.tokens.get(row, 0) for row in mine),
            worker=self.queue.worker,
        )  # fmt: skip


def _length(loaded: Loaded | Unreadable | None) -> int:
    """The characters of a record, in its row or its box."""
    return len(loaded.text or "") + len(loaded.box or "") if isinstance(loaded, Loaded) else 0
