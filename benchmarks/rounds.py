"""Contenders take turns, so that a slow moment of the machine is nobody's alone."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

Measured = dict[str, float]
Contender = Callable[[Path], Measured]


def take_turns(contenders: Mapping[str, Contender], rounds: int) -> dict[str, Measured]:
    """Each contender once a round in an empty folder, another first each time; medians."""
    seen: dict[str, dict[str, list[float]]] = {name: {} for name in contenders}
    names = list(contenders)
    for turn in range(rounds):
        for place in range(len(names)):
            name = names[(turn + place) % len(names)]
            with TemporaryDirectory(prefix="evervec-bench-") as folder:
                gc.collect()
                for what, value in contenders[name](Path(folder)).items():
                    seen[name].setdefault(what, []).append(value)
    return {
        name: {what: median(values) for what, values in by_what.items()}
        for name, by_what in seen.items()
    }


class Stopwatch:
    """Seconds of a `with` block."""

    seconds = 0.0


@contextmanager
def stopwatch() -> Iterator[Stopwatch]:
    watch = Stopwatch()
    start = time.perf_counter()
    yield watch
    watch.seconds = time.perf_counter() - start


def percentiles(seconds: list[float]) -> tuple[float, float]:
    """p50 and p99 in milliseconds."""
    p50, p99 = np.percentile(np.array(seconds) * 1000, [50, 99])
    return float(p50), float(p99)
