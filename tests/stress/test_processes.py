"""Several processes: workers are killed and frozen at random, while texts come back to what they
were. When the faults stop, everything is as it was written last."""

import random
import threading
import time
from contextlib import suppress

import pytest

from evervec import Evervec
from evervec.embedders.hashing import HashingEmbedder
from support.fault_checks import freeze
from support.oracle import Application, Oracle
from support.process_worker import DIMENSIONS
from support.processes import Child, Start, until
from support.stress import SECONDS, SETTINGS, Editor, Site, Threads, settle

SHORT = 2.5
FAULTY = {**SETTINGS, "lease_seconds": 0.5, "writer_lock_seconds": 1.0}
POINTS = ["loading", "embedding", "applying", "applied", "finished"]
"""where a worker stands: it has claimed, it has read, and then before and after each write"""
OWN = [("sqlite", "sqlite"), ("postgres", "pgvector")]
"""They start at once, and so make the short form; there they are written as an index apart from
the store is, in a transaction of its own."""
PAIRS = [
    ("sqlite", "lancedb"), ("sqlite", "qdrant"), ("postgres", "lancedb"), ("postgres", "qdrant"),
]  # fmt: skip
"""other stores and indexes that let several processes in"""


class Faults:
    """Workers in processes of their own, and what befalls them."""

    def __init__(self, site: Site, start: Start, chance: random.Random, *, apart: bool) -> None:
        self._site = site
        self._apart = apart
        self._start = start
        self._chance = chance
        self._pause = threading.Event()
        self._workers = [self._worker(), self._worker()]
        self.told: list[str] = []
        """what happened, in order"""

    def _worker(self, point: str | None = None) -> Child:
        return self._start(
            "work", self._site.store, index=self._site.index, settings=FAULTY,
            pause={point: ""} if point else {}, burn_seconds=0.002, max_batch=8,
            index_apart=self._apart,
        )  # fmt: skip

    def strike(self) -> None:
        """One fault, at a moment or at a point of the work."""
        fault = self._chance.choice((self._kill, self._freeze, self._kill_at, self._freeze_at))
        fault()

    def _kill(self) -> None:
        victim = self._workers.pop(self._chance.randrange(len(self._workers)))
        self._pause.wait(self._chance.random() * 0.05)
        victim.kill()
        self.told.append(f"killed {victim.pid}")
        self._workers.append(self._worker())

    def _freeze(self) -> None:
        victim = self._chance.choice(self._workers)
        freeze(victim, self._site.place)
        self._past_the_lease()
        victim.thaw()
        self.told.append(f"froze {victim.pid}")

    def _kill_at(self) -> None:
        point, victim = self._one_at_a_point(POINTS)
        victim.kill()
        self.told.append(f"killed {victim.pid} at {point}")

    def _freeze_at(self) -> None:
        # where the index is written in the store's own transaction, others would wait for its locks
        joined = not self._apart and self._site.index is None
        point, victim = self._one_at_a_point(POINTS[:2] + POINTS[4:] if joined else POINTS)
        with suppress(AssertionError):  # it is held at its point, with or without this
            freeze(victim, self._site.place)
        self._past_the_lease()
        victim.thaw()
        victim.go(point, times=1000)
        self.told.append(f"froze {victim.pid} at {point}")
        victim.reaches("finished", seconds=1.0)
        victim.kill()

    def _one_at_a_point(self, points: list[str]) -> tuple[str, Child]:
        point = self._chance.choice(points)
        victim = self._worker(point)
        victim.reaches(point, seconds=2.0)
        return point, victim

    def _past_the_lease(self) -> None:
        self._pause.wait(FAULTY["lease_seconds"] * self._chance.uniform(0.5, 2.5))

    def end(self) -> None:
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            worker.exit_code()


@pytest.mark.parametrize(
    ("site", "written", "form"),
    [
        *((pair, "apart", "short") for pair in OWN),
        *(
            pytest.param(pair, written, "long", marks=pytest.mark.long)
            for written in ("apart", "as it is")
            for pair in (OWN if written == "apart" else OWN + PAIRS)
        ),
    ],
    indirect=["site"],
    ids=lambda given: given if isinstance(given, str) else "-".join(given),
)
def test_records_survive_workers_that_are_killed_and_frozen_while_their_texts_come_back(
    site: Site, written: str, form: str, seed: int, oracle: Oracle, start: Start
) -> None:
    seconds = SHORT if form == "short" else SECONDS
    chance = random.Random(seed)
    threads = Threads(oracle)
    with site.open(embedder=HashingEmbedder(DIMENSIONS), **FAULTY) as ev:
        apart = written == "apart"
        if apart:
            ev.index.shares_store = False
        begin(ev)
        ids = [f"r{n}" for n in range(6)]
        editor = Editor(Application(ev, oracle), random.Random(chance.random()), ids, ["shared"])
        faults = Faults(site, start, chance, apart=apart)
        until(lambda: len(ev.store.workers()) >= 2, "the workers to be there")
        end = time.monotonic() + seconds
        with threads.running(0.0):
            threads.start("writer", editor.change, 0.01)
            threads.start("another writer", editor.change, 0.015)
            threads.start("reader", editor.read_one, 0.05)
            while time.monotonic() < end and not threads.stop.is_set():
                faults.strike()
        faults.end()
        settle(ev, oracle)
        oracle.about += f"\nfaults: {', '.join(faults.told[-60:])}"
        oracle.check(ev)


def begin(ev: Evervec) -> None:
    """The collection is there before several write to it."""
    ev.add("note", "gone", id="gone")
    ev.process_all()
    ev.delete("note", "gone")
