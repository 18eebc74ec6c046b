"""Sizing: what a deployment for many vectors needs, by simulation from measured costs.

A load of all records is simulated minute by minute: GPUs embed what waits, PostgreSQL stores ("cells",
each with its own records, queue and index) write it, then build their HNSW indexes. GPUs fail at
random, lose the few seconds of work that they held, and come back after a while. What limits the load
is the stage that would take longest by itself.

The costs are measured where that is said, else assumed; prices are assumptions too. The same formulas
predict measurements that they were not made from, which are printed beside them.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.table import Line, Target

_GROWTH = Path(__file__).parent / "results" / "growth"

# H200, texts of 200 tokens, half precision: (device alone, from `add` to searchable on SQLite with one
# worker), per second
H200 = {"MiniLM": (31_700, 7_860), "base": (7_970, 7_060), "large": (2_720, 2_600)}
HOST_RATE = H200["MiniLM"][1]
"""texts per second that go through a worker if the device does not limit it, by the smallest model"""
DEVICE_SHARE = H200["base"][1] / H200["base"][0]
"""how much of the device's rate is left where the device is the limit, by the middle one"""
PRIMARY_JOBS = 26_969
"""jobs per second that one PostgreSQL primary finishes for one process, without any embedding"""
HNSW_LINKS = 200
"""bytes of a vector's links; assumed, for 16 links"""
MEASURED_DIMENSIONS = 384
SHORT_TEXT, TEXT = 300, 900
"""characters of a text in the measurement of disk, and here"""
WORDS_INDEX = 0.5
"""bytes of the full-text index for each of text; assumed"""

CORES, MEMORY_GB, CELL_RECORDS = 16, 128, 50_000_000
"""of a PostgreSQL machine, and the records that it holds so that its HNSW index stays in memory"""
BUSY = 0.6
"""share of the cores that writing may use"""
GPU_HOUR, CELL_HOUR, TB_MONTH = 3.50, 1.20, 80.0
"""assumed prices, in dollars"""
FAILURES, AWAY_MINUTES, LOST_SECONDS = 0.01, 5, 7.5
"""failures of a GPU per hour, how long it is away then, and the work it loses: three calls"""
DIMENSIONS = 768


@dataclass(frozen=True)
class Deployment:
    """Machines for so many vectors, of one chunk for each record."""

    vectors: int
    gpus: int

    @property
    def cells(self) -> int:
        return math.ceil(self.vectors / CELL_RECORDS)

    @property
    def terabytes(self) -> float:
        return self.vectors * record_bytes(DIMENSIONS, half=True, text=TEXT) / 1e12


