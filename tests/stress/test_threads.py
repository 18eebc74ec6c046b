"""One process: threads write, work and read at once, and nobody holds anybody at any point."""

import random

import pytest

from support.engines import PAIRS
from support.oracle import Application, Oracle
from support.stress import SECONDS, Editor, Site, Threads, Unhurried, settle

pytestmark = pytest.mark.every_index

SHORT = 0.7
WRITERS = 3
MORE_PAIRS = [
    ("duckdb", "qdrant-edge"), ("duckdb", "qdrant"), ("postgres", "qdrant-edge"),
    ("sqlite", "qdrant-memory"),
]  # fmt: skip
"""which work too, and are left to the long form"""


@pytest.mark.parametrize(
    ("site", "form"),
    [
        *((pair, "short") for pair in PAIRS),
        *(pytest.param(pair, "long", marks=pytest.mark.long) for pair in PAIRS + MORE_PAIRS),
    ],
    indirect=["site"],
    ids=lambda given: given if isinstance(given, str) else "-".join(given),
)
def test_records_that_threads_change_all_the_time_are_always_found_as_they_were_written(
    site: Site, form: str, seed: int, oracle: Oracle
) -> None:
    seconds = SHORT if form == "short" else SECONDS
    chance = random.Random(seed)
    threads = Threads(oracle)
    with site.open(embedder=Unhurried(64, seed)) as ev:
        editors = [
            Editor(
                Application(ev.of(tenant), oracle),
                random.Random(chance.random()),
                [f"{tenant}{n}" for n in range(4)],
                [f"{tenant}shared"],
            )
            for tenant in ("default", "other")
        ]
        ev.add("note", "gone", id="gone")  # so that the collection is there before several write
        ev.process_all()
        ev.delete("note", "gone")
        with ev.worker(), threads.running(seconds):
            for editor in editors:
                for n in range(WRITERS):
                    threads.start(f"writer {n}", editor.change, 0.002)
                threads.start("reader", editor.read_one, 0.005)
            threads.start("process_all", ev.process_all, 0.01)
        settle(ev, oracle)
        assert any(editor.reads for editor in editors), "nobody read anything"
        oracle.check(ev)
