"""Failures that are alike are one group: counted, shown with an example, dismissed and back."""

from datetime import UTC, datetime

from evervec import Evervec, FailureGroup
from evervec.model.failures import SPARK_SECONDS, SPARKS
from support.world import DAY, KIND, START, World, add_all


def fail_all(ev: Evervec, error: str, *, permanent: bool = True, limit: int = 100) -> None:
    jobs = ev.queue.claim(limit)
    ev.queue.fail_many([(job, error.format(job.record_id), permanent) for job in jobs])
    ev.queue.recorder.flush()


def one(ev: Evervec, **options: bool) -> FailureGroup:
    (group,) = ev.failures(**options)  # type: ignore[arg-type]
    return group


def test_messages_that_differ_in_numbers_and_ids_are_one_group(world: World) -> None:
    add_all(world.ev, KIND, *"abc")
    fail_all(world.ev, "text {0} has 90{0}1 tokens\nand more")
    group = one(world.ev)
    assert (group.tenant, group.kind) == ("default", KIND)
    assert group.model == world.ev.queue.failed()[0].embedding_version
    assert (group.failed, group.retried, group.open) == (3, 0, 3)
    assert group.message == "text N has N tokens"
    assert group.example.startswith("text ")
    assert group.example.endswith("tokens\nand more")
    assert group.first_seen == group.last_seen == datetime.fromtimestamp(START, UTC)
    assert world.ev.queue.get(group.job_id) is not None
    assert (sum(group.recent), group.recent[-1], len(group.recent)) == (3, 3, SPARKS)


def test_other_kinds_and_other_messages_are_other_groups(world: World) -> None:
    add_all(world.ev, KIND, "a")
    fail_all(world.ev, "one thing")
    add_all(world.ev, "page", "a")
    fail_all(world.ev, "one thing")
    world.clock.move(1)
    world.ev.add(KIND, "b", id="9")
    fail_all(world.ev, "another thing", permanent=False)
    found = world.ev.failures()
    assert [(g.kind, g.message, g.failed, g.retried) for g in found[:1]] == [
        (KIND, "another thing", 0, 1)
    ]
    assert {(g.kind, g.message, g.failed, g.open) for g in found[1:]} == {
        (KIND, "one thing", 1, 1), ("page", "one thing", 1, 1),
    }  # fmt: skip
    assert len(world.ev.failures(limit=1)) == 1
    assert [g.kind for g in world.ev.failures(kind="page")] == ["page"]


def test_failures_are_counted_over_time(world: World) -> None:
    add_all(world.ev, KIND, "a", "b")
    fail_all(world.ev, "bad", limit=1)
    world.clock.move(3 * SPARK_SECONDS)
    fail_all(world.ev, "bad", limit=1)
    group = one(world.ev)
    assert (group.failed, group.recent[-1], group.recent[-4]) == (2, 1, 1)
    assert (group.last_seen - group.first_seen).total_seconds() == 3 * SPARK_SECONDS
    world.clock.move(SPARKS * SPARK_SECONDS)
    assert sum(one(world.ev).recent) == 0


def test_a_dismissed_group_is_back_when_it_fails_again(world: World) -> None:
    add_all(world.ev, KIND, "a", "b")
    fail_all(world.ev, "bad", limit=1)
    world.clock.move(1)
    assert world.ev.dismiss_failures(one(world.ev).fingerprint) == 1
    assert world.ev.failures() == []
    assert one(world.ev, dismissed=True).dismissed_at is not None
    world.clock.move(1)
    fail_all(world.ev, "bad", limit=1)
    assert one(world.ev).failed == 2
    assert world.ev.dismiss_failures("0123456789abcdef") == 0


def test_the_dead_letters_of_a_group_are_those_that_are_left(world: World) -> None:
    add_all(world.ev, KIND, "a", "b", "c")
    fail_all(world.ev, "bad")
    first, second, _ = world.ev.queue.failed()
    world.ev.queue.retry(first.job_id)
    assert one(world.ev).open == 2
    world.ev.queue.cancel(second.job_id)
    assert one(world.ev).open == 1
    world.ev.add(KIND, "changed", id=world.ev.queue.failed()[0].record_id)
    assert (one(world.ev).open, one(world.ev).failed) == (0, 3)


def test_a_tenant_sees_only_its_own_groups(world: World) -> None:
    other = world.ev.of("other")
    add_all(world.ev, KIND, "a")
    add_all(other, KIND, "a")
    fail_all(world.ev, "bad")
    mine = one(world.ev)
    assert (mine.tenant, one(other).tenant) == ("default", "other")
    assert mine.fingerprint == one(other).fingerprint
    assert {g.tenant for g in world.ev.failures(all_tenants=True)} == {"default", "other"}
    assert [g.open for g in world.ev.failures(all_tenants=True)] == [1, 1]
    world.clock.move(1)
    other.dismiss_failures(mine.fingerprint)
    assert (len(world.ev.failures()), other.failures()) == (1, [])
    assert world.ev.dismiss_failures(mine.fingerprint, all_tenants=True) == 2
    assert world.ev.failures(all_tenants=True) == []


def test_jobs_of_dead_workers_are_a_group(world: World) -> None:
    add_all(world.ev, KIND, "a")
    world.ev.queue.claim(1)
    world.clock.move(world.ev.settings.lease_seconds + 1)
    world.ev.queue.recover_stuck()
    world.ev.queue.recorder.flush()
    assert one(world.ev).retried == 1


def test_a_text_that_differs_in_every_message_does_not_fill_the_table(world: World) -> None:
    letters = "bcdfghjklmnpqrstvwxz"
    words = [f"the {first}o{second}o is bad" for first in letters for second in letters]
    list(world.ev.add_many(KIND, ({"id": n, "text": "t"} for n in range(len(words)))))
    for n in range(0, len(words), 50):
        failed = zip(world.ev.queue.claim(50), words[n:], strict=False)
        world.ev.queue.fail_many([(job, error, True) for job, error in failed])
        world.ev.queue.recorder.flush()
        world.clock.move(1)
    found = world.ev.failures(limit=1000)
    assert {group.message for group in found} == set(words[-300:])
    assert all(sum(group.recent) == 1 for group in found)


def test_groups_that_were_not_seen_for_long_are_purged(world: World) -> None:
    add_all(world.ev, KIND, "a")
    fail_all(world.ev, "bad")
    world.clock.move(10 * DAY)
    world.ev.store.failures.purge(START - 1)
    assert len(world.ev.failures()) == 1
    world.ev.store.failures.purge(START + 1)
    assert world.ev.failures() == []


def test_any_text_may_be_an_error(world: World) -> None:
    texts = ["", "\0 nul", "\ud800 half", "'" * 5000, "ä/ö/" * 3000, "\n" * 700 + "x", "a" * 10_000]
    list(world.ev.add_many(KIND, ({"id": n, "text": "t"} for n in range(len(texts)))))
    jobs = world.ev.queue.claim(100)
    world.ev.queue.fail_many([(job, text, True) for job, text in zip(jobs, texts, strict=True)])
    world.ev.queue.recorder.flush()
    found = world.ev.failures()
    assert sum(group.open for group in found) == len(texts)
    assert all(len(g.message) <= 300 and len(g.example) <= 2000 for g in found)
