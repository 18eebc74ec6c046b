"""Every schedule of a small scope, each once up to the order of steps that commute.

A depth-first search over the choices, by running each schedule from the beginning. Sleep sets
(Godefroid) leave out a step whose turn was tried before, while nothing has happened since that
does not commute with it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from explorer.scopes import Result, Stage
from explorer.steps import EVERYTHING, GO, NOTHING, POWER, Access, Choice
from explorer.world import Process, World


@dataclass
class _Node:
    """A state on the way, and what was tried from it."""

    enabled: list[Choice]
    sleep: dict[Choice, Access]
    chosen: Choice
    done: dict[Choice, Access] = field(default_factory=dict)
    access: Access = NOTHING
    tables: dict[str, int] = field(default_factory=dict)
    synced: int = 0
    """a hash of what a power cut would leave"""

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
    """The search over one scope; `runs` counts complete schedules, `cut` those left out midway."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.runs = self.cut = 0
        self.is_over = False
        self._path: list[_Node] = []
        self._visited: dict[int, frozenset[Choice]] = {}
        """states, with what was left out from each"""
        self._sleeps: dict[frozenset[Choice], frozenset[Choice]] = {}
        """each once: millions of states have the same few"""
        self._may_cut_power = POWER in stage.scope.faults

    def results(self) -> Iterator[Result]:
        """One schedule after the other, until all were tried; those that were cut have no
        verdict."""
        while not self.is_over:
            result = self._run()
            if result.problems is None:
                self.cut += 1
            else:
                self.runs += 1
            self.is_over = not self._backtrack()
            yield result

    def _run(self) -> Result:
        depth = 0

        def decide(world: World, waiting: list[Process]) -> Choice | None:
            nonlocal depth
            if depth > 0:
                self._path[depth - 1].access = self._access(world)
            if depth < len(self._path):
                choice = self._path[depth].chosen
                depth += 1
                return choice
            sleep = self._path[-1].sleep_after() if self._path else {}
            last = self._path[-1] if self._path else None
            digest, tables = world.digest(
                last.tables if last else {}, world.access.writes if last else 0
            )
            node = _Node(self._enabled(world, waiting), sleep, Choice(""), tables=tables)
            node.synced = self._synced(world, tables)
            # the number of choices tells how many faults are left
            digest = hash((digest, len(node.enabled), node.synced))
            first = node.next()
            if first is None or self._is_known(digest, frozenset(sleep)):
                return None
            node.chosen = first
            self._path.append(node)
            depth += 1
            return first

        def is_known(world: World) -> bool:
            if depth > 0:
                self._path[depth - 1].access = self._access(world)
            last = self._path[-1] if self._path else None
            digest, _ = world.digest(last.tables if last else {}, world.access.writes)
            return self._is_known(hash((digest, "end")), frozenset())

        return self.stage.run(decide, is_known)

    def _access(self, world: World) -> Access:
        """What the last step touched. Before a sync, the writes of others are synced with it, and
        after it they are not: where the power may be cut, a sync reads everything."""
        access = world.access
        if self._may_cut_power and world.disk.has_synced:
            access = access._replace(reads=EVERYTHING)
        return access

    def _synced(self, world: World, tables: dict[str, int]) -> int:
        if not self._may_cut_power:
            return 0
        if world.disk.has_synced or not self._path:
            return hash(tuple(sorted(tables.items())))
        return self._path[-1].synced

    def _is_known(self, digest: int, sleep: frozenset[Choice]) -> bool:
        """Whether all that would be tried from a state was tried from it before."""
        before = self._visited.get(digest)
        if before is not None and before <= sleep:
            return True
        left_out = sleep if before is None else before & sleep
        self._visited[digest] = self._sleeps.setdefault(left_out, left_out)
        return False

    def _enabled(self, world: World, waiting: list[Process]) -> list[Choice]:
        faults = sum(h.choice.action != GO for h in world.happened)
        found = [Choice(p.name) for p in waiting]
        if faults < self.stage.scope.most_faults:
            found += [Choice(p.name, f) for p in waiting for f in self.stage.scope.allowed(p)]
            found += self.stage.scope.of_all
        return found

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
