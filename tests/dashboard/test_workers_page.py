"""Workers: who works, and pausing them, the queue and the provider."""

import re
from typing import Any

import pytest

from evervec import Evervec
from evervec.errors import ProviderUnavailable
from support.pages import Operator
from support.service import Serve, Served
from support.world import World


@pytest.fixture
def admin(served: Served) -> Operator:
    return Operator(served)


def test_no_worker_is_said_with_the_command_that_starts_one(ev: Evervec, admin: Operator) -> None:
    ev.add("note", "a", id="1")
    text = admin.read("/ui/workers").text
    assert "No worker was seen in the last hour, and 1 job waits" in text
    assert re.search(r"evervec --store=\S+ worker", text)


def test_workers_are_listed_with_what_they_do(ev: Evervec, admin: Operator) -> None:
    ev.store.workers.beat("host-a:1", version="1.2.3", held=3, done=40)
    (row,) = admin.rows("/ui/workers")
    assert (row["worker"], row["held"], row["done"]) == ("host-a:1", 3, 40)
    shown = admin.read("/ui/workers")
    assert "works" in shown.text
    assert "1.2.3" in shown.text
    (link,) = [each for each in shown.links if each.startswith("/ui/jobs?")]
    assert admin.get(link).status_code == 200


def test_one_worker_is_paused_and_resumed(ev: Evervec, admin: Operator) -> None:
    ev.store.workers.beat("host-a:1", version="1", held=0, done=0)
    ev.store.workers.beat("host-b:2", version="1", held=0, done=0)
    said = admin.act("/ui/workers/pause", worker="host-a:1", next="/ui/workers")
    assert said.startswith("host-a:1 is paused")
    assert {row["worker"]: row["paused"] for row in admin.rows("/ui/workers")} == {
        "host-a:1": True, "host-b:2": False,
    }  # fmt: skip
    assert {"/ui/workers/pause", "/ui/workers/resume"} <= admin.read("/ui/workers").actions
    admin.act("/ui/workers/resume", worker="host-a:1", next="/ui/workers")
    assert not any(row["paused"] for row in admin.rows("/ui/workers"))
    for worker in ("", "nobody:0"):
        assert admin.send("/ui/workers/pause", worker=worker).status_code == 422


def test_a_tenant_sees_neither_hosts_nor_the_work_for_others(ev: Evervec, served: Served) -> None:
    ev.store.workers.beat("secret-host:1", version="1", held=31, done=876_543_210)
    for role in ("reader", "writer"):
        person = Operator(served, served.key("other", role))
        for format in ("html", "csv"):
            text = person.get("/ui/workers", **({"format": "csv"} if format == "csv" else {})).text
            assert "secret-host" not in text
            assert "876543210" not in text.replace(",", "")
        (row,) = person.rows("/ui/workers")
        assert (row["held"], row["done"]) == (0, 0)
        fields: dict[str, Any] = {"worker": "secret-host:1"}
        assert person.send("/ui/workers/pause", **fields).status_code == 403


def test_an_admin_pauses_and_resumes_the_queue(ev: Evervec, admin: Operator) -> None:
    assert "/ui/queue/pause" in admin.read("/ui/workers").actions
    assert admin.act("/ui/queue/pause").startswith("The queue is paused")
    assert ev.store.jobs.paused()
    assert "/ui/queue/resume" in admin.read("/ui/workers").actions
    assert "/ui/queue/pause" not in admin.read("/ui/workers").actions
    assert admin.act("/ui/queue/resume") == "The queue is resumed."
    assert not ev.store.jobs.paused()


def test_a_writer_pauses_its_own_tenant_only(ev: Evervec, served: Served) -> None:
    writer = Operator(served, served.key("other", "writer"))
    assert writer.act("/ui/queue/pause").startswith("The queue of the tenant other is paused")
    assert ev.store.jobs.paused("other")
    assert not ev.store.jobs.paused("default")
    admin = Operator(served, served.key(role="admin"))
    assert "Paused tenants: other" in admin.read("/ui/workers").text
    admin.act("/ui/queue/pause")
    assert "all tenants are paused" in writer.act("/ui/queue/resume")
    admin.act("/ui/queue/resume")
    assert not ev.store.jobs.paused("other")


def test_an_admin_pauses_one_tenant(ev: Evervec, served: Served) -> None:
    ev.of("other").add("note", "a", id="1")
    admin = Operator(served, served.key(role="admin"))
    admin.act("/ui/queue/pause?tenant=other")
    assert ev.store.jobs.paused("other")
    assert not ev.store.jobs.paused("default")


def test_a_provider_that_is_away_is_said_and_probed_at_once(memory: World, serve: Serve) -> None:
    ev, away = memory.ev, True

    def answer(_: object) -> None:
        if away:
            raise ProviderUnavailable("the model server at internal.example answers 503")

    memory.embedder.before = answer
    ev.add("note", "a", id="1")
    ev.process_all()
    served = serve(ev)
    writer = Operator(served, served.key(role="writer"))
    admin = Operator(served, served.key(role="admin"))
    assert "hashing hashing-64 has been unavailable since" in admin.read("/ui/workers").text
    assert "answers 503" in admin.read("/ui/workers").text
    assert "The embedding provider has been unavailable since" in writer.read("/ui/workers").text
    assert "internal.example" not in writer.get("/ui/workers").text
    assert writer.send("/ui/provider/probe").status_code == 403
    assert "is still not available" in admin.act("/ui/provider/probe", next="/ui/workers")
    shown = admin.http.get(admin.send("/ui/provider/probe").headers["location"]).text
    assert '<p class="notice bad" role="alert">hashing hashing-64 is still not available' in shown
    (entry, *_) = admin.rows("/ui/audit", action="provider.probe")
    assert entry["outcome"] == "failed: 1 of 1 provider not available"
    assert ev.queue.stats().gate is not None
    away = False
    assert "answered: embedding resumes" in admin.act("/ui/provider/probe")
    assert admin.rows("/ui/audit", action="provider.probe")[0]["outcome"] == "done"
    assert ev.queue.stats().gate is None
    assert admin.act("/ui/provider/probe") == "No provider is paused."
    assert ev.process_all().succeeded == 1  # although the pause is not over


def test_hostile_names_of_workers_stay_text(ev: Evervec, admin: Operator) -> None:
    name = "<script>alert(1)</script>\"'&"
    ev.store.workers.beat(name, version=name, held=2, done=0)
    assert name in admin.read("/ui/workers").text
