"""The numbers of jobs that are kept are those that counting finds, whatever happened."""

import random
from collections.abc import Callable
from contextlib import closing, suppress

import psycopg
import pytest

from evervec import Evervec, EvervecError, Job, Status
from evervec.embedders.hashing import HashingEmbedder
from evervec.stores.postgres import jobs as postgres_jobs
from support import postgres
from support.postgres import assert_counts_are_exact
from support.world import DAY, KIND, World, add_all, claim_one, work

LEASE = 60.0


class History:
    """Random acts on one store, by two tenants, as a program and in plain SQL."""

    def __init__(self, world: World, url: str, seed: int) -> None:
        self._world = world
        self._url = url
        self._draw = random.Random(seed)
        self._held: list[Job] = []
        self._held_in_sql: list[tuple[int, str]] = []
        self.acts: list[Callable[[], object]] = [
            self._add, self._add, self._add_boxed, self._add_and_roll_back, self._enqueue,
            self._delete, self._claim, self._claim, self._finish, self._finish, self._fail,
            self._release, self._renew, self._expire, self._retry_all, self._retry, self._cancel,
            self._prioritise, self._purge, self._claim_in_sql, self._end_in_sql, self._change_table,
            self._work, self._fold, self._migrate, self._pass_time, self._lose_connection,
        ]  # fmt: skip

    def act(self) -> None:
        with suppress(EvervecError, IndexError):  # what cannot be done now, or has nothing to do
            self._draw.choice(self.acts)()

    @property
    def _ev(self) -> Evervec:
        return self._draw.choice((self._world.ev, self._world.tenant("other")))

    @property
    def _id(self) -> str:
        return str(self._draw.randrange(12))

    def _some(self) -> list[Job]:
        chosen = self._draw.sample(self._held, self._draw.randint(0, len(self._held)))
        self._held = [job for job in self._held if job not in chosen]
        return chosen

    def _add(self) -> None:
        delay = self._draw.choice((0, 0, 30))
        text = f"text {self._draw.random()}"
        self._ev.add(KIND, text, id=self._id, delay=delay, priority=self._draw.randint(0, 2))

    def _add_boxed(self) -> None:
        self._ev.add(KIND, f"box {self._draw.random()}", id=self._id, boxed=True)

    def _add_and_roll_back(self) -> None:
        with closing(self._world.connect()) as conn:
            self._ev.add(KIND, "never", id=self._id, conn=conn)
            self._ev.delete(KIND, "5", conn=conn)
            conn.rollback()

    def _enqueue(self) -> None:
        self._ev.queue.enqueue_many(KIND, [self._id, self._id, self._id])

    def _delete(self) -> None:
        self._ev.delete(KIND, self._id)

    def _claim(self) -> None:
        self._held += self._world.ev.queue.claim(self._draw.randint(1, 6))

    def _finish(self) -> None:
        self._world.ev.queue.finish_many(self._some())

    def _fail(self) -> None:
        failures = [(job, "no", self._draw.random() < 0.5) for job in self._some()]
        self._world.ev.queue.fail_many(failures)

    def _release(self) -> None:
        self._world.ev.queue.release_many(self._some())

    def _renew(self) -> None:
        self._world.ev.store.leases.renew(self._held[:3], LEASE)

    def _expire(self) -> None:
        self._world.clock.move(10 * LEASE)
        self._world.ev.queue.recover_stuck()

    def _retry_all(self) -> None:
        self._ev.queue.retry_failed()

    def _retry(self) -> None:
        self._ev.queue.retry(self._job().job_id)

    def _cancel(self) -> None:
        self._ev.queue.cancel(self._job().job_id)

    def _prioritise(self) -> None:
        self._world.ev.store.jobs.set_priority(None, self._job().job_id, self._draw.randint(0, 2))

    def _job(self) -> Job:
        return self._draw.choice(self._world.ev.store.jobs.page(None))

    def _purge(self) -> None:
        jobs, now = self._world.ev.store.jobs, self._world.clock.now
        purges: list[Callable[[], object]] = [
            lambda: jobs.purge(Status.DONE, now, tenant=self._draw.choice((None, "other"))),
            lambda: jobs.purge(Status.FAILED, now, boxed=self._draw.random() < 0.5),
            lambda: jobs.purge_ended(now),
            jobs.purge_orphans,
            lambda: jobs.purge_history(now),
        ]
        self._draw.choice(purges)()

    def _claim_in_sql(self) -> None:
        claim = "select job_id, token from evervec.claim_embedding_queue_items(2)"
        self._held_in_sql += postgres.execute(self._url, claim)

    def _end_in_sql(self) -> None:
        calls = (
            "finish_embedding_queue_item($1, $2)", "release_embedding_queue_item($1, $2)",
            "fail_embedding_queue_item($1, $2, 'no')", "fail_embedding_queue_item($1, $2, 'no', 1)",
            "renew_embedding_queue_item($1, $2, 9)",
        )  # fmt: skip
        while self._held_in_sql:
            call = self._draw.choice(calls)
            with suppress(psycopg.Error):  # a boxed record is not finished in SQL
                postgres.execute(self._url, f"select evervec.{call}", *self._held_in_sql.pop())
        postgres.execute(self._url, "select evervec.retry_failed_embedding_queue_items(2)")

    def _change_table(self) -> None:
        postgres.execute(
            self._url,
            "insert into notes values ($1, $2) on conflict (id) do update set body = $2",
            int(self._id), f"row {self._draw.random()}",
        )  # fmt: skip
        postgres.execute(self._url, "delete from notes where id = $1", int(self._id))

    def _work(self) -> None:
        work(self._world.ev)

    def _fold(self) -> None:
        self._world.ev.store.jobs.fold_counts(self._draw.choice((1, 5, 1000)))

    def _migrate(self) -> None:
        """Begins, goes on with, switches or drops another version."""
        for _ in range(3):
            self._world.ev._lifecycle.step()
        migration = self._world.ev.migration()
        if migration is None:
            self._world.ev.migrate(HashingEmbedder(self._draw.choice((32, 48))))
            return
        acts = (migration.cancel, migration.rollback, migration.retire)
        self._draw.choice((lambda: migration.switch(force=True, timeout=0), *acts))()

    def _pass_time(self) -> None:
        self._world.clock.move(self._draw.choice((1, 40, DAY)))

    def _lose_connection(self) -> None:
        """The server ends a transaction whose process is lost."""
        with closing(self._world.connect()) as conn:
            self._ev.add(KIND, "never", id=self._id, conn=conn)
            pid = conn.info.backend_pid
            postgres.execute(self._url, "select pg_terminate_backend($1)", pid)


