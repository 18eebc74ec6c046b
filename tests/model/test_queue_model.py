"""Whatever happens in whatever order: when faults stop, the index is true to the records.

A machine adds, boxes, deletes, claims, fails, crashes and cares at random beside a small
model of what must be visible. At the end everything due is done, and the index holds the
latest version of every live record once, nothing of deleted ones, and search agrees.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from evervec import Job, Status
from evervec.worker.batch import Batch
from support import postgres
from support.engines import STORES
from support.world import KIND, World, assert_in_step, held, paragraph, work

IDS = st.sampled_from(["a", "b", "c", "d"])
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon")
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(
    lambda words: "\n\n".join(paragraph(word) for word in words)
)
PICK = st.integers(0, 10**6)
FOREVER = 10**9


class Synced(RuleBasedStateMachine):
    """Records as they must be seen, beside the store as it is."""

    pair = ("memory", "sqlite")

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.world = World(self.pair, Path(self.folder.name), max_attempts=FOREVER)
        self.ev = self.world.ev
        self.live: dict[str, str] = {}
        self.boxes: dict[str, list[str]] = {}
        self.claimed: list[list[Job]] = []
        self.prepared: list[Batch] = []
        self.last_seq = 0
        self.tokens: set[str] = set()
        self.cancelled = False

    def teardown(self) -> None:
        try:
            self.settle()
        finally:
            self.world.close()
            self.folder.cleanup()

    # what callers do

    @rule(id=IDS, text=TEXTS, priority=st.integers(-1, 1), delay=st.sampled_from([0, 0, 5]))
    def add(self, id: str, text: str, priority: int, delay: float) -> None:
        ticket = self.ev.add(KIND, text, id=id, priority=priority, delay=delay)
        assert ticket.accepted
        self.live[id] = text
        self.boxes.pop(id, None)

    @rule(items=st.lists(st.tuples(IDS, TEXTS), min_size=1, max_size=5))
    def add_many(self, items: list[tuple[str, str]]) -> None:
        tickets = list(self.ev.add_many(KIND, ({"id": id, "text": text} for id, text in items)))
        assert [t.id for t in tickets] == [id for id, _ in items]
        for id, text in items:
            self.live[id] = text
            self.boxes.pop(id, None)

    @rule(id=IDS, text=TEXTS)
    def box(self, id: str, text: str) -> None:
        before = self.ev.get(KIND, id)
        self.ev.add(KIND, text, id=id, boxed=True)
        assert self.ev.get(KIND, id) == before
        self.boxes.setdefault(id, []).append(text)

    @rule(id=IDS)
    def delete(self, id: str) -> None:
        known = id in self.live or id in self.boxes
        assert self.ev.delete(KIND, id).accepted == known
        self.live.pop(id, None)
        self.boxes.pop(id, None)

    @rule(id=IDS, n=st.integers(0, 9))
    def metadata(self, id: str, n: int) -> None:
        if id in self.live and id not in self.boxes:
            self.ev.add(KIND, self.live[id], id=id, metadata={"n": n})

    @precondition(lambda self: self.live)
    @rule(pick=PICK)
    def enqueue(self, pick: int) -> None:
        id = sorted(self.live)[pick % len(self.live)]
        self.ev.queue.enqueue(KIND, id)

    # what workers do

    @rule(limit=st.integers(1, 3))
    def claim(self, limit: int) -> None:
        jobs = self.ev.pipeline.claim(limit)
        if jobs:
            tokens = {j.token for j in jobs if j.token}
            assert not tokens & self.tokens
            self.tokens |= tokens
            self.claimed.append(list(jobs))

    @precondition(lambda self: self.claimed)
    @rule(pick=PICK)
    def prepare(self, pick: int) -> None:
        jobs = self.claimed.pop(pick % len(self.claimed))
        batch, rest = self.ev.pipeline.prepare(jobs)
        assert not rest
        self.prepared.append(batch)

    @precondition(lambda self: self.prepared)
    @rule(pick=PICK)
    def finish(self, pick: int) -> None:
        batch = self.prepared.pop(pick % len(self.prepared))
        self.ev.pipeline.embed(batch)
        self.ev.pipeline.write(batch)
        self.learn_revealed()

    @precondition(lambda self: self.claimed)
    @rule(pick=PICK, permanent=st.booleans())
    def fail(self, pick: int, permanent: bool) -> None:
        jobs = self.claimed.pop(pick % len(self.claimed))
        self.ev.queue.fail_many([(job, "by chance", permanent) for job in jobs])

    @precondition(lambda self: self.claimed)
    @rule(pick=PICK)
    def release(self, pick: int) -> None:
        self.ev.queue.release_many(self.claimed.pop(pick % len(self.claimed)))

    @rule(zombie=st.booleans())
    def crash(self, zombie: bool) -> None:
        """All leases run out; the dead stay dead, or come back later with what they hold."""
        self.world.clock.move(61)
        if not zombie:
            self.claimed.clear()
            self.prepared.clear()

    @rule()
    def recover(self) -> None:
        self.ev.queue.recover_stuck()

    @rule(seconds=st.sampled_from([1, 6, 400]))
    def wait(self, seconds: float) -> None:
        self.world.clock.move(seconds)

    # what people do

    @rule()
    def retry_failed(self) -> None:
        failed = len(self.ev.queue.failed())
        assert self.ev.queue.retry_failed() == failed

    @precondition(lambda self: self.jobs(Status.PENDING, Status.FAILED))
    @rule(pick=PICK)
    def cancel(self, pick: int) -> None:
        jobs = self.jobs(Status.PENDING, Status.FAILED)
        job = jobs[pick % len(jobs)]
        self.ev.queue.cancel(job.job_id)
        self.boxes.pop(job.record_id, None)
        self.cancelled = True

    @precondition(lambda self: self.jobs(Status.PENDING))
    @rule(pick=PICK, priority=st.integers(-5, 5))
    def set_priority(self, pick: int, priority: int) -> None:
        jobs = self.jobs(Status.PENDING)
        self.ev.queue.set_priority(jobs[pick % len(jobs)].job_id, priority)

    @rule()
    def sweep(self) -> None:
        self.ev._housekeeping.sweep()

    # what must hold all the while

    @invariant()
    def records_are_what_was_last_written(self) -> None:
        shown = {r.id: r.text for r in self.ev.records()}
        assert shown == self.live

    @invariant()
    def searches_find_only_what_is_there(self) -> None:
        for mode in ("text", "semantic"):
            assert {h.id for h in self.ev.search("alpha", mode=mode)} <= self.live.keys()

    @invariant()
    def no_chunk_is_in_the_index_twice(self) -> None:
        for hashes in held(self.ev).values():
            assert len(hashes) == len(set(hashes))

    def jobs(self, *statuses: Status) -> list[Job]:
        return [job for job in self.ev.queue.jobs(limit=1000) if job.status in statuses]

    def learn_revealed(self) -> None:
        """A finish may have opened a box: one of those that wait, and none that was replaced."""
        shown: dict[str, Any] = {r.id: r.text for r in self.ev.records()}
        for id, boxes in list(self.boxes.items()):
            text = shown.get(id)
            if text is not None and text != self.live.get(id):
                assert text in boxes
                self.live[id] = text

    # when faults stop

    def settle(self) -> None:
        self.world.clock.move(10_000)
        self.ev.queue.recover_stuck()
        self.ev.queue.retry_failed()
        if self.cancelled:
            self.ev.verify(repair=True)
        work(self.ev)
        assert not self.jobs(Status.PENDING, Status.PROCESSING, Status.FAILED)
        final = self.live | {id: boxes[-1] for id, boxes in self.boxes.items()}
        assert {r.id: r.text for r in self.ev.records()} == final
        assert_in_step(self.ev, final)
        for batch in self.prepared:  # the dead come back too late
            self.ev.pipeline.embed(batch)
            assert self.ev.pipeline.write(batch).succeeded == 0
        assert_in_step(self.ev, final)
        for word in WORDS:
            holding = {id for id, text in final.items() if word in text}
            assert {h.id for h in self.ev.search(word, mode="text")} == holding
            near = self.ev.search(word, mode="semantic")
            assert {h.id for h in near if (h.similarity or 0) > 0.99} == holding
            assert {h.id for h in near} == final.keys()


TestSynced = Synced.TestCase
TestSynced.settings = settings(
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow],
)


class SyncedInPostgres(Synced):
    """The same over a server, where each step takes longer."""

    pair = ("postgres", "pgvector")

    @invariant()
    def none_is_astray(self) -> None:
        postgres.assert_none_is_astray(STORES["postgres"].url(self.world.folder))


TestSyncedInPostgres = SyncedInPostgres.TestCase
TestSyncedInPostgres.settings = settings(
    TestSynced.settings,
    max_examples=max(5, settings.default.max_examples // 10 if settings.default else 0),
)


class SyncedInDuckdb(Synced):
    """The same in a file for one process, which is closed and opened again now and then."""

    pair = ("duckdb", "duckdb")

    @rule()
    def open_again(self) -> None:
        self.prepared.clear()  # they end with the process; its leases do not
        self.ev.close()
        self.ev = self.world.open()


TestSyncedInDuckdb = SyncedInDuckdb.TestCase
TestSyncedInDuckdb.settings = settings(
    TestSynced.settings,
    max_examples=max(2, settings.default.max_examples // 30 if settings.default else 0),
)
