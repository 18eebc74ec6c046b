"""Steps, faults and what a step touches: the words that all parts of the explorer share."""

from typing import NamedTuple

GO = "go"
CRASH = "crash"
PAUSE = "pause"
LOST = "lost"
AWAY = "away"
PART = "part"
POWER = "power"
FAULTS = {
    CRASH: "its process is killed here, before this step",
    PAUSE: "time goes on for longer than a lease lasts, while all stand where they are",
    LOST: "the step is carried out, but its answer is lost",
    AWAY: "cannot be reached: the step is not carried out",
    PART: "the index takes a part of the batch, then fails",
    POWER: "power cut: all processes are gone, and unsynced commits with them",
}

STORE, INDEX, PROVIDER, CLOCK = "store", "index", "provider", "clock"
SQL = "sql"
"""a statement inside a transaction that has begun"""
ENGINE = "engine"
"""a call that an index makes to its engine"""
STARTS = "starts"
"""the first step of a process that takes the place of one that died"""
EVERYTHING = -1
"""an access to all resources"""
LEASE = 60.0
"""seconds"""


class InTheWay(Exception):
    """A process that starts, which takes no turns, needs what another one has locked that waits for
    its turn."""


WORLD = "world"
"""the actor of what happens to all processes at once"""


class Choice(NamedTuple):
    """Who goes on, and what happens to the step that it is about to take."""

    actor: str
    action: str = GO


class Step(NamedTuple):
    """What an actor is about to do."""

    resource: str
    what: str
    writes: bool


class Access(NamedTuple):
    """What a step touched, as bits: tables of the store, and the index."""

    reads: int = 0
    writes: int = 0
    is_fault: bool = False

    def commutes_with(self, other: "Access") -> bool:
        """Whether two steps of different actors can be exchanged. Two faults cannot: there may be
        too few of them left for both."""
        if self.is_fault and other.is_fault:
            return False
        return not (
            self.writes & (other.reads | other.writes) or other.writes & (self.reads | self.writes)
        )


NOTHING = Access()


class Happened(NamedTuple):
    """One line of a schedule that was run."""

    choice: Choice
    step: Step
