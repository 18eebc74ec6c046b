"""Keys of the service: shown once, kept as a hash, of no use once revoked or expired."""

from dataclasses import astuple
from datetime import timedelta

import pytest

from evervec import InvalidArgument
from evervec.keys import Keys, Role
from support.world import World


@pytest.fixture
def keys(world: World) -> Keys:
    return Keys(world.ev.store)


def test_a_key_says_whose_it_is_and_what_it_may_do(keys: Keys) -> None:
    assert not keys.any()
    made = keys.create("acme", "crawler", "reader")
    assert keys.any()
    found = keys.check([made.key])[made.key]
    assert found is not None
    assert (found.tenant, found.agent, found.role) == ("acme", "crawler", Role.READER)
    assert made.key.startswith(f"{found.prefix}_")


def test_only_the_hash_of_a_key_is_kept(world: World, keys: Keys) -> None:
    made = keys.create("acme")
    secret = made.key.removeprefix(f"{made.info.prefix}_")
    (stored,) = world.ev.store.keys(None)
    assert secret not in repr(astuple(stored))
    assert secret not in repr(made)
    assert secret not in repr(keys.list())


def test_whatever_is_not_the_whole_key_opens_nothing(keys: Keys) -> None:
    key, other = keys.create("acme").key, keys.create("other").key
    swapped = f"{key[:15]}{other[15:]}"
    tries = ["", "ev_", key[:-1], key + "x", key.upper(), swapped, f"{key[:-1]}\0", "é" * 59]
    assert set(keys.check(tries).values()) == {None}
    assert keys.check([key])[key] is not None


def test_a_revoked_key_is_of_no_use_at_once_and_stays_listed(world: World, keys: Keys) -> None:
    made, kept = keys.create("acme"), keys.create("acme")
    Keys(world.ev.store).revoke(made.info.prefix)
    assert keys.check([made.key, kept.key])[made.key] is None
    assert keys.check([kept.key])[kept.key] is not None
    revoked = {key.id for key in keys.list("acme") if key.revoked_at is not None}
    assert revoked == {made.info.id}
    with pytest.raises(InvalidArgument, match="no key"):
        keys.revoke(made.info.id)


def test_a_key_opens_nothing_from_its_end_on(world: World, keys: Keys) -> None:
    made = keys.create("acme", expires=timedelta(minutes=5))
    assert keys.check([made.key])[made.key] is not None
    world.clock.move(301)
    assert keys.check([made.key])[made.key] is None


def test_keys_are_listed_by_tenant_the_oldest_first(world: World, keys: Keys) -> None:
    made = []
    for tenant in ("acme", "other", "acme"):
        made.append(keys.create(tenant).info.id)
        world.clock.move(1)
    assert [key.id for key in keys.list()] == made
    assert [key.id for key in keys.list("acme")] == [made[0], made[2]]


def test_the_last_use_never_goes_back(world: World, keys: Keys) -> None:
    made = keys.create("acme")
    now = world.ev.store.now()
    keys.used({made.info.id: now + 5})
    keys.used({made.info.id: now + 3, "unknown": now})
    (listed,) = keys.list()
    assert listed.last_used_at is not None
    assert listed.last_used_at.timestamp() == pytest.approx(now + 5, abs=0.01)


@pytest.mark.parametrize("bad", [("", "a", "reader"), ("t", " ", "reader"), ("t", "a", "root")])
def test_a_key_with_bad_parts_is_refused(keys: Keys, bad: tuple[str, str, str]) -> None:
    with pytest.raises(InvalidArgument):
        keys.create(*bad)
    assert not keys.any()
