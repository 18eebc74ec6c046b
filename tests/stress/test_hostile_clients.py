"""A service for many tenants, while one of them attacks it with everything at once.

The long form loads 100,000 vectors and compares what the other tenants wait for with and without
the attack. The short form has fewer of everything and looks at what must hold at any speed: no
error for the others, every acknowledged add found, memory bounded, and an end in time.
"""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import evervec
from evervec.server.keys import Keys
from support.clients import WORDS, Crowd
from support.service import ServiceProcess
from support.stress import SECONDS, new_seed

_MOST_MEMORY = 1500.0
"""megabytes of the process, with 100,000 vectors in it"""


def _load(path: Path, tenants: int, vectors: int) -> dict[str, str]:
    """Keys by tenant, each with its share of the vectors; two more for the one that attacks."""
    with evervec.open(path, embedder="hashing") as ev:
        names = [f"tenant-{n}" for n in range(tenants)]
        for tenant in names:
            for _ in ev.of(tenant).add_many(
                "note",
                (
                    {
                        "id": n,
                        "text": " ".join(WORDS[(n * step) % len(WORDS)] for step in (1, 3, 7)),
                    }
                    for n in range(vectors // tenants)
                ),
            ):
                pass
        ev.process_all()
        keys = Keys(ev.store)
        found = {tenant: keys.create(tenant, "client", "writer").key for tenant in names}
        found["reader"] = keys.create("mallory", "reader", "reader").key
        found["writer"] = keys.create("mallory", "writer", "writer").key
        return found


class Siege:
    """One service, its tenants, and the one that attacks it from a process of its own."""

    def __init__(self, folder: Path, tenants: int, each: int, vectors: int, pause: float) -> None:
        self.folder, self.each, self.pause = folder, each, pause
        self.store = folder / "evervec.db"
        self.keys = _load(self.store, tenants, vectors)
        self.attacker = (self.keys.pop("reader"), self.keys.pop("writer"))
        self.seed = new_seed()
        self.saved: set[tuple[str, str]] = set()
        self.memory = 0.0
        self.service = self._start(0)

    def _start(self, port: int) -> ServiceProcess:
        return ServiceProcess(self.folder, "--workers-inside", "1", port=port)

    def crowd(
        self, seconds: float, *, attacked: bool, during: Callable[[], None] = lambda: None
    ) -> Crowd:
        self.seed += 1
        crowd = Crowd(self.service.port, self.keys, self.each, self.seed, self.pause)
        ended = threading.Event()
        beside = [
            threading.Thread(target=self._watch, args=(ended,)),
            threading.Thread(target=during),
        ]
        foe = self._attack(seconds) if attacked else None
        for thread in beside:
            thread.start()
        try:
            asyncio.run(crowd.run(seconds))
        finally:
            ended.set()
            for thread in beside:
                thread.join()
            if foe:
                with foe:
                    said, _ = foe.communicate(timeout=60)
        if foe:
            print("attacks:", json.dumps(json.loads(said), indent=1))
        self.saved |= crowd.saved
        return crowd

    def _attack(self, seconds: float) -> subprocess.Popen[bytes]:
        given = [self.service.port, *self.attacker, seconds, self.seed]
        return subprocess.Popen(
            [sys.executable, "-m", "support.clients", *map(str, given)],
            cwd=Path(__file__).parents[1],
            stdout=subprocess.PIPE,
        )

    def _watch(self, ended: threading.Event) -> None:
        while not ended.wait(0.5):
            try:
                status = Path(f"/proc/{self.service.pid}/status").read_text()
            except OSError:
                continue
            for line in status.splitlines():
                if line.startswith("VmRSS"):
                    self.memory = max(self.memory, int(line.split()[1]) / 1024)

    def restart(self) -> None:
        port = self.service.port
        self.service.close()
        self.service = self._start(port)

    def check(self) -> None:
        """Every add that was acknowledged is in the index, and nothing is wrong there."""
        assert self.service.terminate() == 0
        with evervec.open(self.store, embedder="hashing") as ev:
            ev.queue_of(None).recover_stuck(0)  # what the worker held that was killed
            ev.process_all()
            for tenant in self.keys:
                own = ev.of(tenant)
                ids = {id for owner, id in self.saved if owner == tenant}
                known: set[str] = set()
                after = None
                while found := own.records("note", embedded=True, after=after, limit=1000):
                    known |= {record.id for record in found}
                    after = (found[-1].kind, found[-1].id)
                assert ids <= known, sorted(ids - known)[:10]
            report = ev.verify(all_tenants=True)
            assert report.clean, report


def _say(name: str, crowd: Crowd) -> None:
    print(
        f"{name}: {len(crowd.seconds)} answers, p50 {crowd.percentile(0.5) * 1000:.0f} ms, "
        f"p99 {crowd.percentile(0.99) * 1000:.0f} ms, errors {dict(crowd.errors)}"
    )


_GONE = {"ConnectionRefusedError", "ConnectionResetError", "BrokenPipeError", "TimeoutError"}


def _only_of_its_end(errors: Counter[str]) -> bool:
    """Whether they are what a client meets whose service ends and comes again."""
    return all(name in _GONE or name.startswith("503") for name in errors)


def _end_twice(siege: Siege, seconds: float) -> Callable[[], None]:
    def do() -> None:
        time.sleep(seconds / 3)
        began = time.monotonic()
        assert siege.service.terminate() == 0
        print(f"ended within {time.monotonic() - began:.1f} s")
        siege.restart()
        time.sleep(seconds / 3)
        siege.service.kill()
        siege.restart()

    return do


def test_one_tenant_attacks_and_the_others_go_on(tmp_path: Path) -> None:
    siege = Siege(tmp_path, tenants=3, each=3, vectors=600, pause=0.2)
    try:
        crowd = siege.crowd(1.5, attacked=True)
        _say("attacked", crowd)
        assert not crowd.errors
        assert crowd.saved
        assert siege.memory < _MOST_MEMORY
        crowd = siege.crowd(3, attacked=True, during=_end_twice(siege, 3))
        assert _only_of_its_end(crowd.errors), crowd.errors
        siege.check()
    finally:
        siege.service.close()


@pytest.mark.long
def test_two_hundred_clients_beside_one_that_attacks(tmp_path: Path) -> None:
    """Each client asks again as soon as it is answered; then once a second, which is told only: two
    processors have little to do then, and an attack on the same machine gives them work."""
    siege = Siege(tmp_path, tenants=20, each=10, vectors=100_000, pause=0.0)
    try:
        siege.crowd(5, attacked=False)  # what is read for the first time
        ratios = {}
        for pause, seconds in ((0.0, SECONDS), (1.0, SECONDS / 2)):
            siege.pause = pause
            quiet = siege.crowd(seconds, attacked=False)
            _say(f"pause {pause:.0f} s, quiet", quiet)
            attacked = siege.crowd(seconds, attacked=True)
            _say(f"pause {pause:.0f} s, attacked", attacked)
            ratios[pause] = attacked.percentile(0.99) / quiet.percentile(0.99)
            print(f"p99 {ratios[pause]:.2f} times; memory {siege.memory:.0f} MB")
            assert not quiet.errors
            assert not attacked.errors
        assert siege.memory < _MOST_MEMORY
        ended = siege.crowd(SECONDS, attacked=True, during=_end_twice(siege, SECONDS))
        assert _only_of_its_end(ended.errors), ended.errors
        siege.check()
        assert ratios[0.0] <= 2
    finally:
        siege.service.close()
