"""Exploring for a while: small scopes one by one and wholly, large ones by chance, in turns."""

import gc
import logging
import random
import resource
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf

from explorer.engines import MEMORY, schedules
from explorer.exhaustive import Exhaustive
from explorer.large import large_scope
from explorer.open_scopes import open_scope
from explorer.replaying import Shrunk
from explorer.ruling import ruled
from explorer.scopes import Result, Scope, Stage
from explorer.script import told
from explorer.small import small_scopes
from explorer.stalling import by_chance

_clock = time.monotonic
_WALKS, _ENGINE_WALKS = 30, 12
"""schedules of one large scope"""
_FIRST, _FIRST_WALKS = 150, 10
"""of the first scopes fewer are tried, so that many have their turn soon: where a scope can show a
defect, most of its schedules often do"""
_LEFT_OPEN = 0.1
"""the share of scopes with a transaction that is left open"""
SLICES, _ENGINE_SLICE = (3.0, 1.5), 0.7
"""seconds for which the exhaustive search and that by chance go on at a time in memory, and the
search on a real engine"""
ENGINES_SHARE = 0.25
"""of the time is for real engines, at most"""
_MOST_OF_SMALL = 20_000
"""runs of one small scope, after which the next one comes: a few would take hours"""
_COLLECT_ALL = 10
"""of so many garbage collections one looks at what is old, too"""
_TRIES, _ENGINE_TRIES = 1500, 150
SHRINKING = 15.0
"""runs to make a schedule shorter, in memory and on a real engine, and seconds for them"""


def _no_time() -> dict[str, float]:
    return defaultdict(float)


@dataclass
class Tally:
    """What one process has tried."""

    ended: int = 0
    """schedules that ran to their end and were judged"""
    cut: int = 0
    """schedules that came to a state from which everything was tried before"""
    foreseen: int = 0
    """schedules of which that was known without running them"""
    by_chance: int = 0
    """of those that ended: of large scopes, by chance"""
    whole: int = 0
    """small scopes of which every schedule was tried"""
    left: int = 0
    """small scopes that were left before"""
    failures: list[str] = field(default_factory=list)
    on_engine: Counter[str] = field(default_factory=Counter)
    """of those by chance: on a real engine"""
    seconds: dict[str, float] = field(default_factory=_no_time)
    """spent on an engine"""
    of_sort: Counter[str] = field(default_factory=Counter)
    """of those that ended: by what their scope has"""
    megabytes: int = 0
    """of memory, at most"""

    def add(self, other: "Tally") -> None:
        """What another process has tried."""
        for name in ("ended", "cut", "foreseen", "by_chance", "whole", "left", "failures",
                     "on_engine", "of_sort"):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.megabytes = max(self.megabytes, other.megabytes)
        for engine, seconds in other.seconds.items():
            self.seconds[engine] += seconds

    @property
    def tried(self) -> int:
        return self.ended + self.cut + self.foreseen