DEPLOYMENTS = (
    Deployment(10_000_000, 1), Deployment(1_000_000_000, 16), Deployment(100_000_000_000, 512),
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What became of a simulated load."""

    hours: float
    written: int
    lost: int
    """texts that were embedded twice, because a GPU failed"""
    alone: dict[str, float]
    """hours that each stage would take if nothing failed and no other stage had to be waited for"""

    @property
    def bottleneck(self) -> str:
        return max(self.alone, key=lambda stage: self.alone[stage])


def measured(store: str, size: int) -> dict[str, float]:
    found: dict[str, dict[str, float]] = json.loads((_GROWTH / f"{store}.json").read_text("utf-8"))
    return found[str(size)]


def record_bytes(dimensions: int, *, half: bool, text: int) -> float:
    """Bytes of a record in PostgreSQL with its vector and place in an HNSW index; from the measured
    size with vectors in single precision."""
    known = 2 * 4 * MEASURED_DIMENSIONS + HNSW_LINKS
    bare = measured("postgres", 100_000)["disk_mb"] * 1e6 / 100_000 - known
    vector = (2 if half else 4) * dimensions
    return bare + (text - SHORT_TEXT) * (1 + WORDS_INDEX) + 2 * vector + HNSW_LINKS


def build_seconds() -> float:
    """Seconds of a core for a vector's place in an HNSW index: what the last half of a load of
    100,000 cost more than one without an index, and what was left to be built then."""
    without, found = measured("postgres", 10_000), measured("postgres", 100_000)
    beside = (found["record_cpu_us"] - without["record_cpu_us"]) / 1e6 / 2
    return beside + found["settle_cpu_s"] / 100_000


def embedding_rate(model: str) -> float:
    """Texts per second of one GPU and its worker, which work side by side: the slower one counts."""
    return min(H200[model][0] * DEVICE_SHARE, HOST_RATE)


def writing_rate() -> float:
    """Records per second of one cell, before there is an HNSW index."""
    seconds = measured("postgres", 10_000)["record_cpu_us"] / 1e6
    return min(CORES * BUSY / seconds, PRIMARY_JOBS)


def building_rate() -> float:
    """Vectors per second of one cell's HNSW index, by all cores after the load; a comparison takes
    longer with more dimensions."""
    return CORES / build_seconds() * MEASURED_DIMENSIONS / DIMENSIONS


def simulate(given: Deployment, seed: int = 1) -> Outcome:
    """Load all records, then build the indexes."""
    rng = random.Random(seed)
    gpu, cell = embedding_rate("base") * 60, writing_rate() * 60 * given.cells
    waiting, embedded, written, lost, minutes = float(given.vectors), 0.0, 0.0, 0.0, 0
    away: list[int] = []
    while written < given.vectors - 0.5:
        minutes += 1
        away = [left - 1 for left in away if left > 1]
        failed = _failures(rng, given.gpus - len(away))
        away += [AWAY_MINUTES] * failed
        again = min(failed * LOST_SECONDS * gpu / 60, gpu)
        able = max(0.0, (given.gpus - len(away)) * gpu - again)
        lost += again
        room = max(0.0, 2 * cell - embedded)  # workers claim no more than they can write soon
        made = min(waiting, able, room)
        waiting -= made
        embedded += made
        put = min(embedded, cell)
        embedded -= put
        written += put
    alone = {
        "embedding": given.vectors / (given.gpus * gpu) / 60,
        "writing": given.vectors / cell / 60,
        "building the index": given.vectors / given.cells / building_rate() / 3600,
    }
    hours = minutes / 60 + alone["building the index"]
    return Outcome(hours, round(written), round(lost), alone)


def _failures(rng: random.Random, gpus: int) -> int:
    """GPUs that fail in a minute."""
    expected = gpus * FAILURES / 60
    return int(expected) + (rng.random() < expected - int(expected))


def table() -> str:
    """The deployments, as Markdown."""
    rows = ["| vectors | GPUs | PostgreSQL machines | disk | first load | cost of the load | per month after | first bottleneck |",
            "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for given in DEPLOYMENTS:
        done = simulate(given)
        load = done.hours * (given.gpus * GPU_HOUR + given.cells * CELL_HOUR)
        month = given.cells * CELL_HOUR * 730 + given.terabytes * TB_MONTH + GPU_HOUR * 730
        rows.append(
            f"| {_count(given.vectors)} | {given.gpus:,} | {given.cells:,} | {_digits(given.terabytes)} TB "
            f"| {done.hours:.2g} h | ${_round(load):,} | ${_round(month):,} | {done.bottleneck} |"
        )
    return "\n".join(rows)


def checks() -> list[Line]:
    """Predictions beside measurements that they were not made from."""
    within = Target("0.75 to 1.33", lambda ratio: 0.75 <= ratio <= 1.33)
    found = float(H200["large"][1])
    lines = [
        Line(
            "H200, large, one worker", "texts/s", embedding_rate("large"), "measured", found, within
        )
    ]
    alone = measured("pgvector", 100_000)["settle_cpu_s"] / 100_000
    lines.append(
        Line("HNSW, a vector's place, by pgvector alone", "µs", 1e6 * alone,
             "through evervec", 1e6 * build_seconds(), within)
    )  # fmt: skip
    small, large = measured("postgres", 10_000), measured("postgres", 100_000)
    index = 100_000 * (4 * MEASURED_DIMENSIONS + HNSW_LINKS) / 1e6
    lines.append(
        Line("PostgreSQL, disk at 100,000 by 10,000", "MB", small["disk_mb"] * 10 + index,
             "measured", large["disk_mb"], within)
    )  # fmt: skip
    return lines


def run(*, quick: bool) -> Sequence[Line]:
    print(table())
    return checks()


def _count(vectors: int) -> str:
    return f"{vectors // 10**9:,} billion" if vectors >= 10**9 else f"{vectors // 10**6} million"


def _digits(number: float) -> str:
    """With two digits."""
    return f"{round(number):,}" if number >= 10 else f"{number:.2g}"


def _round(dollars: float) -> int:
    """To two digits."""
    digits = max(0, math.floor(math.log10(dollars)) - 1)
    return int(round(dollars / 10**digits) * 10**digits)
