"""Transactions of an application that are left open while others go on, then ended."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from evervec.errors import InvalidArgument, InvalidTransition
from explorer.actors import AROUND, KIND, TEXTS, Op, _turns, work_once
from explorer.judge import Judge
from explorer.steps import CLOCK, STORE, Step
from explorer.world import DIMENSIONS_2, Embedder, Process, Script
from support.oracle import Key, Wanted

COMMIT, ROLL_BACK, PREPARE, PREPARE_BACK = "commit", "roll back", "prepare", "prepare, roll back"
ENDS = (COMMIT, ROLL_BACK, PREPARE, PREPARE_BACK)


class OpenTransaction(Protocol):
    """A transaction of the application's own, as each store has it."""

    def joined(self) -> AbstractContextManager[Any]:
        """Inside, the connection that it gives may be given to evervec."""
        ...

    def prepare(self) -> None: ...

    def commit(self, then: Callable[[], None]) -> None:
        """`then`: what is so as soon as it is committed."""
        ...

    def roll_back(self) -> None: ...


def holder(judge: Judge, ops: Sequence[Op], end: str, first: int, then: int) -> Script:
    """An application that adds and deletes in one transaction of its own, leaves it open while
    the others take so many steps, and ends it. Prepared, it outlives its connection. `first` and
    `then`: how many steps of the others come before it, and between its changes and its end."""

    def run(p: Process) -> None:
        if p.state.setdefault("begun", False):
            return  # it died with its transaction
        p.state["begun"] = True
        p.rests_until = first
        p.ask(Step(STORE, "an application begins a transaction", True))
        disk = p.ev.store.db.disk  # type: ignore[attr-defined]
        caller: OpenTransaction = disk.caller(p)
        made = _Made(judge, p, caller)
        try:
            for op in ops:
                made.add(op)
        except AROUND:  # such as a circle of waiting, which the server breaks
            caller.roll_back()
            made.undo()
            return
        if end.startswith(PREPARE):
            p.ask(Step(CLOCK, "the transaction is prepared", True))
            caller.prepare()
        p.rests_until = len(p.world.happened) + then
        p.ask(Step(CLOCK, f"the transaction ends: {end}", True))
        if end in (COMMIT, PREPARE):
            caller.commit(made.committed)
            made.acknowledge()
        else:
            caller.roll_back()
            made.undo()

    return run


def changer(judge: Judge, turns: Sequence[str]) -> Script:
    """Changes to another model, gives up, begins again, retires: one thing after the other."""

    def turn(p: Process) -> None:
        what = turns[p.state["turns"] - 1]
        under_way = p.ev.migration()
        try:
            if what == "migrate":
                p.ev.migrate(Embedder(p, DIMENSIONS_2), version="second", switch=True)
            elif what == "wait":
                p.sleep(_GRACE)
            elif what == "step":
                p.ev._lifecycle.step()
            elif what == "work":
                work_once(p.ev)
            elif under_way is not None:
                under_way.cancel() if what == "cancel" else under_way.retire()
        except (InvalidArgument, InvalidTransition):
            return  # there is nothing to change, or not yet

    return _turns(turn, len(turns))


_GRACE = 6.0
"""seconds after which what is retired goes away"""


class _Made:
    """What one transaction is to change."""

    def __init__(self, judge: Judge, p: Process, caller: OpenTransaction) -> None:
        self._judge, self._p, self._caller = judge, p, caller
        self._changes: list[tuple[Key, Wanted | None, object]] = []
        self._places: list[int] = []

    def add(self, op: Op) -> None:
        what, id, *more = op
        key = Key("default", KIND, id)
        wanted = Wanted(TEXTS[more[0]], {}) if what == "add" else None
        ev = self._p.ev
        with self._caller.joined() as conn:
            ticket = (
                ev.delete(KIND, id, conn=conn)
                if wanted is None
                else ev.add(KIND, wanted.text, id=id, conn=conn)
            )
        self._judge.touched[key] += 1
        if not ticket.accepted:
            return  # there was nothing to delete that this transaction could see
        self._changes.append((key, wanted, ticket))

    def committed(self) -> None:
        for key, wanted, _ in self._changes:
            self._places.append(len(self._judge.history[key]))
            self._judge.set(key, wanted)

    def acknowledge(self) -> None:
        for (key, wanted, ticket), place in zip(self._changes, self._places, strict=True):
            self._judge.acknowledged(key, ticket, wanted, place)

    def undo(self) -> None:
        """Such a ticket must never settle; where a later change counts for it, that is no matter."""
        for key, _, ticket in self._changes:
            if getattr(ticket, "enqueued", False) and not any(
                k == key for k, _ in self._judge.boxed
            ):
                self._judge.undone.append((key, ticket, self._judge.touched[key]))  # type: ignore[arg-type]