@dataclass
class Position:
    """How far one process's share has come: another process can go on from here."""

    small: int = 0
    """small scopes that are done"""
    large: int = 0
    """large scopes that were made"""
    on_engine: Counter[str] = field(default_factory=Counter)
    """scopes that were made for an engine"""
    turns: int = 0
    """how often a real engine had its turn"""


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Without logs, and with a garbage collector that looks only when it is told to, and not at
    what was there before, which takes 0.1 s each time: a twentieth of all."""
    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        with ruled():
            yield
    finally:
        gc.enable()
        gc.unfreeze()
        logging.disable(logging.NOTSET)


class Explorer:
    """One process's share: every `of`-th small scope, and seeds of its own."""

    def __init__(
        self,
        seed: int,
        number: int = 0,
        of: int = 1,
        most_failures: int = 1,
        changes: int = 3,
        make: Callable[[Scope], Stage] = Stage,
        engines: Sequence[str] = (MEMORY,),
        position: Position | None = None,
        engines_share: float = ENGINES_SHARE,
        shrinks: float = SHRINKING,
        slices: Sequence[float] = SLICES,
    ) -> None:
        self.tally = Tally()
        self.position = position or Position()
        self._seed = seed
        self._number, self._of = number, of
        self._most = most_failures
        self._changes = changes
        self._make = make
        self._engines = engines
        self._engines_share = engines_share if MEMORY in engines else 1.0
        self._shrinks = shrinks
        self._slices = slices
        self._collections = 0
        self._is_between = True
        """no small scope is under way"""

    @property
    def is_over(self) -> bool:
        return len(self.tally.failures) >= self._most

    def explore(self, seconds: float, schedules: float = inf, rest: float = 0.0) -> Tally:
        """Go on until the time is over, or so many schedules were tried; `rest`: seconds for which
        a small scope that is under way may go on after that."""
        began = _clock()
        end, last = began + seconds, began + seconds + rest
        with _undisturbed():
            ways: dict[Iterator[None], float] = {}
            small = self._small()
            if MEMORY in self._engines:
                ways = dict(zip((small, self._by_chance()), self._slices, strict=True))
            real = {engine: self._on(engine) for engine in self._engines if engine != MEMORY}
            while _clock() < end and self.tally.tried < schedules and not self.is_over:
                for way, at_once in list(ways.items()):
                    self._go_on(way, min(end, _clock() + at_once), ways)
                spent = sum(self.tally.seconds.values())
                if real and spent <= self._engines_share * (_clock() - began):
                    engine = list(real)[self.position.turns % len(real)]
                    self.position.turns += 1
                    self._go_on_with(engine, real[engine], end, ways)
            while small in ways and not self._is_between and _clock() < last and not self.is_over:
                self._go_on(small, min(last, _clock() + self._slices[0]), ways, to_its_end=True)
        self.tally.megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        return self.tally

    def explore_engine(self, engine: str, count: int) -> Tally:
        """So many schedules on one engine."""
        with _undisturbed():
            some = self._on(engine)
            while self.tally.on_engine[engine] < count and not self.is_over:
                next(some)
        return self.tally

    def explore_some(self, scopes: int, walks: int) -> Tally:
        """All schedules of the first small scopes, and so many of large ones by chance."""
        with _undisturbed():
            small, large = self._small(), self._by_chance()
            while self.tally.whole < scopes and not self.is_over:
                next(small)
            for _ in range(walks):
                if not self.is_over:
                    next(large)
        return self.tally

    def _go_on(
        self,
        way: Iterator[None],
        end: float,
        ways: dict[Iterator[None], float],
        *,
        to_its_end: bool = False,
    ) -> None:
        while _clock() < end and not self.is_over and not (to_its_end and self._is_between):
            if next(way, way) is way:
                ways.pop(way, None)
                break
        self._collect()

    def _go_on_with(
        self, engine: str, way: Iterator[None], end: float, ways: dict[Iterator[None], float]
    ) -> None:
        """The same on a real engine."""
        began = _clock()
        self._go_on(way, min(end, began + _ENGINE_SLICE), ways)
        self.tally.seconds[engine] += _clock() - began

    def _collect(self) -> None:
        """Most of the garbage is young; to look at all that is known of a scope takes long."""
        self._collections += 1
        gc.collect(2 if self._collections % _COLLECT_ALL == 0 else 0)

    # ways
    def _small(self) -> Iterator[None]:
        """All schedules of the small scopes, the smallest first."""
        scopes = small_scopes(self._changes, random.Random(self._seed))
        for place in range(self._number, len(scopes), self._of)[self.position.small :]:
            self._is_between = False
            scope = scopes[place]
            search = Exhaustive(self._make(scope))
            for result in search.results():
                self.tally.foreseen += search.take_foreseen()
                if result.problems is None:
                    self.tally.cut += 1
                else:
                    self._note(scope, result, f"all schedules of small scope {place}")
                yield
                if search.runs + search.cut >= _MOST_OF_SMALL:
                    break
            self.tally.whole += search.is_over
            self.tally.left += not search.is_over
            self.position.small += 1
            self._is_between = True
            yield

    def _by_chance(self) -> Iterator[None]:
        while True:
            rng = self._next_rng()
            is_open = rng.random() < _LEFT_OPEN
            scope = open_scope(rng) if is_open else large_scope(rng, self.position.large)
            yield from self._walks(scope, rng)

    def _on(self, engine: str) -> Iterator[None]:
        """Schedules on a real engine."""
        seed = f"{self._seed}, process {self._number} of {self._of}"
        made = self.position.on_engine
        for scope, result, source in schedules(engine, seed, _ENGINE_WALKS, made, self._make):
            self.tally.by_chance += 1
            self.tally.on_engine[engine] += 1
            self._note(scope, result, source)
            yield

    def _next_rng(self) -> random.Random:
        self.position.large += 1
        made = self.position.large
        self._name = f"seed {self._seed}, process {self._number} of {self._of}, scope {made}"
        return random.Random(f"{self._seed}/{self._number}/{made}")

    def _walks(self, scope: Scope, rng: random.Random) -> Iterator[None]:
        stage, length, name = self._make(scope), 60, self._name
        for number in range(_FIRST_WALKS if self.position.large <= _FIRST else _WALKS):
            result = stage.run(by_chance(scope, rng, length))
            length = max(10, len(result.world.happened))
            self.tally.by_chance += 1
            self._note(scope, result, f"{name}, schedule {number}")
            yield

    def _note(self, scope: Scope, result: Result, source: str) -> None:
        self.tally.ended += 1
        self.tally.of_sort[scope.sort] += 1
        if result.problems and not self.is_over:
            tries = _TRIES if scope.is_in_memory else _ENGINE_TRIES
            shrunk = Shrunk(scope, result.choices, self._make, tries, self._shrinks)
            if not shrunk.result.problems:
                source += f"; it did not come again when it was replayed: {result.problems}"
            self.tally.failures.append(told(shrunk, source))
