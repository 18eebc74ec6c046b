"""The rules of jobs, each by an example: what the stores are compared with must itself be right."""

from dataclasses import replace

import pytest

from evervec.model.jobs import Op, Status
from evervec.queue.transitions import (
    CANCELLED,
    RETRIED,
    Ask,
    JobState,
    before_box,
    beside_box,
    claim,
    expire,
    fail,
    finish,
    follows_box,
    is_purged,
    join,
    put,
    release,
    renew,
    retry,
    takes_box,
    to_enqueue,
    to_reopen,
)

NOW = 1000.0
NEW = JobState(Status.PENDING, Op.EMBED, 7, max_attempts=3, priority=2, scheduled_for=900.0)
HELD = JobState(
    Status.PROCESSING, Op.EMBED, 7, 7, None, "mine", 1, 3, 0, False, 2, 900.0, None, None, 990.0,
    1050.0,
)  # fmt: skip
OVERTAKEN = replace(HELD, seq=9, op=Op.OPEN, boxed=True, attempts=3, scheduled_for=5000.0)
DONE = JobState(
    Status.DONE, Op.EMBED, 7, 7, 7, "mine", 1, 3, 0, False, 2, 900.0, None, 995.0, 990.0
)
DEAD = JobState(
    Status.FAILED, Op.OPEN, 7, 7, None, None, 3, 3, 1, True, 2, 900.0, "bad", 995.0, 990.0
)


def test_a_first_request_makes_a_job() -> None:
    made = put(None, Ask(Op.OPEN, 7, 1500.0, True, 4, 5))
    assert made == JobState(
        Status.PENDING, Op.OPEN, 7, None, None, None, 0, 5, 0, True, 4, 1500.0, None, None
    )


def test_what_waits_keeps_its_place_and_starts_from_zero() -> None:
    tried = replace(NEW, claimed_seq=7, started_at=990.0, attempts=2, crashes=1, error="bad")
    late = put(tried, Ask(Op.DELETE, 9, 2000.0, priority=1, max_attempts=5))
    assert late == replace(
        NEW, op=Op.DELETE, seq=9, claimed_seq=7, started_at=990.0, max_attempts=5
    )
    soon = put(tried, Ask(Op.OPEN, 9, 800.0, True, 4))
    assert (soon.scheduled_for, soon.priority, soon.boxed) == (800.0, 4, True)


@pytest.mark.parametrize("ended", [DONE, DEAD])
def test_what_has_ended_takes_the_time_and_the_rank_of_the_request(ended: JobState) -> None:
    again = put(ended, Ask(Op.EMBED, 9, 2000.0, priority=1))
    assert again == replace(
        ended, status=Status.PENDING, op=Op.EMBED, seq=9, boxed=False, attempts=0, crashes=0,
        error=None, completed_at=None, priority=1, scheduled_for=2000.0, max_attempts=10,
    )  # fmt: skip


def test_a_claim_goes_on_when_something_newer_comes() -> None:
    tried = replace(HELD, attempts=2, crashes=1, error="bad", completed_at=800.0)
    first = put(tried, Ask(Op.LOAD, 9, 5000.0, priority=1, max_attempts=5))
    assert first == replace(tried, op=Op.LOAD, seq=9, scheduled_for=5000.0, max_attempts=5)
    second = put(first, Ask(Op.EMBED, 11, 6000.0, priority=4))
    assert (second.scheduled_for, second.priority, second.seq) == (5000.0, 4, 11)
    assert put(first, Ask(Op.EMBED, 11, 1000.0)).scheduled_for == 1000.0


def test_a_claim_spends_an_attempt_and_holds_by_its_token() -> None:
    assert claim(NEW, "mine", 990.0, 60.0) == HELD
    assert HELD.held_by("mine")
    assert not HELD.held_by("another")
    assert not replace(HELD, token=None).held_by(None)
    assert not DONE.held_by("mine")
    assert renew(HELD, NOW, 60.0) == replace(HELD, lease_expires_at=1060.0)


def test_a_finish_is_known_when_it_comes_again() -> None:
    assert DONE.finished_by("mine", 7)
    assert DONE.finished_by("mine", 6)
    assert not DONE.finished_by("mine", 8)
    assert not DONE.finished_by("another", 7)
    assert not replace(DONE, token=None).finished_by(None, 7)
    assert not HELD.finished_by("mine", 7)
    assert not replace(HELD, finished_seq=7).finished_by("mine", 7)
    assert not replace(NEW, token="mine").finished_by("mine", 0)


def test_a_finish_ends_what_it_has_done() -> None:
    tried = replace(HELD, crashes=1, error="bad")
    assert finish(tried, 7, 995.0) == DONE
    later = finish(replace(OVERTAKEN, crashes=1, error="bad"), 7, 995.0)
    assert later == replace(
        OVERTAKEN, status=Status.PENDING, finished_seq=7, attempts=0, completed_at=995.0,
        lease_expires_at=None,
    )  # fmt: skip
    caught_up = finish(OVERTAKEN, 9, 995.0)
    assert (caught_up.status, caught_up.boxed, caught_up.attempts) == (Status.DONE, False, 3)


def test_a_failure_waits_or_is_a_dead_letter() -> None:
    gone = {"token": None, "lease_expires_at": None}
    tried = replace(HELD, crashes=1, completed_at=800.0)
    waits = replace(tried, status=Status.PENDING, error="bad", completed_at=None,
                    scheduled_for=1500.0, **gone)  # type: ignore[arg-type]  # fmt: skip
    assert fail(tried, "bad", 1500.0, NOW) == waits
    dead = replace(waits, status=Status.FAILED, scheduled_for=NOW, completed_at=NOW)
    assert fail(tried, "bad", None, NOW) == dead
    assert fail(replace(tried, attempts=2), "bad", 1500.0, NOW).status is Status.PENDING
    assert fail(replace(tried, attempts=3), "bad", 1500.0, NOW) == replace(dead, attempts=3)


