"""The queue's functions for other languages follow the same rules as its own methods."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from evervec.model.jobs import Op
from evervec.queue.transitions import JobState, fail, finish, release, renew, retry
from support import postgres
from support.job_bench import Bench, Planted, differences
from support.job_events import LEASE, NOW
from support.job_states import SOON, TOKEN, by_two_ranks
from support.world import World


@pytest.fixture(scope="module", params=[False, True], ids=["written", "told"])
def bench(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    world = World(("postgres", "pgvector"), Path(tmp_path_factory.mktemp("bench")))
    yield Bench(world, told=request.param)
    world.close()


def some_states() -> list[JobState]:
    """A box may not be finished in SQL."""
    return [job for job in by_two_ranks() if job.op is not Op.OPEN]


CALLS: dict[str, tuple[str, Callable[[JobState], JobState]]] = {
    "finish_embedding_queue_item(job, '{token}')": (
        "held", lambda job: finish(job, job.claimed_seq or 0, NOW)
    ),
    "fail_embedding_queue_item(job, '{token}', 'bad', {delay})": (
        "held", lambda job: fail(job, "bad", SOON, NOW)
    ),
    "fail_embedding_queue_item(job, '{token}', 'bad')": (
        "held", lambda job: fail(job, "bad", None, NOW)
    ),
    "release_embedding_queue_item(job, '{token}')": ("held", release),
    "renew_embedding_queue_item(job, '{token}', {lease})": (
        "held", lambda job: renew(job, NOW, LEASE)
    ),
    "retry_embedding_queue_item(job)": ("failed", lambda job: retry(job, NOW)),
}  # fmt: skip


def call(bench: Bench, rows: Sequence[Planted], function: str, token: str) -> None:
    words = function.format(token=token, lease=LEASE, delay=SOON - NOW)
    ids = [row.job_id() for row in rows]
    postgres.execute(bench.url, f"select evervec.{words} from unnest($1::bigint[]) as job", ids)


@pytest.mark.parametrize("token", [TOKEN, "another"])
@pytest.mark.parametrize("function", CALLS)
def test_a_function_does_to_every_job_what_the_rules_say(
    bench: Bench, function: str, token: str
) -> None:
    which, rule = CALLS[function]
    rows = bench.plant(Planted((job,)) for job in some_states())
    call(bench, rows, function, token)
    before, expected = {}, {}
    for row in rows:
        (job,) = row.jobs
        assert job is not None
        meant = job.held_by(token) if which == "held" else job.status == which
        before[row.record, 0] = job
        expected[row.record, 0] = rule(job) if meant else job
    wrong = list(differences(function, before.items(), expected, bench.read()))
    assert not wrong, f"{len(wrong)} of {len(rows)}, first:\n" + "\n".join(wrong[:3])
    bench.check()


@pytest.mark.parametrize("most", [None, 2])
def test_all_dead_letters_are_retried_by_one_call(bench: Bench, most: int | None) -> None:
    rows = bench.plant(Planted((job,)) for job in some_states())
    given = "null" if most is None else most
    postgres.execute(bench.url, f"select evervec.retry_failed_embedding_queue_items({given})")
    before = {(row.record, 0): job for row in rows if (job := row.jobs[0])}
    expected = {
        key: retry(job, NOW)
        if job.status == "failed" and (most is None or job.attempts < most)
        else job
        for key, job in before.items()
    }
    wrong = list(differences("retry", before.items(), expected, bench.read()))
    assert not wrong, wrong[:3]
    bench.check()
