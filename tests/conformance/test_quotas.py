"""What a tenant may have and use: counted with every change, and refused where it is too much."""

import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest

from evervec import Answer, Evervec, InvalidArgument, Limits, QuotaExceeded, Spend, Status, Usage
from evervec.model.jobs import Op
from support.world import DAY, KIND, START, World, add_all, claim_one, work

Numbers = tuple[int, int, int]


def numbers(used: Usage) -> Numbers:
    return used.records, used.bytes, used.chunks


def recounted(ev: Evervec) -> Numbers:
    """What is there, by going through all of it."""
    records = ev.records(limit=10_000)
    size = sum(
        len(part.encode())
        for r in records
        for part in (r.text, r.title or "", ev_json(r.metadata) if r.metadata else "")
    )
    served = {c.version for c in ev.store.versions.collections() if c.state == "serving"}
    chunks = 0
    for version in served:
        for found in ev.store.records.expected(ev.tenant, version, 0, 10_000):
            chunks += len(found.chunks)
    return len(records), size, chunks


def ev_json(metadata: Any) -> str:
    from evervec.records.drafts import check_metadata

    return check_metadata(metadata, None)


def test_what_a_tenant_has_is_counted_with_every_change(world: World) -> None:
    ev, other = world.ev, world.tenant("other")
    add_all(other, KIND, "not mine")

    def check() -> None:
        ev.store.tenants.fold_usage()
        assert numbers(ev.usage()) == recounted(ev)
        assert numbers(other.usage())[:2] == (1, 8)

    long = "One sentence after the other. " * 40
    ev.add(KIND, long, id="1", title="Ünïcode", metadata={"a": "é"})
    list(ev.add_many("task", ({"id": n, "text": f"task {n}"} for n in range(5))))
    check()
    work(ev)
    check()
    assert ev.usage().chunks > 10
    ev.add(KIND, "short", id="1")
    ev.add("task", "the first", id=0)
    ev.add("task", "the second", id=0)
    ev.add("task", "boxed", id="box", boxed=True)
    assert ev.usage().records == 7  # one of them is not shown yet
    work(ev)
    check()
    ev.delete("task", 1)
    ev.delete("task", 2)
    ev.delete("task", 2)
    check()
    work(ev)
    check()
    ev.add("task", "again", id=2)
    work(ev)
    check()
    world.clock.move(30 * DAY)
    ev._housekeeping.sweep()
    check()
    assert (ev.usage().kinds, other.usage().kinds) == (2, 1)


def test_what_is_rolled_back_is_not_counted(joined_world: World) -> None:
    ev = joined_world.ev
    with closing(joined_world.connect()) as conn:
        ev.add(KIND, "alpha", id="1", conn=conn)
        conn.rollback()
    assert ev.usage().records == 0
    with closing(joined_world.connect()) as conn:
        ev.add(KIND, "alpha", id="2", conn=conn)
        conn.commit()
    assert numbers(ev.usage()) == (1, 5, 0)


def test_what_is_enqueued_and_cancelled_is_counted(world: World) -> None:
    ev = world.ev
    results = ev.queue.enqueue_many(KIND, range(3))
    assert ev.usage().records == 3
    ev.queue.cancel(results[0].job_id or 0)
    assert ev.usage().records == 2


def test_a_migration_counts_only_the_chunks_that_serve(world: World) -> None:
    ev = world.ev
    add_all(ev, KIND, "alpha", "beta")
    work(ev)
    before = ev.usage()
    spec = next(c.spec for c in ev.store.versions.collections() if c.spec)
    ev.store.versions.begin(type(spec)("next", "p", "m", 64), [KIND])
    assert ev.usage() == before


def test_no_record_more_than_the_quota_is_saved(world: World) -> None:
    ev = world.ev
    ev.set_limits(Limits(records=3))
    add_all(ev, KIND, "a", "b")
    many = ev.add_many(KIND, ({"id": f"n{n}", "text": "x"} for n in range(4)))
    assert next(many).id == "n0"
    with pytest.raises(QuotaExceeded, match=r"position 1: .*'default' has 3 of 3 \(tenant_rec"):
        next(many)
    with pytest.raises(QuotaExceeded):
        ev.add(KIND, "x", id="more")
    with pytest.raises(QuotaExceeded):
        ev.add(KIND, "x", id="more", boxed=True)
    with pytest.raises(QuotaExceeded):
        ev.queue.enqueue(KIND, "more")
    assert ev.get(KIND, "more") is None
    ev.add(KIND, "an edit is no new record", id="0")
    ev.queue.enqueue(KIND, "0")
    world.tenant("other").add(KIND, "x", id="0")
    ev.delete(KIND, "1")
    assert ev.add(KIND, "y", id="more").accepted
    assert ev.usage().bounds() == {"kinds": (1, 200), "records": (3, 3)}


