"""What is explored: a beginning, actors and the faults that they may meet.

A scope is plain data, so that a schedule which fails can be written down with it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from explorer import actors, transactions
from explorer.actors import AROUND, Op, Table, apply, drain, work_once
from explorer.damage import damage
from explorer.grounds import open_disk
from explorer.judge import Judge
from explorer.real_index import OPTIONS, REAL, RealIndex
from explorer.ruling import ruling
from explorer.steps import (
    AWAY,
    CRASH,
    GO,
    INDEX,
    LOST,
    PART,
    PAUSE,
    POWER,
    PROVIDER,
    STORE,
    WORLD,
    Choice,
    Step,
)  # fmt: skip
from explorer.world import Process, Script, World, settings_of

ANY = (CRASH, PAUSE, LOST, AWAY, POWER)
"""faults that every step may meet"""
MANY = (*ANY, PART)
OF_ALL = (PAUSE, POWER)
WORKERS = ("worker",)
WRITERS = ("application", "table")
"""a crash of theirs is only fewer changes"""
Decide = Callable[[World, list[Process]], Choice | None]


@dataclass(frozen=True)
class Scope:
    """A world of which schedules are tried."""

    index: str
    """`own`; for one apart from the store `model`, or a real one: `lancedb` or `qdrant`"""
    actors: dict[str, tuple[Any, ...]]
    """by name, the function of `explorer.actors` that makes its script, and what it is given"""
    before: tuple[Op, ...] = ()
    """changes that are made and settled first"""
    faults: tuple[str, ...] = ANY
    most_faults: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    """settings of evervec"""
    restarts: bool = False
    """whether an actor begins again after a crash"""
    table: tuple[tuple[str, str], ...] | None = None
    """rows of a table that is attached as the kind `row`"""
    failing: tuple[str, ...] = ()
    """ids of records that cannot be embedded"""
    verifies: bool = True
    """whether `verify` is asked at the end, too"""
    waiting: tuple[Op, ...] = ()
    """changes that are made behind those of `before`, and wait for the workers"""
    built: bool = False
    """a change of model began before, and the new version has all: only the switch is left"""
    damaged: tuple[tuple[str, str], ...] = ()
    """records, by id, to whose points somebody has added those of another text, or the same"""
    store: str = "memory"
    """`memory` for SQLite there, `postgres` or `duckdb`"""

    def allowed(self, p: Process) -> list[str]:
        """The faults that the next step of an actor may meet."""
        assert p.pending is not None
        return self.faults_at(p.name, p.pending)

    def faults_at(self, actor: str, step: Step) -> list[str]:
        return [fault for fault in self.faults if self._may_meet(actor, step, fault)]

    def _may_meet(self, actor: str, step: Step, fault: str) -> bool:
        if fault == CRASH:  # between two writes it makes no difference where
            return step.writes and not actor.startswith(WRITERS)
        if fault == PART:
            return step.resource == INDEX and step.writes
        if fault in OF_ALL or step.resource not in (STORE, INDEX, PROVIDER):
            return False
        if fault == LOST:
            # of a read it is the same as if the store had been away; with a single attempt, a
            # claim that is not heard of is a crash that spends it
            return step.writes and not (step.what == "claim" and "max_attempts" in self.options)
        return True

    @property
    def sort(self) -> str:
        """What it has, in a few words."""
        parts = [f"{self.store}, {self.index} index", "table" if self.table else "records"]
        made = {make for make, *_ in self.actors.values()}
        parts += ["model change"] * bool(made & {"migrator", "changer"})
        parts += ["open transaction"] * ("holder" in made)
        return ", ".join(parts)

    @property
    def is_in_memory(self) -> bool:
        """Whether no real engine has a part in it."""
        return self.store == "memory" and self.index not in REAL

    @property
    def of_all(self) -> list[Choice]:
        """The faults that happen to all processes at once."""
        return [Choice(WORLD, fault) for fault in dict.fromkeys(self.faults) if fault in OF_ALL]


class Stage:
    """A scope with its disk, on which one schedule after the other is run."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.disk = open_disk(scope.store)
        self.disk.may_lose = POWER in scope.faults
        self.real = RealIndex(scope.index) if scope.index in REAL else None
        more = OPTIONS if self.real else {}
        self.settings = settings_of({**more, **self.disk.options, **scope.options})
        self._runs = 0
        self._prepare()

    def _prepare(self) -> None:
        """Make what was there before."""
        scope = self.scope
        world = World(self.disk, scope.index, self.settings, self.real)
        with ruling(world):
            judge = Judge(world)
            p = world.process("before")
            for op in scope.before:
                apply(judge, p, p.ev, op)
            if scope.table is not None:
                Table(judge).attach(p, scope.table)
            _settle(p)
            if scope.built and (scope.before or scope.table):
                actors.begin_migration(p, switch=False)
                p.ev._lifecycle.step()
                _settle(p)
            for id, text in scope.damaged:
                damage(p.ev, id, text)
            for op in scope.waiting:
                apply(judge, p, p.ev, op)
        self._judge = judge
        self._tokens = world.tokens
        self._index = world.index_state
        self._now = world.clock.now
        world.end()
        self.disk.keep()
        if self.real is not None:
            self.real.keep()

    def run(self, decide: Decide, is_known: Callable[[World], bool] | None = None) -> "Result":
        """One schedule, up to the verdict; `is_known`, for a search that compares states: whether
        the verdict of this end is known."""
        self._runs += 1
        self.disk.watch(follows=is_known is not None)
        if not self.disk.reset():
            self._prepare()
        if self.real is not None:
            self.real.reset()
        world = World(self.disk, self.scope.index, self.settings, self.real)
        world.restarts = self.scope.restarts
        world.clock.now = self._now
        world.tokens = self._tokens
        world.index_state = self._index.copy()
        judge = Judge(world, self._judge)
        judge.failing = set(self.scope.failing)
        judge.damaged = {id for id, _ in self.scope.damaged}
        world.told = judge.digest
        if "migrator" in self.scope.actors:
            world.after_step = judge.watch
        with ruling(world):
            try:
                if not world.run(self._scripts(judge), decide) or (
                    is_known is not None and is_known(world)
                ):
                    return Result(world, None)
                return Result(world, self._verdict(world, judge))
            except AROUND as error:  # in a world without faults nothing is away, nor busy
                return Result(world, [*world.wrong, f"the rest cannot be done: {error!r}"])
            finally:
                world.end()

    def _verdict(self, world: World, judge: Judge) -> list[str]:
        """Do all that is left, and say what is wrong then."""
        if self.scope.failing:
            world.drain_by(actors.last_worker(judge))
        ev = drain(world)
        found = judge.problems(ev)
        if self.scope.verifies and (found or self._runs % 8 == 1):
            is_first = self._runs == 1  # a change of the schema costs much
            can_break = self.scope.table is not None and self.scope.store == "memory"
            judge.table = "texts" if can_break and is_first else None
            found += judge.verify(ev, bool(found))
        return found

    def _scripts(self, judge: Judge) -> dict[str, Script]:
        return {
            name: _maker(make)(judge, *given) for name, (make, *given) in self.scope.actors.items()
        }


def _settle(p: Process) -> None:
    """Do all work that there is."""
    while work_once(p.ev, 256) or p.ev._housekeeping.backfill_tables():
        pass


def _maker(name: str) -> Callable[..., Script]:
    """Of the script that an actor has."""
    made: Callable[..., Script] = getattr(
        transactions if hasattr(transactions, name) else actors, name
    )
    return made


@dataclass
class Result:
    """How a run ended; `problems` is None where it was given up."""

    world: World
    problems: list[str] | None

    @property
    def choices(self) -> list[Choice]:
        return [h.choice for h in self.world.happened]


def is_fault(choice: Choice) -> bool:
    return choice.action != GO
