"""The queue worked in plain SQL, as a program in another language does."""

from typing import Any

import psycopg
import pytest

from evervec import Status
from support import postgres
from support.world import KIND, World, fail_for_good, job_of, work

CLAIM = """select job_id, token, kind, record_id, body, attempts
           from evervec.claim_embedding_queue_items($1, $2, $3)"""


def claim(url: str, count: int = 1, lease: float = 60.0) -> list[tuple[Any, ...]]:
    return postgres.execute(url, CLAIM, count, lease, "rust-7")


def call(url: str, name: str, *values: Any) -> Any:
    places = ", ".join(f"${n}" for n in range(1, len(values) + 1))
    return postgres.execute(url, f"select evervec.{name}_embedding_queue_item({places})", *values)[
        0
    ][0]


def test_a_claimed_item_is_finished_once(world: World, url: str) -> None:
    world.ev.add(KIND, "alpha", id="1", title="a")
    ((job, token, kind, id, body, attempts),) = claim(url, 5)
    assert (kind, id, body, attempts) == (KIND, "1", "alpha", 1)
    assert claim(url, 5) == []
    assert world.ev.queue.claim(5) == []
    assert job_of(world.ev, "1").worker == "rust-7"
    assert not call(url, "finish", job, "wrong")
    assert call(url, "finish", job, token)
    assert call(url, "finish", job, token)  # its answer may have been lost
    assert job_of(world.ev, "1").status is Status.DONE
    (attempt,) = world.ev.queue.history(KIND, "1")
    assert (attempt.worker, attempt.outcome) == ("rust-7", "done")


def test_an_update_that_lands_meanwhile_waits_for_its_own_turn(world: World, url: str) -> None:
    world.ev.add(KIND, "alpha", id="1")
    ((job, token, *_),) = claim(url)
    world.ev.add(KIND, "beta", id="1")
    assert call(url, "finish", job, token)
    ((again, _, _, _, body, attempts),) = claim(url)
    assert (again, body, attempts) == (job, "beta", 1)


@pytest.mark.parametrize(("retry_in", "ends"), [(30.0, "pending"), (None, "failed")])
def test_a_failure_waits_or_is_a_dead_letter(
    world: World, url: str, retry_in: float | None, ends: str
) -> None:
    world.ev.add(KIND, "alpha", id="1")
    ((job, token, *_),) = claim(url)
    assert call(url, "fail", job, "wrong", "no", retry_in) is None
    assert call(url, "fail", job, token, "no good", retry_in) == ends
    assert call(url, "fail", job, token, "again", retry_in) is None
    assert (job_of(world.ev, "1").status, job_of(world.ev, "1").error) == (ends, "no good")
    assert claim(url) == []
    if retry_in:
        world.clock.move(31)
        assert len(claim(url)) == 1


def test_the_last_attempt_is_a_dead_letter_though_a_retry_was_asked_for(
    world: World, url: str
) -> None:
    world.ev.add(KIND, "alpha", id="1", max_attempts=1)
    ((job, token, *_),) = claim(url)
    assert call(url, "fail", job, token, "no good", 5.0) == "failed"


def test_a_lease_can_be_renewed_and_given_back_and_is_lost_in_time(world: World, url: str) -> None:
    world.ev.add(KIND, "alpha", id="1")
    ((job, token, *_),) = claim(url, lease=10.0)
    assert call(url, "renew", job, token, 100.0)
    world.clock.move(50)
    assert world.ev.queue.recover_stuck() == 0
    assert call(url, "release", job, token)
    assert not call(url, "renew", job, token, 100.0)
    ((_, token, *_, attempts),) = claim(url, lease=10.0)
    assert attempts == 1
    world.clock.move(11)
    assert world.ev.queue.recover_stuck() == 1
    assert not call(url, "finish", job, token)


def test_another_token_ends_nothing_of_a_lease_that_was_renewed(world: World, url: str) -> None:
    world.ev.add(KIND, "alpha", id="1")
    ((job, token, *_),) = claim(url)
    assert call(url, "renew", job, token, 100.0)  # which writes the lease to the job
    assert not call(url, "finish", job, "wrong")
    assert job_of(world.ev, "1").status is Status.PROCESSING
    assert call(url, "finish", job, token)


def test_a_boxed_record_is_not_finished_unread(world: World, url: str) -> None:
    world.ev.add(KIND, "alpha", id="1", boxed=True)
    ((job, token, *_),) = claim(url)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="not read yet"):
        call(url, "finish", job, token)
    assert call(url, "release", job, token)
    work(world.ev)
    record = world.ev.get(KIND, "1")
    assert record is not None
    assert record.embedded


def test_a_paused_queue_gives_nothing_and_a_suspect_comes_alone(world: World, url: str) -> None:
    world.ev.add(KIND, "alpha", id="bad")
    claim(url, lease=10.0)
    world.clock.move(11)
    world.ev.queue.recover_stuck()
    world.ev.queue.pause()
    assert claim(url, 10) == []
    world.ev.queue.resume()
    world.ev.add(KIND, "beta", id="good")
    assert [row[3] for row in claim(url, 10)] == ["good"]
    assert [row[3] for row in claim(url, 10)] == ["bad"]


def test_a_dead_letter_is_retried_from_zero(world: World, url: str) -> None:
    world.ev.add(KIND, "alpha", id="1")
    dead = fail_for_good(world.ev)
    assert call(url, "retry", dead.job_id)
    job = job_of(world.ev, "1")
    assert (job.status, job.attempts, job.error) == (Status.PENDING, 0, None)
    assert not call(url, "retry", dead.job_id), "it is no dead letter any more"
    postgres.assert_none_is_astray(url)
    assert work(world.ev).succeeded == 1


def test_dead_letters_are_retried_by_their_attempts(world: World, url: str) -> None:
    for id in ("1", "2", "3"):
        world.ev.add(KIND, id, id=id)
        fail_for_good(world.ev, id)
    postgres.execute(url, "update evervec.jobs set attempts = 7 where job_id = $1",
                     job_of(world.ev, "3").job_id)  # fmt: skip
    retry = "select evervec.retry_failed_embedding_queue_items"
    assert postgres.execute(url, f"{retry}(7)") == [(2,)]
    assert [job.record_id for job in world.ev.queue.failed()] == ["3"]
    assert postgres.execute(url, f"{retry}()") == [(1,)]
    assert world.ev.queue.failed() == []
    postgres.assert_none_is_astray(url)
    assert work(world.ev).succeeded == 3