def test_no_byte_more_than_the_quota_is_saved_and_edits_that_shrink_work(world: World) -> None:
    ev = world.ev
    ev.add(KIND, "x" * 90, id="1")
    ev.set_limits(Limits(bytes=100))
    with pytest.raises(QuotaExceeded, match=r"90 of 100 \(tenant_bytes\), and 11 more"):
        ev.add(KIND, "y" * 11, id="2")
    with pytest.raises(QuotaExceeded):
        ev.add(KIND, "z" * 90, id="1", metadata={"k": "é" * 10})
    ev.add(KIND, "y" * 10, id="2")
    ev.set_limits(Limits(bytes=50))  # what is there stays
    ev.add(KIND, "x" * 89, id="1")
    with pytest.raises(QuotaExceeded):
        ev.add(KIND, "x" * 91, id="1")
    ev.delete(KIND, "1")
    ev.add(KIND, "x" * 40, id="1")
    assert ev.usage().bytes == 50


def test_a_tenant_with_too_many_chunks_adds_nothing_more(world: World) -> None:
    ev = world.ev
    ev.set_limits(Limits(chunks=2))
    add_all(ev, KIND, "a", "b")
    work(ev)
    with pytest.raises(QuotaExceeded, match="tenant_chunks"):
        ev.add(KIND, "c", id="3")
    ev.delete(KIND, "0")
    work(ev)
    ev.add(KIND, "c", id="3")


def test_kinds_are_bounded(world: World) -> None:
    ev = world.ev
    ev.set_limits(Limits(kinds=2))
    for kind in ("a", "b"):
        ev.add(kind, "x", id="1")
    for write in (
        lambda: ev.add("c", "x", id="1"),
        lambda: list(ev.add_many("c", ["x"])),
        lambda: ev.queue.enqueue("c", "1"),
    ):
        with pytest.raises(QuotaExceeded, match=r"kind 'c': .* 2 of 2 \(tenant_kinds\)"):
            write()
    assert "c" not in {c.kind for c in ev.store.versions.collections()}
    ev.add("a", "y", id="2")
    world.tenant("other").add("c", "x", id="1")


def test_limits_are_set_by_tenant_and_replace_those_before(world: World) -> None:
    ev, other = world.ev, world.tenant("other")
    ev.set_limits(Limits(records=5, money=1.5))
    ev.set_limits(Limits(bytes=7, weight=3))
    assert ev.limits() == Limits(bytes=7, weight=3)
    assert ev.usage().limits == Limits(3, 200, 0, 7, 0, 0, 0.0)
    assert other.limits() == Limits()
    assert ev.store.tenants.limited_tenants() == ["default"]
    ev.set_limits(Limits())
    assert ev.store.tenants.limited_tenants() == []


@pytest.mark.parametrize(
    "wrong", [{"weight": 0}, {"weight": 101}, {"records": -1}, {"money": "1"}, {"bytes": True}]
)
def test_a_limit_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        Limits(**wrong)


def test_a_tenant_of_more_weight_gets_a_longer_turn(world: World) -> None:
    world.tenant("heavy").set_limits(Limits(weight=3))
    for tenant in ("heavy", "light"):
        world.tenant(tenant).queue.enqueue_many(KIND, range(100))
    got = Counter(job.tenant for job in world.ev.queue.claim(40))
    assert got == {"heavy": 30, "light": 10}