@pytest.mark.parametrize("seed", range(8))
def test_counts_are_exact_after_a_random_history(world: World, url: str, seed: int) -> None:
    postgres.execute(url, "create table notes (id int primary key, body text)")
    postgres.execute(url, "insert into notes select n, n::text from generate_series(1, 9) as n")
    world.ev.attach("notes", kind="row", text="body")
    history = History(world, url, seed)
    for _ in range(60):
        history.act()
        assert_counts_are_exact(url)


def test_a_repeated_finish_counts_once(world: World, url: str) -> None:
    add_all(world.ev, KIND, "a", "b")
    jobs = world.ev.queue.claim(2)
    for _ in range(2):
        assert world.ev.queue.finish_many(jobs) == [True, True]
        assert_counts_are_exact(url)
    assert world.ev.queue.stats().done == 2


def test_a_held_job_that_is_dropped_was_not_waiting(world: World, url: str) -> None:
    add_all(world.ev, KIND, "a", "b", "c")
    held = claim_one(world.ev)
    postgres.execute(url, "delete from evervec.jobs where job_id = $1", held.job_id)
    assert_counts_are_exact(url)
    assert world.ev.queue.stats().pending == 2


def test_stats_add_changes_to_the_totals_where_no_worker_does(
    world: World, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_jobs, "_MANY_CHANGES", 10)
    for n in range(20):
        world.ev.add(KIND, "text", id=n)
    assert world.ev.queue.stats().pending == 20
    assert postgres.execute(url, "select count(*) from evervec.job_changes") == [(0,)]
    assert world.ev.queue.stats().pending == 20
    assert_counts_are_exact(url)


def test_one_process_at_a_time_adds_changes_to_the_totals(world: World, url: str) -> None:
    add_all(world.ev, KIND, "a", "b")
    with closing(world.connect()) as conn:
        conn.execute("select evervec.fold_job_changes(1)")
        assert world.ev.store.jobs.fold_counts() == 0  # and does not wait
        assert_counts_are_exact(url)
        conn.rollback()
    assert world.ev.store.jobs.fold_counts() == 1
    assert_counts_are_exact(url)


def test_the_pace_is_of_recent_jobs(world: World, url: str) -> None:
    def do(count: int, seconds: float) -> None:
        world.ev.queue.enqueue_many(KIND, range(count))
        jobs = world.ev.queue.claim(count)
        world.clock.move(seconds)
        world.ev.queue.finish_many(jobs)
        # each stands for a hundred
        postgres.execute(
            url, "update evervec.job_changes set ended = ended * 100, seconds = seconds * 100"
        )
        world.ev.store.jobs.fold_counts()

    do(110, 8)
    for _ in range(8):
        do(110, 1)
    pace = world.ev.queue.stats().average_processing_ms
    assert pace is not None
    assert 1000 <= pace < 1100


def test_counting_again_mends_what_foreign_statements_did(world: World, url: str) -> None:
    add_all(world.ev, KIND, "a", "b", "c")
    world.ev.queue.finish(claim_one(world.ev))
    postgres.execute(url, "update evervec.jobs set status = 'done' where status = 'pending'")
    postgres.execute(url, "delete from evervec.ready")
    postgres.execute(url, "select evervec.recount_jobs()")
    assert_counts_are_exact(url)
    assert world.ev.queue.stats().done == 3


def test_the_attempts_of_a_locked_job_stay_with_it(world: World, url: str) -> None:
    add_all(world.ev, KIND, "a", "b")
    work(world.ev)
    world.clock.move(DAY)
    with closing(world.connect()) as conn:
        world.ev.add(KIND, "changed", id="0", conn=conn)
        assert world.ev.store.jobs.purge_ended(world.clock.now) == (1, 1)
        conn.rollback()
    assert len(world.ev.queue.history(KIND, "0")) == 1
    assert world.ev.store.jobs.purge_ended(world.clock.now) == (1, 1)
    assert world.ev.queue.history(KIND, "0") == []
