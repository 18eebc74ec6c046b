"""Fleet: three actors of Ray beside three plain processes, and actors that are killed at random.

Records wait in an SQLite store; three workers embed them by hashing. First as processes, then as
actors, without kills: processor time of all processes that each way needs, Ray's own included, from
the first start until all is done. Then once more with actors that are killed at random while they
work. It fails unless every record was finished exactly once and `verify` is complete.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import evervec
from benchmarks.table import Line

_WORKERS = 3
_LEASE = "3"


def run(*, quick: bool) -> Sequence[Line]:
    records = 5_000 if quick else 50_000
    os.environ["EVERVEC_LEASE_SECONDS"] = _LEASE
    os.environ["RAY_raylet_start_wait_time_s"] = "300"  # noqa: SIM112 - Ray's own name
    with TemporaryDirectory(prefix="evervec-bench-") as folder:
        plain = _measured(Path(folder) / "plain.db", records, _processes)
        actors = _measured(Path(folder) / "ray.db", records, _actors)
        killed: list[int] = []
        stormy = _measured(
            Path(folder) / "killed.db", records, lambda path, ev: _actors(path, ev, killed)
        )
    return [
        Line("3 actors, all processes", "records per processor second", actors[0],
             "3 processes", plain[0]),
        Line("3 actors, by the clock", "1/s", actors[1], "3 processes", plain[1]),
        Line(f"3 actors, {len(killed)} killed, by the clock", "1/s", stormy[1]),
    ]  # fmt: skip


def _measured(
    path: Path, records: int, fleet: Callable[[Path, evervec.Evervec], Any]
) -> tuple[float, float]:
    """Records per second of processor time and of time."""
    with evervec.open(path, embedder="hashing") as ev:
        for _ in ev.add_many("note", ({"id": n, "text": f"text {n}"} for n in range(records))):
            pass
        began = time.monotonic()
        with fleet(path, ev) as step:
            while ev.queue.stats().done < records:
                step()
                time.sleep(0.2)
            spent, took = _descendants(), time.monotonic() - began
        report = ev.verify()
        assert report.complete, report
    with sqlite3.connect(path) as db:
        query = "select count(*), count(distinct record) from evervec_attempts where outcome='done'"
        found = db.execute(query).fetchone()
        assert found == (records, records), found
    return records / spent, records / took


@contextmanager
def _processes(path: Path, _: evervec.Evervec) -> Iterator[Callable[[], None]]:
    command = [sys.executable, "-m", "evervec", "--store", str(path), "--embedder", "hashing",
               "worker"]  # fmt: skip
    workers = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(_WORKERS)]
    yield lambda: None
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.wait()


@contextmanager
def _actors(
    path: Path, ev: evervec.Evervec, killed: list[int] | None = None
) -> Iterator[Callable[[], None]]:
    import ray

    from evervec.integrations.fleet.ray import RayLauncher, RayMember, orders
    from evervec.integrations.fleet.supervisor import Fleet, Lag, Size

    ray.init(num_cpus=4, include_dashboard=False, object_store_memory=80_000_000,
             log_to_driver=False, namespace="evervec")  # fmt: skip
    launcher = RayLauncher("local", orders(str(path), None, "hashing", None, None))
    fleet = Fleet(launcher, lambda: Lag(0, None), Size(_WORKERS, _WORKERS))
    rng = random.Random(1)

    def step() -> None:
        fleet.step()
        if killed is None or rng.random() > 0.15 or not ev.queue.stats().done:
            return
        victim = rng.choice(fleet.members) if fleet.members else None
        if isinstance(victim, RayMember):
            try:
                process = ray.get(victim.actor.process.remote(), timeout=1)
            except (ray.exceptions.RayError, TimeoutError):
                return
            os.kill(process, signal.SIGKILL)
            killed.append(process)

    try:
        yield step
        fleet.stop(30)
    finally:
        ray.shutdown()


def _descendants() -> float:
    """Processor seconds of all processes that this one has started and that live."""
    import psutil

    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total
