"""The service is the same over every store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from evervec import AccessDenied, Client
from evervec.server.keys import Keys
from support.dashboard import person
from support.engines import OWN_PAIRS
from support.processes import until
from support.service import Serve
from support.world import World, add_all, work


@pytest.fixture(params=OWN_PAIRS, ids="-".join)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = World(request.param, tmp_path)
    yield made
    made.close()


def test_a_verification_runs_beside_requests_and_is_watched(world: World, serve: Serve) -> None:
    served = serve(world.ev)
    writer = person(served, served.key("acme"))
    ev = world.tenant("acme")
    add_all(ev, "note", "alpha", "beta", "gamma")
    work(ev)
    (version,) = [c.version for c in ev.store.versions.collections()]
    ev.index.remove(version, ev.index.held(version, "acme", 0, None)[:1])
    read = served.app.state.service.verifications.read

    def ended() -> bool:
        run = read("acme").run
        return run is not None and run.over

    assert writer.send("/ui/verify/run").status_code == 303
    until(ended, "the verification to end")
    run, result, *_ = read("acme")
    assert (run.state, run.checked, run.total) == ("done", 3, 3)
    assert [(row.kind, row.missing) for row in result.kinds] == [("note", 1)]
    assert writer.send("/ui/verify/repair", kind="note", fault="missing").status_code == 303
    until(ended, "the repair to end")
    work(ev)
    assert ev.verify().complete


def test_a_tenant_is_served_and_sees_its_own_alone(world: World, serve: Serve) -> None:
    served = serve(world.ev, workers=1)
    with (
        Client(served.url, served.key("acme")) as acme,
        Client(served.url, served.key("other")) as other,
        Client(served.url, served.key("acme", "reader")) as reader,
    ):
        for client, text in ((acme, "red apples"), (other, "green apples")):
            client.add("note", text, id="1", metadata={"tenant": "acme"}, wait=30)
        for client, text in ((acme, "red apples"), (other, "green apples"), (reader, "red apples")):
            assert [hit.text for hit in client.search("apples")] == [text]
            assert [record.text for record in client.records()] == [text]
            assert client.queue.stats().done == len(client.queue.jobs()) == 1
            assert [version.items for version in client.versions()] == [1]
            assert client.verify().checked == 1
            assert len(client.queue.history("note", "1")) == 1
        ticket = acme.add("note", "red pears", id="1", version=2)
        assert not acme.add("note", "old pears", id="1", version=1).accepted
        assert acme.search("pears", after=ticket, wait=30)[0].text == "red pears"
        with pytest.raises(AccessDenied):
            reader.delete("note", "1")
        assert acme.delete("note", "1", wait=30).accepted
        assert acme.records() == []
        assert len(other.records()) == 1
        key = next(key for key in Keys(world.ev.store).list("other"))
        Keys(world.ev.store).revoke(key.id)
        with pytest.raises(AccessDenied):
            other.records()
