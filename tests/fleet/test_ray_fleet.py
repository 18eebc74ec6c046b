"""Workers as actors of a local Ray: killed at random, replaced, and nothing lost or done twice."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import evervec
from evervec.errors import EvervecError

ray = pytest.importorskip("ray")

from evervec.integrations.fleet.ray import RayLauncher, RayMember, orders  # noqa: E402
from evervec.integrations.fleet.supervisor import Fleet, Lag, Size  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    os.environ["RAY_raylet_start_wait_time_s"] = "300"  # noqa: SIM112 - Ray's own name
    ray.init(num_cpus=4, include_dashboard=False, object_store_memory=80_000_000,
             log_to_driver=False, namespace="evervec")  # fmt: skip
    yield
    ray.shutdown()


def wait_for(condition: Any, fleet: Fleet | None = None) -> None:
    for _ in range(1200):
        if fleet is not None:
            fleet.step()
        if condition():
            return
        threading.Event().wait(0.1)
    raise AssertionError("it did not come about")


def _has_done(ev: evervec.Evervec, least: int) -> bool:
    return ev.queue.stats().done > least


def _kill_one(fleet: Fleet, rng: random.Random) -> None:
    """Kill an actor that runs, and see it replaced."""
    before = fleet.replaced
    victim = rng.choice(fleet.members)
    assert isinstance(victim, RayMember)
    os.kill(ray.get(victim.actor.process.remote(), timeout=120), signal.SIGKILL)
    wait_for(lambda: fleet.replaced > before, fleet)


def test_actors_that_are_killed_at_random_lose_and_repeat_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERVEC_LEASE_SECONDS", "2")
    path, records, rng = tmp_path / "store.db", 6000, random.Random(1)
    with evervec.open(path, embedder="hashing") as ev:
        launcher = RayLauncher("local", orders(str(path), None, "hashing", None, 1), cpus=0.5)
        fleet = Fleet(launcher, lambda: Lag(0, None), Size(3, 3))
        fleet.step()

        def write() -> None:
            for start in range(0, records, 200):
                rows = ({"id": n, "text": f"text {n}"} for n in range(start, start + 200))
                list(ev.add_many("note", rows))
                threading.Event().wait(0.1)

        writer = threading.Thread(target=write)
        writer.start()
        for least in (800, 1600, 2400, 3200):
            wait_for(partial(_has_done, ev, least), fleet)
            _kill_one(fleet, rng)
        writer.join()
        wait_for(lambda: ev.queue.stats().done == records, fleet)
        assert fleet.replaced == 4
        fleet.stop(30)
        stats = ev.queue.stats()
        assert (stats.pending, stats.processing, stats.failed) == (0, 0, 0)
        assert ev.verify().complete
        assert ev.store.workers.all() is not None
    with sqlite3.connect(path) as db:
        done = db.execute(
            "select count(*), count(distinct record) from evervec_attempts where outcome = 'done'"
        ).fetchone()
    assert done == (records, records), "exactly once"


def test_an_actor_that_cannot_start_is_told_and_tried_again(tmp_path: Path) -> None:
    launcher = RayLauncher("local", orders(str(tmp_path / "no.db"), None, "hashing", None, 1))
    fleet = Fleet(launcher, lambda: Lag(0, None), Size(1, 1))
    fleet.step()
    (member,) = fleet.members
    wait_for(lambda: member.trouble() is not None)
    evervec.open(tmp_path / "no.db", embedder="hashing").close()
    with evervec.open(tmp_path / "no.db", embedder="hashing") as ev:
        ev.add("note", "text", id="1")
        wait_for(lambda: ev.queue.stats().done == 1, fleet)
        fleet.stop(30)
    assert fleet.replaced >= 1


def test_an_actor_for_which_there_is_no_machine_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("evervec.integrations.fleet.ray._LATE_SECONDS", 0.0)
    given = orders(str(tmp_path / "store.db"), None, "hashing", None, 1)
    fleet = Fleet(RayLauncher("local", given, gpus=1), lambda: Lag(0, None), Size(1, 1))
    for _ in range(3):
        fleet.step()
    (member,) = fleet.members
    assert caplog.text.count("worker 1 has not started for 0 s") == 1
    member.kill()


def test_a_fleet_that_stops_gives_nothing_back_that_it_could_finish(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with evervec.open(path, embedder="hashing") as ev:
        fleet = Fleet(
            RayLauncher("local", orders(str(path), None, "hashing", None, 1)),
            lambda: Lag(0, None),
            Size(1, 1),
        )
        fleet.step()
        ev.add("note", "text", id="1")
        wait_for(lambda: ev.queue.stats().done == 1, fleet)
        (member,) = fleet.members
        assert isinstance(member, RayMember)
        fleet.stop(60)
        with pytest.raises((ray.exceptions.RayError, EvervecError)):
            ray.get(member.actor.process.remote(), timeout=60)
        assert not ev.store.workers.all()


def test_the_command_supervises_until_it_is_signalled(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    command = [sys.executable, "-m", "evervec", "--store", str(path), "--embedder", "hashing",
               "worker", "--ray", "local", "--actors", "1"]  # fmt: skip
    with evervec.open(path, embedder="hashing") as ev:
        ev.add("note", "text", id="1")
        environ = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
        running = subprocess.Popen(command, env=environ)
        try:
            wait_for(lambda: ev.queue.stats().done == 1)
            running.terminate()
            assert running.wait(120) == 0
        finally:
            running.kill()
        assert not ev.store.workers.all()