def test_a_release_gives_the_attempt_back() -> None:
    tried = replace(HELD, attempts=2, crashes=1, error="bad")
    back = replace(tried, status=Status.PENDING, attempts=1, token=None, lease_expires_at=None)
    assert release(tried) == back
    assert release(tried, "away", 1500.0) == replace(back, error="away", scheduled_for=1500.0)
    assert release(replace(tried, attempts=0)).attempts == 0


def test_a_crash_is_counted_and_the_first_is_forgiven() -> None:
    last = replace(HELD, attempts=3, completed_at=800.0)
    words = "the worker did not finish attempt 3; the job was recovered"
    once = replace(last, status=Status.PENDING, crashes=1, error=words, token=None,
                   lease_expires_at=None, completed_at=None, scheduled_for=NOW)  # fmt: skip
    assert expire(last, NOW) == once
    twice = replace(once, status=Status.FAILED, crashes=2, completed_at=NOW)
    assert expire(replace(last, crashes=1), NOW) == twice
    assert expire(replace(last, crashes=1, attempts=2), NOW).status is Status.PENDING


def test_what_overtook_a_claim_waits_at_its_own_time_however_the_claim_ends() -> None:
    ends = {
        "finish": finish(OVERTAKEN, 7, NOW),
        "fail": fail(OVERTAKEN, "bad", 1500.0, NOW),
        "fail for good": fail(OVERTAKEN, "bad", None, NOW),
        "release": release(OVERTAKEN, "away", 1500.0),
        "expire": expire(replace(OVERTAKEN, crashes=1), NOW),
    }
    for name, end in ends.items():
        assert (end.status, end.attempts, end.scheduled_for) == (Status.PENDING, 0, 5000.0), name
        assert (end.op, end.boxed, end.seq) == (Op.OPEN, True, 9), name
        assert end.lease_expires_at is None, name
    assert not HELD.overtaken
    assert OVERTAKEN.overtaken
    assert NEW.overtaken


def test_a_retry_starts_from_zero_with_the_same_debt() -> None:
    assert retry(DEAD, NOW) == replace(
        DEAD, status=Status.PENDING, attempts=0, crashes=0, error=None, completed_at=None,
        scheduled_for=NOW,
    )  # fmt: skip
    assert {Status.FAILED} == RETRIED
    assert {Status.PENDING, Status.FAILED} == CANCELLED


def test_a_purge_takes_what_is_old_but_no_box() -> None:
    assert is_purged(DONE, Status.DONE, 996.0, boxed=False)
    assert not is_purged(DONE, Status.DONE, 995.0, boxed=False)
    assert not is_purged(DONE, Status.FAILED, 996.0, boxed=False)
    assert not is_purged(DEAD, Status.FAILED, 996.0, boxed=False)
    assert is_purged(DEAD, Status.FAILED, 996.0, boxed=True)
    assert not is_purged(NEW, Status.PENDING, 996.0, boxed=True)


def test_what_is_asked_for_again_depends_on_the_record() -> None:
    states = ("live", "hidden", "deleted")
    assert [to_enqueue(s, False) for s in states] == [Op.EMBED, Op.LOAD, Op.DELETE]
    assert [to_enqueue(s, True) for s in states] == [Op.LOAD] * 3
    assert [to_reopen(s) for s in states] == [Op.EMBED, Op.DELETE, Op.DELETE]
    assert [beside_box(op) for op in (Op.EMBED, Op.DELETE, Op.LOAD)] == [Op.EMBED, Op.DELETE, None]


def test_a_job_reads_until_that_is_done() -> None:
    for op in Op:
        reads = op in (Op.LOAD, Op.OPEN)
        for job in (NEW, HELD, DEAD):
            assert replace(job, op=op).reads == reads
        assert not replace(DONE, op=op).reads


def test_a_box_is_taken_unless_something_newer_is_there() -> None:
    assert takes_box(5, None, None, 5)
    assert takes_box(4, Op.EMBED, 9, 5)
    assert takes_box(5, Op.OPEN, 5, 5)
    assert takes_box(5, Op.LOAD, 4, 5)
    assert not takes_box(6, None, None, 5)
    assert not takes_box(5, Op.OPEN, 6, 5)
    assert not takes_box(5, Op.LOAD, 6, 5)


def test_a_version_follows_a_box_unless_it_reads_something_newer() -> None:
    assert follows_box(None, None, 5)
    assert follows_box(Op.EMBED, 9, 5)
    assert follows_box(Op.LOAD, 5, 5)
    assert not follows_box(Op.LOAD, 6, 5)


def test_a_result_from_before_a_box_has_a_larger_number_than_the_box() -> None:
    assert before_box(2, 5, 7)
    assert before_box(4, 5, 5)
    assert not before_box(5, 5, 7), "it is of the text out of the box"
    assert not before_box(2, 5, 4), "numbers say that it is older: the record was changed plainly"
    assert not before_box(None, 5, 7), "it is of a box or a row"


def test_a_version_that_is_begun_gets_the_rows_that_are_to_be_read() -> None:
    row = replace(HELD, op=Op.LOAD)
    assert join(None, row) == JobState(
        Status.PENDING, Op.LOAD, 7, max_attempts=3, priority=2, scheduled_for=900.0
    )
    assert join(NEW, row) == NEW
    for other in (None, HELD, DEAD, replace(DONE, op=Op.LOAD)):
        assert join(None, other) is None
