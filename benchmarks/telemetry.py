"""What counting costs: the pipeline at no embedding cost, with telemetry and with none.

Beside evervec as it is stands evervec with every counter and histogram made to do nothing. They
take turns, each with many short rounds, and the best of each is compared, in CPU time: what a
busy machine takes away is not telemetry's, and the best rounds have the least of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import evervec
from benchmarks.made_up import NoCost, texts
from benchmarks.rounds import Measured, take_turns
from benchmarks.table import Line, at_least
from evervec.telemetry.counters import Counter, Histogram
from evervec.worker.pipeline import Pipeline


def run(*, quick: bool) -> Sequence[Line]:
    made = texts(3_000, 30)

    best = {"counted": 0.0, "silent": 0.0}

    def counted(_: Path) -> Measured:
        best["counted"] = max(best["counted"], _rate(made))
        return {}

    def silent(_: Path) -> Measured:
        with _silence():
            best["silent"] = max(best["silent"], _rate(made))
        return {}

    take_turns({"counted": counted, "silent": silent}, 20 if quick else 60)
    line = Line(
        "embed", "records/CPU s", best["counted"], "no telemetry", best["silent"], at_least(0.97)
    )
    return [line]


def _rate(made: list[str]) -> float:
    with evervec.open("memory:", embedder=NoCost()) as ev:
        for _ in ev.add_many("note", ({"id": n, "text": text} for n, text in enumerate(made))):
            pass
        began = time.process_time()
        assert ev.process_all().succeeded == len(made)
        return len(made) / (time.process_time() - began)


@contextmanager
def _silence() -> Iterator[None]:
    with (
        patch.object(Counter, "add", _nothing),
        patch.object(Histogram, "observe", _nothing),
        patch.object(Pipeline, "_tell", _nothing),
    ):
        yield


def _nothing(*_: object, **__: object) -> None:
    pass
