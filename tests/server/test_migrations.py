"""A change of the model over HTTP: a platform admin's, and nobody else's."""

import pytest

from evervec import Client, Evervec, InvalidTransition
from evervec.errors import EvervecError
from support.service import Served
from support.world import until


def test_a_model_is_changed_and_changed_back(ev: Evervec, served: Served) -> None:
    with Client(served.url) as client:
        list(client.add_many("note", [{"id": n, "text": f"note {n}"} for n in range(20)]))
        until(ev, lambda: ev.queue.stats().done == 20)
        migration = client.migrate("hashing:64")
        assert migration.wait(30).complete
        migration.switch()
        assert client.search("note 7", mode="semantic").version == "hashing-64"
        migration.rollback()
        assert client.search("note 7", mode="semantic").version == "hashing-256"
        with pytest.raises(InvalidTransition, match="nothing to retire"):
            migration.retire()
        migration.cancel()
        with pytest.raises(EvervecError, match="no migration in progress"):
            migration.status()


def test_it_switches_by_itself(ev: Evervec, served: Served) -> None:
    with Client(served.url) as client:
        client.add("note", "alpha", id="1", wait=10)
        assert client.migrate("hashing:64", switch=True).wait(30).state == "switched"
