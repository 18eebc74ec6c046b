"""What counting costs: the pipeline at no embedding cost, with telemetry and with none.

Beside evervec as it is stands evervec with every counter and histogram made to do nothing. Each
round does both, another first each time; what is compared is CPU time, of which a busy machine
takes none away.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import evervec
from benchmarks.made_up import NoCost, texts
from benchmarks.rounds import Measured, take_turns
from benchmarks.table import Line, at_least
from evervec.telemetry import Counter, Histogram


def run(*, quick: bool) -> Sequence[Line]:
    made = texts(5_000 if quick else 20_000, 30)

    def counted(_: Path) -> Measured:
        return _measure(made)

    def silent(_: Path) -> Measured:
        with _silence():
            return _measure(made)

    _measure(made[:1000])  # whatever is loaded at first use
    seen = take_turns({"counted": counted, "silent": silent}, 9 if quick else 15)
    counted_at, silent_at = seen["counted"]["rate"], seen["silent"]["rate"]
    unit = "records/CPU s"
    return [Line("embed", unit, counted_at, "no telemetry", silent_at, at_least(0.97))]


def _measure(made: list[str]) -> Measured:
    with evervec.open("memory:", embedder=NoCost()) as ev:
        for _ in ev.add_many("note", ({"id": n, "text": text} for n, text in enumerate(made))):
            pass
        began = time.process_time()
        assert ev.process_all().succeeded == len(made)
        return {"rate": len(made) / (time.process_time() - began)}


@contextmanager
def _silence() -> Iterator[None]:
    add, observe_all = Counter.add, Histogram.observe_all
    Counter.add = Histogram.observe_all = _nothing  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        Counter.add, Histogram.observe_all = add, observe_all  # type: ignore[method-assign]


def _nothing(*_: object) -> None:
    pass
