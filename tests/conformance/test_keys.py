"""Keys of the service: shown once, kept as a hash, of no use once revoked or expired."""

from dataclasses import astuple
from datetime import timedelta
from typing import Any

import pytest

from evervec import EvervecError, InvalidArgument
from evervec.server.keys import Keys, NewKey, Role, TooManyTokens
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
    (stored,) = world.ev.store.service.keys(None)
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


def test_a_key_with_bad_parts_is_refused(keys: Keys) -> None:
    for bad in (("", "a", "reader"), ("t", " ", "reader"), ("t", "a", "root")):
        with pytest.raises(InvalidArgument):
            keys.create(*bad)
        assert not keys.any()


def test_a_rotated_key_stays_good_for_the_overlap_and_no_longer(world: World, keys: Keys) -> None:
    old = keys.create("acme", "crawler", "reader", timedelta(days=10))
    new = keys.rotate(old.info.prefix, timedelta(hours=1))
    assert (new.info.tenant, new.info.agent, new.info.role) == ("acme", "crawler", Role.READER)
    assert new.info.expires_at is not None
    lasts = new.info.expires_at - new.info.created_at
    assert lasts.total_seconds() == pytest.approx(864_000, abs=5)
    assert set(keys.good([old.info.id, new.info.id])) == {old.info.id, new.info.id}
    world.clock.move(3601)
    assert set(keys.good([old.info.id, new.info.id])) == {new.info.id}
    with pytest.raises(InvalidArgument, match="rotated"):
        keys.rotate(old.info.id)
    kept = keys.create("acme", expires=timedelta(minutes=5))
    keys.rotate(kept.info.id, timedelta(hours=1))
    world.clock.move(301)
    assert keys.good([kept.info.id]) == {}  # never longer than it was made for


def test_nothing_is_made_when_a_key_cannot_be_rotated(keys: Keys) -> None:
    made = keys.create("acme")
    keys.revoke(made.info.id)
    for id in (made.info.id, "000000000000", "nonsense"):
        with pytest.raises(InvalidArgument, match="rotated"):
            keys.rotate(id)
    with pytest.raises(InvalidArgument, match="negative"):
        keys.rotate(made.info.id, timedelta(seconds=-1))
    assert len(keys.list()) == 1


def token(keys: Keys, parent: NewKey, **given: Any) -> NewKey:
    asked: dict[str, Any] = {
        "role": "reader", "tenant": parent.info.tenant, "kinds": None,
        "lasts": timedelta(minutes=10), "most": 5,
    }  # fmt: skip
    return keys.token(parent.info, **{**asked, **given})


@pytest.mark.parametrize("ends", ["revoked", "expired", "itself", "its key"])
def test_a_token_is_good_until_it_or_its_key_ends(world: World, keys: Keys, ends: str) -> None:
    parent = keys.create("acme", "crawler", "writer", timedelta(minutes=5))
    made = token(keys, parent, kinds=["page", "note"], lasts=timedelta(minutes=1))
    found = keys.check([made.key])[made.key]
    assert found is not None
    assert (found.tenant, found.agent, found.role) == ("acme", "crawler", Role.READER)
    assert (found.parent, found.kinds) == (parent.info.id, ("note", "page"))
    assert [key.id for key in keys.list()] == [parent.info.id]  # tokens are not listed
    if ends == "revoked":
        keys.revoke(parent.info.id)
    elif ends == "itself":
        keys.revoke(made.info.id)
    elif ends == "expired":
        world.clock.move(61)
    else:
        keys.rotate(parent.info.id, timedelta(0))
    assert keys.check([made.key])[made.key] is None
    assert keys.good([made.info.id]) == {}


def test_a_token_may_not_do_more_than_its_key(keys: Keys) -> None:
    reader, admin = keys.create("acme", role="reader"), keys.create("default", role="admin")
    refused: list[dict[str, Any]] = [
        {"role": "writer"}, {"role": "admin"}, {"role": "none"}, {"tenant": "other"},
        {"kinds": []}, {"kinds": [""]},
    ]  # fmt: skip
    for given in refused:
        with pytest.raises(EvervecError):
            token(keys, reader, **given)
    assert token(keys, admin, tenant="other", role="writer").info.tenant == "other"
    with pytest.raises(InvalidArgument, match="cannot create tokens"):
        token(keys, token(keys, reader))


def test_the_tokens_of_a_key_are_bounded_and_old_ones_forgotten(world: World, keys: Keys) -> None:
    parent = keys.create("acme")
    for _ in range(5):
        token(keys, parent, lasts=timedelta(seconds=1))
        world.clock.move(2)
    with pytest.raises(TooManyTokens, match="tokens_per_key"):  # though none is good any more
        token(keys, parent)
    token(keys, keys.create("acme"))
    world.clock.move(3601)
    token(keys, parent)
    assert world.ev.store.service.forget_tokens(world.ev.store.now()) == 6
    assert len(keys.list()) == 2


def test_keys_are_listed_in_pages_the_newest_first(world: World, keys: Keys) -> None:
    made = [keys.create(f"t{n % 2}", f"agent{n}").info.id for n in range(7)]
    parent = keys.check([(key := keys.create("t0", "parent")).key])[key.key]
    assert parent is not None
    keys.token(parent, "reader", "t0", None, timedelta(hours=1), 10)
    every = {*made, parent.id}
    seen: list[str] = []
    while found := keys.page(None, seen[-1] if seen else None, 3):
        seen += [each.id for each in found]
    assert len(seen) == len(set(seen))
    assert set(seen) == every, "no token among them"
    listed = [each.id for each in keys.list()]
    assert seen == listed[::-1]
    assert [each.tenant for each in keys.page("t1", None, 10)] == ["t1"] * 3
    with pytest.raises(InvalidArgument, match="no key"):
        keys.page(None, "000000000000", 3)


def test_a_key_is_found_by_its_id_and_a_token_is_not(keys: Keys) -> None:
    made = keys.create("acme", "crawler")
    token = keys.token(made.info, "reader", "acme", None, timedelta(hours=1), 10)
    assert keys.find(made.info.id) == made.info
    assert keys.find(token.info.id) is None
    assert keys.find("000000000000") is None
