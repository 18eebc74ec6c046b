"""What the service needs of a store beside keys: requests that come again, pages of jobs,
conditional deletes, and counts of one tenant."""

from evervec.stores.service_values import Asked
from support.world import KIND, World, add_all, claim_one, work


def test_a_request_is_known_when_it_comes_again(world: World) -> None:
    store = world.ev.store
    assert store.service.ask("acme", "order 1", "abc") == Asked("abc", None)
    store.service.answer("acme", "order 1", '{"ok": true}')
    assert store.service.ask("acme", "order 1", "xyz") == Asked("abc", '{"ok": true}')
    assert store.service.ask("other", "order 1", "xyz") == Asked("xyz", None)


def test_requests_are_forgotten_by_their_age(world: World) -> None:
    store = world.ev.store
    store.service.ask("acme", "old", "abc")
    world.clock.move(100)
    store.service.ask("acme", "new", "abc")
    assert store.service.forget_asked(store.now() - 50) == 1
    assert store.service.ask("acme", "old", "other").fingerprint == "other"
    assert store.service.ask("acme", "new", "other").fingerprint == "abc"


def test_pages_of_jobs_meet_each_job_once(world: World) -> None:
    add_all(world.ev, KIND, *(f"text {n}" for n in range(7)))
    world.ev.add(KIND, "first in the queue, last by number", id="7", priority=5)
    seen, after = [], 0
    while page := world.ev.queue.jobs(status="pending", after=after, limit=3):
        seen += [job.record_id for job in page]
        assert len(seen) <= 8
        after = page[-1].job_id
    assert seen == [str(n) for n in range(8)]


def test_a_delete_of_an_older_version_is_not_accepted(world: World) -> None:
    old = world.ev.add(KIND, "one", id="1")
    new = world.ev.add(KIND, "two", id="1")
    (ticket,) = world.ev.store.changes.delete("default", KIND, ["1"], if_seq={"1": old.seq})
    assert not ticket.accepted
    assert world.ev.get(KIND, "1") is not None
    (ticket,) = world.ev.store.changes.delete("default", KIND, ["1"], if_seq={"1": new.seq})
    assert ticket.accepted
    assert world.ev.get(KIND, "1") is None


def test_an_add_over_a_version_that_is_gone_is_not_accepted(world: World) -> None:
    old = world.ev.add(KIND, "one", id="1")
    new = world.ev.add(KIND, "two", id="1", if_seq=old.seq)
    assert new.accepted
    assert not world.ev.add(KIND, "three", id="1", if_seq=old.seq, wait=5.0).accepted
    found = world.ev.get(KIND, "1")
    assert found is not None
    assert found.text == "two"


def test_a_tenant_is_told_only_of_what_versions_hold_of_its_own(world: World) -> None:
    other = world.tenant("other")
    add_all(world.ev, KIND, "alpha", "beta")
    add_all(other, KIND, "alpha")
    add_all(other, "secret", "gamma")
    work(world.ev)
    add_all(world.ev, "waiting", "delta")
    mine, others = (world.ev.store.versions.holdings(name) for name in ("default", "other"))
    assert {kind: held.items for (kind, _), held in mine.items()} == {KIND: 2, "waiting": 0}
    assert {kind: held.items for (kind, _), held in others.items()} == {KIND: 1, "secret": 1}
    assert world.ev.store.versions.holdings("nobody") == {}


def test_a_tenants_own_stuck_jobs_can_be_taken_back_alone(world: World) -> None:
    other = world.tenant("other")
    add_all(world.ev, KIND, "alpha")
    add_all(other, KIND, "beta")
    claim_one(world.ev)
    claim_one(world.ev)
    world.clock.move(1000)
    assert other.queue.recover_stuck(own=True) == 1
    assert world.ev.queue.recover_stuck() == 1


def test_a_view_of_another_tenant_shares_all_but_the_records(world: World) -> None:
    other = world.ev.of("other")
    add_all(world.ev, KIND, "alpha beta")
    add_all(other, KIND, "alpha gamma")
    work(world.ev)
    assert [hit.text for hit in other.search("alpha")] == ["alpha gamma"]
    assert [hit.text for hit in world.ev.search("alpha")] == ["alpha beta"]
    assert other.queue.stats().done == 1
