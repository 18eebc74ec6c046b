"""Every schedule of a small scope, each once up to the order of steps that commute.

A depth-first search over the choices, by running each schedule from the beginning. Sleep sets
(Godefroid) leave out a step whose turn was tried before, while nothing has happened since that
does not commute with it. A state that was reached before is not explored again; where all steps of
a schedule were run before from the same states as far as they can tell, the state is known without
running it (`states`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from explorer.scopes import WORKERS, WRITERS, Result, Stage
from explorer.states import Done, Effects, State, hash_of
from explorer.steps import EVERYTHING, NOTHING, POWER, Access, Choice, Step
from explorer.world import Process, World

NOBODY = Choice("")
_LOOKS = 16
"""of so many runs one is compared with what was foreseen in all parts of each state"""


@dataclass
class _Node:
    """A state on the way, and what was tried from it."""

    state: State
    enabled: list[Choice]
    sleep: dict[Choice, Access]
    chosen: Choice = NOBODY
    done: dict[Choice, Access] = field(default_factory=dict)
    access: Access = NOTHING

    def next(self) -> Choice | None:
        return next((c for c in self.enabled if c not in self.sleep and c not in self.done), None)

    def sleep_after(self) -> dict[Choice, Access]:
        """What need not be tried after the chosen step."""
        return {
            choice: access
            for known in (self.sleep, self.done)
            for choice, access in known.items()
            if choice.actor != self.chosen.actor and access.commutes_with(self.access)
        }


class Exhaustive:
    """The search over one scope; `runs` counts complete schedules, `cut` those left out midway,
    and `foreseen` those of which that was known without running them."""

    def __init__(self, stage: Stage, *, foresees: bool = True) -> None:
        self.stage = stage
        self.runs = self.cut = self.foreseen = self._taken = 0
        self.is_over = False
        self._path: list[_Node] = []
        self._visited: dict[int, frozenset[Choice]] = {}
        """states, with what was left out from each"""
        self._sleeps: dict[frozenset[Choice], frozenset[Choice]] = {}
        """each once: millions of states have the same few"""
        self._may_cut_power = POWER in stage.scope.faults
        # others look at more than what the judge and they themselves were told
        self._foresees = foresees and all(
            name.startswith((*WORKERS, *WRITERS)) for name in stage.scope.actors
        )
        self._effects = Effects()

    def results(self) -> Iterator[Result]:
        """One schedule after the other, until all were tried; those that were cut have no
        verdict."""
        while not self.is_over:
            result = self._run()
            if result.problems is None:
                self.cut += 1
            else:
                self.runs += 1
            self.is_over = not self._next()
            yield result

    def take_foreseen(self) -> int:
        """How many schedules were foreseen since this was asked."""
        count, self._taken = self.foreseen - self._taken, self.foreseen
        return count

    def _run(self) -> Result:
        depth = 0
        looks = (self.runs + self.cut) % _LOOKS == 0

        def decide(world: World, waiting: list[Process]) -> Choice | None:
            nonlocal depth
            if depth > 0:
                self._path[depth - 1].access = self._access(world)
            if depth < len(self._path):
                node = self._path[depth]
                self._compare(world, node.state, wholly=looks)
                depth += 1
                return node.chosen
            names = {p.name for p in waiting}
            state = self._arrive(world)
            actors = {name: at for name, at in state.actors.items() if name in names}
            made = self._node(state, actors)
            if made is None:
                return None
            self._path.append(made)
            depth += 1
            return made.chosen

        def is_known(world: World) -> bool:
            if depth > 0:
                self._path[depth - 1].access = self._access(world)
            return self._is_known(hash((self._arrive(world).digest(), "end")), frozenset())

        return self.stage.run(decide, is_known)

    def _arrive(self, world: World) -> State:
        """The state after a step that was not run before."""
        if not self._path:
            state = world.state({}, 0)
            return state._replace(synced=hash_of(state.tables) if self._may_cut_power else 0)
        last, disk = self._path[-1], world.disk
        state = world.state(last.state.tables, world.access.writes)
        syncs = self._may_cut_power and disk.has_synced
        state = state._replace(synced=hash_of(state.tables) if syncs else last.state.synced)
        if self._foresees:
            tables = disk.conn.tables_in(world.access)
            done = Done(last.chosen, world.access, tables, last.access, syncs)
            self._effects.note(last.state, done, state)
        return state

    def _compare(self, world: World, foreseen: State, *, wholly: bool) -> None:
        """See that a schedule comes by the same states again, or by those that were foreseen."""
        if wholly:
            is_same = world.state({}, 0).is_like(foreseen)
        else:
            is_same = world.positions() == foreseen.actors
        assert is_same, f"{self.stage.scope} is in another state than was foreseen"

    def _node(self, state: State, actors: dict[str, tuple[Step, int]]) -> _Node | None:
        """A state from which something is left to try; `actors`: those who can go on."""
        sleep = self._path[-1].sleep_after() if self._path else {}
        node = _Node(state, self._enabled(state, actors), sleep)
        first = node.next()
        if first is None or self._is_known(state.digest(), frozenset(sleep)):
            return None
        node.chosen = first
        return node

    def _access(self, world: World) -> Access:
        """What the last step touched. Before a sync, the writes of others are synced with it, and
        after it they are not: where the power may be cut, a sync reads everything."""
        access = world.access
        if self._may_cut_power and world.disk.has_synced:
            access = access._replace(reads=EVERYTHING)
        return access

    def _is_known(self, digest: int, sleep: frozenset[Choice]) -> bool:
        """Whether all that would be tried from a state was tried from it before."""
        before = self._visited.get(digest)
        if before is not None and before <= sleep:
            return True
        left_out = sleep if before is None else before & sleep
        self._visited[digest] = self._sleeps.setdefault(left_out, left_out)
        return False

    def _enabled(self, state: State, actors: dict[str, tuple[Step, int]]) -> list[Choice]:
        scope = self.stage.scope
        found = [Choice(name) for name in actors]
        if state.faults < scope.most_faults:
            found += [
                Choice(name, fault)
                for name, (step, _) in actors.items()
                for fault in scope.faults_at(name, step)
            ]
            found += scope.of_all
        return found

    def _next(self) -> bool:
        """To the next schedule that must be run; False when there is none."""
        while self._backtrack():
            if not self._foresees or not self._foresee():
                return True
            self.foreseen += 1
        return False

    def _backtrack(self) -> bool:
        """To the last state from which something is left to try; False when there is none."""
        while self._path:
            node = self._path[-1]
            node.done[node.chosen] = node.access
            choice = node.next()
            if choice is not None:
                node.chosen = choice
                return True
            self._path.pop()
        return False

    def _foresee(self) -> bool:
        """Go on for as long as it is known where the steps lead to; whether that is a state from
        which all was tried before."""
        while True:
            last = self._path[-1]
            known = self._effects.of(last.state, last.chosen)
            if known is None:
                return False
            state, last.access = known
            if not state.actors:  # all have ended
                return hash((state.digest(), "end")) in self._visited
            made = self._node(state, state.actors)
            if made is None:
                return True
            self._path.append(made)
