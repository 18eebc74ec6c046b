"""Several processes: workers are killed and frozen at random, while texts come back to what they
were. When the faults stop, everything is as it was written last."""

import random
import time

import pytest

from evervec import Evervec
from evervec.embedders.hashing import HashingEmbedder
from support.fleet import Fleet
from support.oracle import Application, Oracle
from support.process_worker import DIMENSIONS
from support.processes import Start, until
from support.stress import SECONDS, SETTINGS, Editor, Site, Threads, settle

pytestmark = pytest.mark.every_index

SHORT = 2.5
FAULTY = {**SETTINGS, "lease_seconds": 0.5, "writer_lock_seconds": 1.0}
OWN = [("sqlite", "sqlite"), ("postgres", "pgvector")]
"""They start at once, and so make the short form; there they are written as an index apart from
the store is, in a transaction of its own."""
PAIRS = [
    ("sqlite", "lancedb"), ("sqlite", "qdrant"), ("postgres", "lancedb"), ("postgres", "qdrant"),
]  # fmt: skip
"""other stores and indexes that let several processes in"""


def strike(fleet: Fleet, chance: random.Random) -> None:
    """One fault, at a moment or at a point of the work."""
    chance.choice((fleet.kill, fleet.freeze, fleet.kill_at, fleet.freeze_at))()


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
        fleet = Fleet(site.place, start, chance, index=site.index, settings=FAULTY, apart=apart)
        until(lambda: len(ev.store.workers.all()) >= 2, "the workers to be there")
        end = time.monotonic() + seconds
        with threads.running(0.0):
            threads.start("writer", editor.change, 0.01)
            threads.start("another writer", editor.change, 0.015)
            threads.start("reader", editor.read_one, 0.05)
            while time.monotonic() < end and not threads.stop.is_set():
                strike(fleet, chance)
        fleet.end()
        settle(ev, oracle)
        oracle.about += f"\nfaults: {', '.join(fleet.told[-60:])}"
        oracle.check(ev)


def begin(ev: Evervec) -> None:
    """The collection is there before several write to it."""
    ev.add("note", "gone", id="gone")
    ev.process_all()
    ev.delete("note", "gone")
