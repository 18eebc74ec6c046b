"""One store, index and embedder under test, with a clock that only the test moves."""

import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

import evervec
from evervec import ContentChunker, Evervec, Job, Ticket
from evervec.chunking import chunk
from evervec.embedders.base import NoopEmbedder
from evervec.embedders.hashing import HashingEmbedder
from evervec.worker.batch import Written
from support.engines import INDEXES, STORES

START = 1_800_000_000.0
DAY = 86400.0
KIND = "note"
PATIENCE = 60.0


class Clock:
    """Seconds since the epoch, as the test says."""

    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += seconds


class ScriptedEmbedder(HashingEmbedder):
    """Hashes words, keeps what it was asked, and does first what the test says."""

    def __init__(self, dimensions: int = 64, max_batch: int = 256) -> None:
        super().__init__(dimensions)
        self.max_batch = max_batch
        self.calls: list[list[str]] = []
        self.before: Callable[[Sequence[str]], object] | None = None
        self._lock = Lock()

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        with self._lock:
            self.calls.append(list(texts))
        if self.before is not None:
            self.before(texts)
        return super().embed(texts)

    @property
    def texts(self) -> list[str]:
        """All texts it was asked for, in order."""
        return [text for call in self.calls for text in call]


class World:
    """What one test works with; `ev` belongs to the tenant `default`."""

    def __init__(self, pair: tuple[str, str], folder: Path, **settings: Any) -> None:
        self.store_name, self.index_name = pair
        self.folder = folder
        made = STORES[self.store_name].clock
        self.clock: Any = made(folder, START) if made else Clock()
        self.embedder = ScriptedEmbedder()
        self._settings = {
            "clock": self.clock, "rng": random.Random(7), "chunk_tokens": 16, **settings
        }  # fmt: skip
        self.opened: list[Evervec] = []
        self.ev = self.open()

    def open(self, **given: Any) -> Evervec:
        """Open the store once more, with connections and caches of its own."""
        options = {"embedder": self.embedder, **self._settings, **given}
        ev = evervec.open(
            STORES[self.store_name].url(self.folder),
            index=INDEXES[self.index_name].url(self.folder),
            **options,
        )
        self.opened.append(ev)
        return ev

    def tenant(self, name: str) -> Evervec:
        """The same store and index as another tenant sees them."""
        return Evervec(self.ev.store, self.ev.index, self.embedder, name, self.ev.settings)

    def without_embedder(self) -> Evervec:
        """The same store and index with no embedder."""
        return Evervec(
            self.ev.store, self.ev.index, NoopEmbedder(), self.ev.tenant, self.ev.settings
        )

    def connect(self) -> Any:
        """The caller's own connection to the store."""
        connect = STORES[self.store_name].connect
        return connect(self.folder) if connect else self.ev.connection()

    def connect_elsewhere(self) -> Any:
        """A connection to another place than the store's."""
        connect = STORES[self.store_name].elsewhere
        assert connect is not None
        return connect()

    def close(self) -> None:
        for ev in self.opened:
            ev.close()
        STORES[self.store_name].leave(self.folder)
        INDEXES[self.index_name].leave(self.folder)


def step(ev: Evervec, jobs: Sequence[Job]) -> Written:
    """Bring claimed jobs through the stages, one after the other."""
    total, rest = Written(), jobs
    while rest:
        batch, rest = ev.pipeline.prepare(rest)
        ev.pipeline.embed(batch)
        total.add(ev.pipeline.write(batch))
    return total


def work(ev: Evervec) -> Written:
    """Do all that is due, in this thread. An outage ends it."""
    total = Written()
    while ev.provider.try_resume() and (jobs := ev.pipeline.claim(256)):
        written = step(ev, jobs)
        total.add(written)
        if written.released:
            break
    return total


def add_all(ev: Evervec, kind: str, *texts: str) -> list[Ticket]:
    """Records "0", "1", … with these texts."""
    return list(ev.add_many(kind, ({"id": i, "text": text} for i, text in enumerate(texts))))


def paragraph(word: str) -> str:
    """A text of that word which fills a chunk of a `World` by itself."""
    return " ".join([word] * (50 // (len(word) + 1))) + "."


def claim_one(ev: Evervec) -> Job:
    (job,) = ev.queue.claim(1)
    return job


def job_of(ev: Evervec, id: str, kind: str = KIND) -> Job:
    job = ev.queue.status(kind, id)
    assert job is not None
    return job


def version_of(ev: Evervec, kind: str = KIND) -> int:
    """The number of a kind's only version."""
    (found,) = [c.version for c in ev.store.versions.collections() if c.kind == kind]
    return found


def claimed_order(ev: Evervec) -> list[str]:
    """The ids of all due jobs in the order in which they are claimed, one by one."""
    order = []
    while jobs := ev.queue.claim(1):
        order.append(jobs[0].record_id)
    return order


def fail_for_good(ev: Evervec, id: str = "1", kind: str = KIND) -> Job:
    """Make a pending job a dead letter."""
    wanted = job_of(ev, id, kind).job_id
    jobs = ev.queue.claim(1000)
    for job in jobs:
        if job.job_id == wanted:
            ev.queue.fail(job, "it is bad", permanent=True)
        else:
            ev.queue.release(job)
    return job_of(ev, id, kind)


Held = dict[tuple[str, str, str], list[bytes]]


def held(ev: Evervec) -> Held:
    """Tenant, kind and id of all that the index holds, with the hashes of its points."""
    found: Held = defaultdict(list)
    for collection in ev.store.versions.collections():
        names = {
            e.record: (e.tenant, e.kind, e.id)
            for e in ev.store.records.expected(None, collection.version, 0, 1_000_000)
        }
        for point in ev.index.held(collection.version, None, 0, None):
            found[names.get(point.record, (point.tenant, "?", str(point.record)))].append(
                point.hash
            )
    return {key: sorted(hashes) for key, hashes in found.items()}


def hashes_of(text: str, title: str | None = None, size: int = 64) -> list[bytes]:
    """The points that a text must have, each once."""
    chunks, _ = chunk(ContentChunker(size), title, text)
    return sorted({piece.hash for piece in chunks})


def assert_in_step(ev: Evervec, texts: dict[str, str], kind: str = KIND) -> None:
    """The index holds exactly these records of the kind, each chunk once, and nothing else."""
    mine = {id: h for (tenant, k, id), h in held(ev).items() if (tenant, k) == (ev.tenant, kind)}
    assert mine == {id: hashes_of(text) for id, text in texts.items()}
    report = ev.verify()
    assert report.clean, report


def until(ev: Evervec, condition: Callable[[], Any]) -> None:
    """Wait for a condition, looking at it after every change of the store."""
    end = time.monotonic() + PATIENCE
    seen = -1
    while not condition():
        assert time.monotonic() < end, "it never came to pass"
        seen = ev.store.wait(seen, 0.05)
