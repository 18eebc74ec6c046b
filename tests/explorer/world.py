"""A world without threads or time: processes of one store and index, moved step by step.

Each process is a greenlet that runs evervec's own code. Before each transaction of the store and
each call to the index or the provider it hands over to the scheduler, which decides who goes on
and whether the step meets a fault. Clock, sleeping and tokens are the world's.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from greenlet import GreenletExit, getcurrent, greenlet
from numpy.typing import NDArray

from evervec import Evervec
from evervec.embedders.hashing import HashingEmbedder
from evervec.errors import ProviderUnavailable, VersionMismatch
from evervec.indexes.base import Index
from evervec.indexes.location import open_located
from evervec.opening import open_index
from evervec.settings import Settings
from explorer.disk import INDEX_BIT, Disk
from explorer.model_index import IndexState, ModelIndex
from explorer.real_index import RealIndex
from explorer.ruling import Clock
from explorer.states import State
from explorer.steps import (
    AWAY,
    CLOCK,
    CRASH,
    EVERYTHING,
    GO,
    INDEX,
    LEASE,
    LOST,
    POWER,
    PROVIDER,
    STARTS,
    WORLD,
    Access,
    Choice,
    Happened,
    InTheWay,
    Step,
)  # fmt: skip
from support.oracle import Oracle

DIMENSIONS, DIMENSIONS_2 = 16, 24
"""of the model that serves, and of one that it is changed to"""
POISON = "poison"
"""a text with this word kills the process that embeds it"""

OUTSIDE = (INDEX, PROVIDER)
"""what no transaction may be open across"""

Script = Callable[["Process"], None]
"""what an actor does"""
Decide = Callable[["World", list["Process"]], Choice | None]
"""picks who goes on; None: this run is of no more use"""


class Embedder(HashingEmbedder):
    """Hashes words; each call is a step."""

    def __init__(self, process: "Process", dimensions: int = DIMENSIONS) -> None:
        super().__init__(dimensions)
        self._process = process

    def embed(self, texts: Any) -> NDArray[np.float32]:
        process = self._process
        action = process.ask(Step(PROVIDER, "embed", False))
        if action in (AWAY, LOST):
            raise ProviderUnavailable("the provider cannot be reached")
        if not process.world.is_quiet and any(POISON in text for text in texts):
            process.die()
        return np.stack([_vector(text, self.dimensions) for text in texts])


_vectors: dict[tuple[str, int], NDArray[np.float32]] = {}


def _vector(text: str, dimensions: int) -> NDArray[np.float32]:
    known = _vectors.get((text, dimensions))
    if known is None:
        known = _vectors[text, dimensions] = HashingEmbedder(dimensions).embed([text])[0]
    return known


@dataclass(eq=False)
class Process:
    """One process of the world and, where it has a script, an actor."""

    world: "World"
    name: str
    script: Script | None = None
    pending: Step | None = None
    is_dead: bool = False
    on_commit: tuple[str, Callable[[], None]] | None = None
    """what to do as soon as a transaction of that method is committed"""
    _greenlet: "_Actor | None" = None
    _ev: Evervec | None = None
    tokens: int = 0
    """given out to it"""
    seen: int = 0
    """a hash of all that it did and was told, which decides what it does next"""
    rests_until: int = 0
    """the number of the step up to which others go first"""
    lives: int = 0
    """how often it began again"""
    state: dict[str, Any] = field(default_factory=dict)
    """what outlives a crash of the actor: how far its script has come"""

    @property
    def ev(self) -> Evervec:
        return self.open() if self._ev is None else self._ev

    @property
    def life(self) -> str:
        return f"{self.name}-{self.lives}"

    def open(self) -> Evervec:
        """Open store and index, which is no part of the schedule."""
        with self.world.quietly():
            self._ev = self.world.open(self)
        return self._ev

    @property
    def goes_on(self) -> bool:
        """Whether it takes its next step without waiting for a turn."""
        return self.world.is_quiet and not self.is_dead

    def ask(self, step: Step) -> str:
        """Wait for a turn to take this step; what is to happen to it."""
        world = self.world
        if self.is_dead:
            raise GreenletExit
        if step.resource in OUTSIDE and world.disk.is_open_for(self):
            world.blame(f"{self.name}: {step.what} of the {step.resource} inside a transaction")
        if world.is_quiet or getcurrent() is not self._greenlet:
            return GO
        self.pending = step
        action: str = world.hub.switch()
        return action

    def committed(self, what: str) -> None:
        if self.on_commit is not None and self.on_commit[0] == what:
            self.on_commit[1]()

    def sleep(self, seconds: float) -> None:
        self.ask(Step(CLOCK, f"sleep {seconds:g}", True))
        self.world.clock.move(seconds)

    def rest(self) -> None:
        """Let somebody else take a step first."""
        self.rests_until = len(self.world.happened) + 1

    def begin(self) -> None:
        """Run up to the first step."""
        assert self.script is not None
        self._greenlet = _Actor(self._run, self.world.hub)
        self._greenlet.process = self
        self._greenlet.switch(None)

    def go(self, action: str) -> None:
        self.pending = None
        if self._greenlet is None:  # it took the place of one that died in the midst of a step
            self.world._begin(self)
        else:
            self._greenlet.switch(action)

    def _run(self, _: object) -> None:
        assert self.script is not None
        try:
            self.script(self)
        except Exception as error:  # the world is told, whatever it is
            self.world.blame(f"{self.name} ended by {error!r}")
            self.world.errors.append(error)
        self.pending = None

    def die(self) -> None:
        """End this process where it is; nothing of it ever runs again."""
        self.is_dead = True
        self.pending = None
        if getcurrent() is self._greenlet and not self.world.is_quiet:
            self.world.died(self)
            self.world.hub.switch()
        raise GreenletExit

    def bury(self) -> None:
        """Unwind a dead or ended actor: its calls find it dead, and change nothing."""
        self.is_dead = True
        if self._greenlet is not None and not self._greenlet.dead:
            with self.world.quietly():
                self._greenlet.throw(GreenletExit)


class _Actor(greenlet):
    """A greenlet that knows its process."""

    process: Process


def settings_of(options: dict[str, Any]) -> Settings:
    """Settings for all processes of a world, with a clock that it moves."""
    return Settings.load({
        "clock": Clock(), "rng": _Same(), "chunk_tokens": 16, "cache_mb": 4,
        "lease_seconds": LEASE, **options,
    })  # fmt: skip


class _Same(random.Random):
    """No jitter: a schedule is the same each time that it is run."""

    def random(self) -> float:
        return 0.5


class World:
    """One run: the disk, the index, the processes, and the judge."""

    def __init__(
        self, disk: Disk, index: str, settings: Settings, real: RealIndex | None = None
    ) -> None:
        """`real`: the engine of the index, where it is neither the store's own nor the model."""
        self.disk = disk
        self._real = real
        self.index_name = index
        self.index_state = IndexState()
        self.clock: Clock = settings.clock  # type: ignore[assignment]
        self.oracle = Oracle()
        self.hub = getcurrent()
        self.actors: dict[str, Process] = {}
        self.gone: list[Process] = []
        self.happened: list[Happened] = []
        self.errors: list[Exception] = []
        self.settings = settings
        self.is_quiet = True
        self.most_steps = 4000
        """more are a circle"""
        self.restarts = True
        """whether an actor begins again after a crash"""
        self.wrong: list[str] = []
        self.tokens = 0
        self.told: Callable[[], int] = lambda: 0
        """a hash of what the judge knows"""
        self.access = Access()
        self.on_power_cut: Callable[[], None] = lambda: None
        self.after_step: Callable[[Process, Step, Access], None] | None = None

    # opening
    def open(self, process: Process) -> Evervec:
        store = self.disk.open_store(process, self.settings)
        store.wait = lambda seen, timeout: _wait(process, timeout)  # type: ignore[method-assign]
        index = self._open_index(process, store)
        first, second = Embedder(process), Embedder(process, DIMENSIONS_2)
        try:
            ev = Evervec(store, index, first, "default", self.settings)
            ev.models.add(second)
        except VersionMismatch:  # the change of model is over
            ev = Evervec(store, index, second, "default", self.settings)
            ev.models.add(first)
        ev.queue.worker = process.name
        return ev

    def _open_index(self, process: Process, store: Any) -> Index:
        if self.index_name == "own":
            return open_index(None, store, self.settings)
        if self._real is not None:
            return self._real.open(store, self.settings, process.ask)
        return open_located(
            store,
            lambda url: ModelIndex(lambda: self.index_state, process.ask, self.clock),
            ModelIndex.url,
            reindex=False,
            is_there=lambda url: True,
            priority=0,
        )

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """Inside, steps are taken without asking."""
        before, self.is_quiet = self.is_quiet, True
        try:
            yield
        finally:
            self.is_quiet = before

    def process(self, name: str, script: Script | None = None) -> Process:
        return Process(self, name, script)

    def blame(self, what: str) -> None:
        self.wrong.append(what)

    # running
    def run(self, actors: dict[str, Script], decide: Decide) -> bool:
        """Move the actors until all have ended; False when `decide` gave up."""
        for name, script in actors.items():
            self.actors[name] = self.process(name, script)
        self.is_quiet = False
        try:
            for actor in self.actors.values():
                self._begin(actor)
            while waiting := self._waiting():
                choice = decide(self, waiting)
                if choice is None:
                    return False
                self._perform(choice)
                if len(self.happened) >= self.most_steps:
                    break
            for actor in self.actors.values():
                if actor.pending is not None:  # nobody is to wait for it
                    actor.is_dead = True
                    self.disk.died(actor)
        finally:
            self.is_quiet = True
        return True

    def _waiting(self) -> list[Process]:
        """Who can go on; where all wait for each other, that is to be blamed."""
        left = [a for a in self.actors.values() if a.pending is not None]
        while left:
            able = [a for a in left if self.disk.lets(a)]
            if able:
                return [a for a in able if a.rests_until <= len(self.happened)] or able
            if not self.disk.unblock(left):
                self.blame(f"all wait for each other: {', '.join(a.name for a in left)}")
                return []
        return []

    def is_gone(self, life: str) -> bool:
        """Whether a process that was called so has died."""
        return any(p.life == life for p in self.gone)

    def drain_by(self, script: Script) -> None:
        """Run one more actor by itself, as often as it dies; the schedule does not show it."""
        happened, restarts = list(self.happened), self.restarts
        self.restarts = True
        self.run({"last": script}, lambda _, waiting: Choice(waiting[0].name))
        self.happened, self.restarts = happened, restarts

    def _begin(self, actor: Process) -> None:
        try:
            actor.open()
        except InTheWay:  # it tries again in its next turn
            actor.pending = Step(CLOCK, STARTS, False)
        else:
            actor.begin()

    def _perform(self, choice: Choice) -> None:
        if choice.actor == WORLD:
            self._befall(choice)
            return
        actor = self.actors[choice.actor]
        step = actor.pending
        assert step is not None
        self.happened.append(Happened(choice, step))
        self.disk.begin()
        state = self.index_state
        state.reads = state.writes = False
        if choice.action == CRASH:
            self._crash(actor)
        else:
            actor.go(choice.action)
        if self.disk.follows or self.after_step is not None:
            self.access = self._touched(choice)
        if self.disk.follows:
            told = state.digest() if state.reads else 0
            # where it died, another one has taken its place, which has seen what it read at first
            now = self.actors[choice.actor]
            now.seen = hash((actor.seen, choice.action, step, self.disk.seen, told))
        if self.after_step is not None:
            self.after_step(actor, step, self.access)

    def _befall(self, choice: Choice) -> None:
        """What happens to all processes at once."""
        self.happened.append(Happened(choice, Step(WORLD, choice.action, True)))
        if choice.action == POWER:
            self.disk.begin()
            self._cut_power()
            for actor in self.actors.values():
                actor.seen = hash((actor.seen, choice.action, self.disk.seen))
        else:
            self.clock.move(LEASE + 1)
        self.access = Access(EVERYTHING, EVERYTHING, True)

    def state(self, known: dict[str, int], written: int) -> State:
        """All of it as hashes; `known`: those of tables before what was `written`."""
        return State(
            self.clock.now, self.index_state.digest(), self.told(), len(self.wrong),
            self.positions(), self.disk.conn.digests(written, known),
            sum(h.choice.action != GO for h in self.happened),
        )  # fmt: skip

    def positions(self) -> dict[str, tuple[Step, int]]:
        """Of the actors that have not ended: the step before each, and a hash of what it saw."""
        return {a.name: (a.pending, a.seen) for a in self.actors.values() if a.pending is not None}

    def _touched(self, choice: Choice) -> Access:
        reads, writes, _ = self.disk.touched()
        index = self.index_state
        return Access(
            reads | index.reads * INDEX_BIT,
            writes | index.writes * INDEX_BIT,
            choice.action != GO,
        )

    def _crash(self, actor: Process) -> None:
        actor.is_dead = True
        actor.pending = None
        self.died(actor)

    def died(self, actor: Process) -> None:
        """The process is gone; another one takes its place, if the actor goes on."""
        self.gone.append(actor)
        self.disk.died(actor)
        if self.restarts and actor.script is not None:
            again = self.process(actor.name, actor.script)
            again.state = actor.state
            again.tokens = actor.tokens
            again.seen = actor.seen
            again.lives = actor.lives + 1
            self.actors[actor.name] = again
            again.pending = Step(CLOCK, STARTS, False)
            if getcurrent() is self.hub and self.disk.lets(again):
                again.pending = None
                self._begin(again)

    def _cut_power(self) -> None:
        self.disk.cut_power()
        self.on_power_cut()
        for actor in list(self.actors.values()):
            if actor.pending is not None:
                self._crash(actor)

    def end(self) -> None:
        """Unwind whatever is left of the actors."""
        self.is_quiet = True
        processes = (*self.gone, *self.actors.values())
        for process in processes:
            process.bury()
        self.disk.end(processes)


def _wait(process: Process, timeout: float) -> int:
    """Nobody is woken: waiting is a step, and time goes on."""
    if timeout > 0:
        process.sleep(timeout)
    return 0
