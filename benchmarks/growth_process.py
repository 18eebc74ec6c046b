"""A process that loads one contender of the growth benchmark, size by size, and prints what each
size cost as a line of JSON."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import growth_peers
from benchmarks.growth_data import FILTERS, Corpus
from benchmarks.growth_ways import Ask, K, Way, evervec_on, evervec_on_postgres, parent
from benchmarks.rounds import percentiles, stopwatch

Open = Callable[[Corpus, Path], AbstractContextManager[Way]]

OURS: dict[str, Open] = {
    "sqlite": partial(evervec_on, store="{}/records.db", index=None),
    "duckdb": partial(evervec_on, store="duckdb:///{}/records.duckdb", index=None),
    "postgres": evervec_on_postgres,
    "sqlite+lancedb": partial(evervec_on, store="{}/records.db", index="lancedb://{}/vectors"),
    "sqlite+qdrant": partial(evervec_on, store="{}/records.db", index="qdrant-edge://{}/vectors"),
}
PEERS: dict[str, Open] = {
    "lancedb": growth_peers.lancedb,
    "qdrant": growth_peers.qdrant,
    "pgvector": growth_peers.pgvector,
    "chroma": growth_peers.chroma,
}
_STEP = 10_000
_WARM, _QUERIES, _LONGEST, _RECALLED = 3, 200, 30.0, 50
_TICK = os.sysconf("SC_CLK_TCK")


def main(name: str, sizes: str) -> None:
    corpus = Corpus()
    opened: Open = {**OURS, **PEERS}[name]
    with (
        TemporaryDirectory(prefix="evervec-bench-") as folder,
        opened(corpus, Path(folder)) as way,
    ):
        done = 0
        for size in map(int, sizes.split(",")):
            steps = []
            while done < size:
                end = min(done + _STEP, size)
                steps.append(_cost(way, partial(way.load, done, end), end - done))
                done = end
            print(json.dumps({"size": size, **_measure(way, corpus, size, steps)}), flush=True)


def _cost(way: Way, do: Callable[[], object], records: int) -> tuple[int, float, float]:
    """Records, seconds, and seconds of processors, the server's included."""
    before = _processors(way)
    with stopwatch() as watch:
        do()
    return records, watch.seconds, _processors(way) - before


def _measure(
    way: Way, corpus: Corpus, size: int, steps: list[tuple[int, float, float]]
) -> dict[str, Any]:
    # the last half of what was loaded: what a record costs at this size, put-off work included
    late = steps[len(steps) // 2 :]
    records, seconds, processors = (sum(column) for column in zip(*late, strict=True))
    _, settling, settling_cpu = _cost(way, way.settle, 0)
    found: dict[str, Any] = {
        "record_us": 1e6 * seconds / records,
        "record_cpu_us": 1e6 * processors / records,
        "settle_s": settling,
        "settle_cpu_s": settling_cpu,
    }
    for mode, ask in way.modes.items():
        found[mode], found[f"{mode}_cpu_ms"] = _asked(way, ask, len(corpus.queries))
    found["memory_mb"] = _memory(way) / 1e6
    found["disk_mb"] = way.disk() / 1e6
    right = corpus.nearest(_RECALLED, size, K, {"semantic": (), **FILTERS})
    for mode, nearest in right.items():
        key = "recall" if mode == "semantic" else f"{mode}_recall"
        found[key] = _recall(way.modes[mode], nearest)
    found["load_average"] = os.getloadavg()[0]
    return found


def _asked(way: Way, ask: Ask, queries: int) -> tuple[tuple[float, float], float]:
    """p50 and p99 in milliseconds, and the processors' time of a search."""
    for number in range(_WARM):
        ask(number)
    before, spent = _processors(way), list[float]()
    for turn in range(_QUERIES):
        start = time.perf_counter()
        ask((_WARM + turn) % queries)
        spent.append(time.perf_counter() - start)
        if sum(spent) > _LONGEST:
            break
    return percentiles(spent), 1000 * (_processors(way) - before) / len(spent)


def _recall(ask: Ask, nearest: Sequence[set[str]]) -> float:
    """The share of the nearest that a search finds."""
    found = (set(ask(number)) for number in range(len(nearest)))
    return sum(len(a & b) for a, b in zip(nearest, found, strict=True)) / sum(map(len, nearest))


# processes
def _memory(way: Way) -> int:
    """Of this process and its server's, shared pages counted once."""
    total = 0
    for process in [os.getpid(), *_of_server(way)]:
        with suppress(OSError):
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    return total


def _processors(way: Way) -> float:
    """Seconds of this process, of its children that ended, and of the server."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used) + sum(map(_spent, _of_server(way)))


def _spent(process: int) -> float:
    """Seconds of a process and of its children that ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICK


def _of_server(way: Way) -> list[int]:
    main = way.server()
    if main is None:
        return []
    running = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    found = [main]
    for process in running:
        with suppress(OSError, IndexError):
            if parent(process) == main:
                found.append(process)
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
