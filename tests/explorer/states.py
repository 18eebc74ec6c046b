"""States of a world as hashes, and what is known of the steps between them.

What a step does depends on what its actor was told so far, on the clock, and on what the step
reads. So a step that was run once need not be run again where all of that is the same: the state
that it leads to is known.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

from explorer.disk import INDEX_BIT
from explorer.steps import EVERYTHING, GO, LEASE, POWER, WORLD, Access, Choice, Step


class State(NamedTuple):
    """All that decides what can happen from here."""

    now: float
    held: int
    """a hash of what an index apart from the store holds"""
    told: int
    """a hash of what the judge knows"""
    wrong: int
    """how many promises were broken on the way"""
    actors: dict[str, tuple[Step, int]]
    """who has not ended: the step before it, and a hash of all that it was told"""
    tables: dict[str, int]
    """hashes of what they hold"""
    faults: int = 0
    """how many there were"""
    synced: int = 0
    """a hash of what a power cut would leave"""

    def digest(self) -> int:
        return hash((*self[:4], tuple(self.actors.items()), hash_of(self.tables), *self[6:]))

    def is_like(self, other: "State") -> bool:
        """Whether they are the same, as far as both know the tables."""
        both = self.tables.keys() & other.tables.keys()
        return self[:5] == other[:5] and all(self.tables[t] == other.tables[t] for t in both)


def hash_of(tables: dict[str, int]) -> int:
    return hash(tuple(sorted(tables.items())))


class Done(NamedTuple):
    """A step that was run."""

    choice: Choice
    touched: Access
    tables: list[str]
    """those that it touched"""
    access: Access
    """what the search is to take it for, which may be more"""
    syncs: bool


@dataclass(frozen=True, slots=True)
class _Effect:
    """What a step did to what it touched."""

    found: dict[str, int | None]
    """the tables, before it"""
    held: int | None
    """by the index before it; None where it was not touched"""
    left: State
    """the state after it, of which `tables` has those that it wrote"""
    syncs: bool
    access: Access
    """what the search is to take it for"""


class Effects:
    """The effects of all steps that were run."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], list[_Effect]] = defaultdict(list)

    def note(self, before: State, done: Done, after: State) -> None:
        """A step that was run; not where it touched who knows what, or broke a promise, which is
        to be seen each time."""
        choice, touched = done.choice, done.touched.reads | done.touched.writes
        others = [
            {name: at for name, at in state.actors.items() if name != choice.actor}
            for state in (before, after)
        ]
        if choice.actor == WORLD or touched == EVERYTHING or others[0] != others[1]:
            return
        if before.wrong != after.wrong:
            return
        found = {t: before.tables.get(t) for t in done.tables}
        held = before.held if touched & INDEX_BIT else None
        wrote = {t: after.tables[t] for t in found if t in after.tables}
        left = after._replace(tables=wrote)
        effect = _Effect(found, held, left, done.syncs, done.access)
        self._known[_place(before, choice)].append(effect)

    def of(self, before: State, choice: Choice) -> tuple[State, Access] | None:
        """Where a step leads to, and what it touches; None where that is not known."""
        if choice.actor == WORLD:
            if choice.action == POWER:
                return None
            after = before._replace(now=before.now + LEASE + 1, faults=before.faults + 1)
            return after, Access(EVERYTHING, EVERYTHING, True)
        tables = before.tables
        for effect in self._known.get(_place(before, choice), ()):
            if effect.held in (None, before.held) and all(
                tables.get(t) == digest for t, digest in effect.found.items()
            ):
                return self._after(before, choice, effect), effect.access
        return None

    def _after(self, before: State, choice: Choice, effect: _Effect) -> State:
        left = effect.left
        actors = {
            name: left.actors[name] if name == choice.actor else at
            for name, at in before.actors.items()
            if name != choice.actor or name in left.actors
        }
        tables = before.tables | left.tables
        return State(
            left.now, before.held if effect.held is None else left.held, left.told, before.wrong,
            actors, tables, before.faults + (choice.action != GO),
            hash_of(tables) if effect.syncs else before.synced,
        )  # fmt: skip


def _place(state: State, choice: Choice) -> tuple[object, ...]:
    return choice, state.actors[choice.actor], state.now, state.told
