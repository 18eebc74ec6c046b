"""Transactions of an application that are left open while others go on, then ended."""

from collections.abc import Sequence

from explorer.actors import KIND, TEXTS, Op
from explorer.disk import CallersTransaction
from explorer.judge import Judge
from explorer.steps import CLOCK, STORE, Step
from explorer.world import Process, Script
from support.oracle import Key, Wanted

COMMIT, ROLL_BACK, PREPARE, PREPARE_BACK = "commit", "roll back", "prepare", "prepare, roll back"
ENDS = (COMMIT, ROLL_BACK, PREPARE, PREPARE_BACK)


def holder(judge: Judge, ops: Sequence[Op], end: str, rests: int = 2) -> Script:
    """An application that adds and deletes in one transaction of its own, leaves it open for a
    while, and ends it; prepared, it outlives its connection."""

    def run(p: Process) -> None:
        if p.state.setdefault("begun", False):
            return  # it died with its transaction
        p.state["begun"] = True
        p.ask(Step(STORE, "an application begins a transaction", True))
        disk = p.ev.store.db.disk  # type: ignore[attr-defined]
        caller: CallersTransaction = disk.caller(p)
        made = _Made(judge, p, caller)
        for op in ops:
            made.add(op)
            _rest(p, rests)
        if end.startswith(PREPARE):
            p.ask(Step(CLOCK, "the transaction is prepared", True))
            caller.prepare()
            _rest(p, rests)
        p.ask(Step(CLOCK, f"the transaction ends: {end}", True))
        if end in (COMMIT, PREPARE):
            caller.commit(made.committed)
            made.acknowledge()
        else:
            caller.roll_back()
            made.undo()

    return run


def _rest(p: Process, times: int) -> None:
    for _ in range(times):
        p.ask(Step(CLOCK, "a transaction is left open", False))


class _Made:
    """What one transaction is to change."""

    def __init__(self, judge: Judge, p: Process, caller: CallersTransaction) -> None:
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