def test_when_a_days_quota_is_used_up_jobs_wait_for_the_next_and_others_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(texts: Sequence[str]) -> Answer:
        return Answer(world.embedder.embed(texts), tokens=10 * len(texts))

    monkeypatch.setattr(world.embedder, "ask", ask, raising=False)
    ev, other = world.ev, world.tenant("other")
    ev.set_limits(Limits(tokens=25))
    add_all(ev, KIND, *(f"mine {n}" for n in range(3)))
    work(ev)
    waits = ev.usage().waits_until
    assert waits is not None
    assert waits == datetime.fromtimestamp(START - START % DAY + DAY, UTC)
    assert (ev.usage().tokens, ev.usage().bounds()["tokens"]) == (30, (30, 25))
    ev.add(KIND, "one more", id="late")
    other.add(KIND, "theirs", id="1")
    work(ev)
    late = ev.queue.status(KIND, "late")
    assert late is not None
    assert (late.status, late.attempts, late.error) == (Status.PENDING, 0, None)
    theirs = other.queue.status(KIND, "1")
    assert theirs is not None
    assert theirs.status is Status.DONE
    world.clock.move(waits.timestamp() - world.clock.now)
    work(ev)
    assert ev.usage().tokens == 10
    assert ev.usage().waits_until is None
    done = ev.queue.status(KIND, "late")
    assert done is not None
    assert done.status is Status.DONE


def test_money_is_bounded_by_the_day_too(world: World) -> None:
    ev = world.ev
    ev.set_limits(Limits(money=1.5))
    day = datetime.fromtimestamp(START, UTC).date().isoformat()
    for money, waits in ((1.0, False), (0.5, True)):
        ev.store.shared.add_spend([Spend(day, "default", KIND, "m", 1.0, 10, money)])
        assert ev.store.tenants.hold_spent({"default", "other"}) == (
            {"default"} if waits else set()
        )
        assert (ev.usage().waits_until is not None) is waits
    assert ev.usage().money == 1.5


def test_a_quota_that_is_raised_lets_jobs_go_on_at_once(world: World) -> None:
    ev, store = world.ev, world.ev.store
    store.tenants.hold("default", world.clock.now + DAY)  # type: ignore[attr-defined]
    ev.add(KIND, "x", id="1")
    assert ev.queue.claim(1) == []
    ev.set_limits(Limits(tokens=10**9))
    assert claim_one(ev).op is Op.EMBED


def test_jobs_in_hand_of_a_tenant_that_used_up_its_day_are_given_back(world: World) -> None:
    ev = world.ev
    add_all(ev, KIND, "a", "b")
    jobs = ev.pipeline.claim(2)
    ev.pipeline._used_up.add("default")
    batch, rest = ev.pipeline.prepare(jobs)
    assert (batch.items, list(rest)) == ([], [])
    assert [j.attempts for j in ev.queue.jobs(status="pending")] == [0, 0]


def test_adds_at_once_do_not_exceed_the_quota(world: World) -> None:
    world.ev.set_limits(Limits(records=20))
    start, refused = threading.Barrier(4), list[QuotaExceeded]()

    def add(name: int) -> None:
        start.wait()
        for n in range(10):
            try:
                world.ev.add(KIND, "x", id=f"{name}-{n}")
            except QuotaExceeded as error:
                refused.append(error)

    threads = [threading.Thread(target=add, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert world.ev.usage().records == len(world.ev.records()) == 20
    assert len(refused) == 20


def test_tenants_are_listed_in_order_with_usage_limits_and_pause(world: World) -> None:
    names = ["Zürich", "a/b", "acme", "beta", "日本"]
    for name in names[:3]:
        add_all(world.tenant(name), KIND, "alpha", "beta")
    world.tenant("beta").set_limits(Limits(records=5))
    world.tenant("日本").queue.pause(own=True)
    store = world.ev.store
    store.tenants.fold_usage()
    add_all(world.tenant("acme"), "other", "gamma")
    found = store.tenants.page("", 10)
    assert [(s.usage.tenant, s.usage.records, s.paused) for s in found] == [
        ("Zürich", 2, False), ("a/b", 2, False), ("acme", 3, False), ("beta", 0, False),
        ("日本", 0, True),
    ]  # fmt: skip
    assert found[2].usage == world.tenant("acme").usage()
    assert [s.own_limits for s in found if s.own_limits != Limits()] == [Limits(records=5)]
    assert [s.usage.tenant for s in store.tenants.page("acme", 2)] == ["acme", "beta"]
    assert [s.usage.tenant for s in store.tenants.page("acne", 1)] == ["beta"]
    assert store.tenants.page("日本x", 1) == []
