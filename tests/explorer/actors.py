"""What the actors do: each is a script over evervec's own interface."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from evervec import Evervec
from evervec.errors import (
    EmbedderError,
    IndexUnavailable,
    InvalidArgument,
    InvalidTransition,
    StoreError,
)
from evervec.model.jobs import Job
from evervec.worker.batch import Batch
from explorer.disk import DiskConnections
from explorer.judge import Judge
from explorer.steps import AWAY, LEASE, STORE, Step
from explorer.world import DIMENSIONS_2, POISON, Embedder, Process, Script, World
from support.oracle import Key, Wanted
from support.world import paragraph

T = TypeVar("T")
_ONE, _TWO, _THREE = paragraph("alpha"), paragraph("beta"), paragraph("gamma")
TEXTS = {
    "A": f"{_ONE}\n\n{_TWO}",
    "B": f"{_ONE}\n\n{_THREE}",
    "C": _THREE,
    "D": f"{_TWO}\n\n{_THREE}\n\n{_ONE}",
    POISON: POISON,
}
"""texts by the names that scopes have for them; some share a chunk"""
KIND, ROW = "note", "row"
AROUND = (StoreError, IndexUnavailable)
"""what a worker waits out"""
_ENOUGH = 30
"""turns, after which a job that still kills its worker would do so for ever"""
_PATIENCE = 6
"""times that a worker tries the same again"""


def endure(do: Callable[[], T]) -> T:
    """Do something, as a worker does it: what is away is tried again."""
    for _ in range(_PATIENCE):
        try:
            return do()
        except AROUND:
            pass
    return do()


def work_once(ev: Evervec, limit: int = 8, *, suspects: bool = True) -> int:
    """One pass of a worker: take back, claim, read, embed, write; how many jobs it claimed."""
    pipeline = ev.pipeline
    if ev._housekeeping.look_for_lost():
        ev._housekeeping.recover()
    if not pipeline.probe_providers():
        return 0
    jobs = pipeline.claim(limit, suspects=suspects)
    rest: Sequence[Job] = jobs
    while rest:
        batch, rest = _prepared(ev, rest)
        for rows in pipeline.calls(batch):
            if batch.outage is None:
                batch.take(pipeline.call(batch, rows))
        _write(ev, batch)
    return len(jobs)


def _prepared(ev: Evervec, jobs: Sequence[Job]) -> tuple[Batch, Sequence[Job]]:
    return endure(lambda: ev.pipeline.prepare(jobs))


def _write(ev: Evervec, batch: Batch) -> None:
    endure(lambda: ev.pipeline.write(batch))


def worker(judge: Judge, passes: int = 1, limit: int = 8) -> Script:
    """A worker that goes through its stages so many times."""

    def turn(p: Process) -> None:
        work_once(p.ev, limit)

    return _turns(turn, passes)


def _turns(turn: Callable[[Process], None], count: int) -> Script:
    """Do something so many times, whatever is away; a crash costs the turn it comes in."""

    def run(p: Process) -> None:
        while p.state.setdefault("turns", 0) < count:
            p.state["turns"] += 1
            try:
                turn(p)
            except AROUND:
                continue

    return run


Op = tuple[Any, ...]
"""a change: ("add", id, text), ("boxed", id, text), ("delete", id), ("enqueue", id),
("undone", id, text) for an add in a transaction that is rolled back, or ("row", id, text) for a
row of the attached table, where None stands for its end; with a tenant as the last part where it
is not the default one"""
_WITH_TEXT = ("add", "boxed", "undone", "row")


def application(judge: Judge, ops: Sequence[Op]) -> Script:
    """An application that makes changes, one after the other."""

    def turn(p: Process) -> None:
        apply(judge, p, p.ev, ops[p.state["turns"] - 1])

    return _turns(turn, len(ops))


table = application
"""The same of an attached table."""


def apply(judge: Judge, p: Process, ev: Evervec, op: Op) -> None:
    """Make one change."""
    what, id, *more = op
    tenant = more[-1] if len(more) > (what in _WITH_TEXT) else ev.tenant
    mine = ev if tenant == ev.tenant else ev.of(tenant)
    key = Key(tenant, KIND, id)
    if what in ("add", "boxed"):
        text = TEXTS[more[0]]
        if what == "boxed":
            judge.boxed[key, text] = len(judge.history[key])
        else:  # the same text by a plain add may be seen at once
            judge.boxed.pop((key, text), None)
        judge.change(
            p, key, Wanted(text, {}), "save",
            lambda: mine.add(KIND, text, id=id, boxed=what == "boxed"),
        )  # fmt: skip
    elif what == "undone":
        _add_undone(judge, p, mine, key, TEXTS[more[0]])
    elif what == "delete":
        judge.change(p, key, None, "delete", lambda: mine.delete(KIND, id))
    elif what == "row":
        Table(judge).write(p, id, more[0])
    elif key in judge.oracle.wanted:  # else it would be for a loader that nobody has
        mine.queue.enqueue(KIND, id)


def _add_undone(judge: Judge, p: Process, ev: Evervec, key: Key, text: str) -> None:
    """Add in the caller's own transaction, and roll it back: the ticket must never settle."""
    db: DiskConnections = ev.store.db  # type: ignore[attr-defined]
    p.ask(Step(STORE, "add, rolled back", True))
    caller = db.disk.caller(p)
    try:
        with caller.joined() as conn:
            ticket = ev.add(KIND, text, id=key.id, conn=conn)
    finally:
        caller.roll_back()
    if ticket.enqueued:
        judge.undone.append((key, ticket, judge.touched[key]))


WRITE_ROW = """insert into texts values (?, ?)
on conflict (id) do update set body = excluded.body"""


class Table:
    """A table of the application, attached as the kind `row`."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def attach(self, p: Process, rows: Sequence[tuple[str, str]]) -> None:
        db: DiskConnections = p.ev.store.db  # type: ignore[attr-defined]
        db.disk.conn.execute("create table texts (id text primary key, body text not null)")
        for id, text in rows:
            self.write(p, id, text)
        p.ev.attach("texts", kind=ROW, text="body")

    def write(self, p: Process, id: str, name: str | None) -> None:
        """One row, in a transaction of the application's own."""
        text = None if name is None else TEXTS[name]
        db: DiskConnections = p.ev.store.db  # type: ignore[attr-defined]
        action = p.ask(Step(STORE, f"table: {'delete' if text is None else 'write'}", True))
        if action == AWAY:
            return
        with db.transaction(durable=True, what="table") as conn:
            if text is None:
                conn.execute("delete from texts where id = ?", (id,))
            else:
                conn.execute(WRITE_ROW, (id, text))
            self._judge.set(Key("default", ROW, id), None if text is None else Wanted(text, {}))


def searcher(judge: Judge, keys: Sequence[tuple[str, str, str]], rounds: int) -> Script:
    """Searches for each record again and again, and checks what it finds."""

    def turn(p: Process) -> None:
        for key in (Key(*parts) for parts in keys):
            mine = [(t, place) for k, t, place in judge.tickets if k == key]
            judge.search(p, p.ev, key, mine[-1] if mine else None)
            if key.kind == KIND:
                judge.check_box(p.ev, key)
        judge.check_undone(p.ev)

    return _turns(turn, rounds)


def repairer(judge: Judge, rounds: int) -> Script:
    """An operator who repairs what looks wrong, while others work."""

    def turn(p: Process) -> None:
        p.ev.verify(repair=True, all_tenants=True)

    return _turns(turn, rounds)


def sweeper(judge: Judge, rounds: int) -> Script:
    """Housekeeping, and the slices that workers do between two claims."""

    def turn(p: Process) -> None:
        p.ev._housekeeping.sweep()
        p.ev._housekeeping.backfill_tables()
        p.ev._lifecycle.step()

    return _turns(turn, rounds)


def pusher(judge: Judge, rounds: int, limit: int = 4) -> Script:
    """Push mode: jobs are claimed one by one, and delivered once or twice."""

    def turn(p: Process) -> None:
        dispatcher = p.ev.dispatcher
        if p.ev._housekeeping.look_for_lost():
            p.ev._housekeeping.recover()
        if not p.ev.pipeline.probe_providers():
            return
        for job in dispatcher._claim(limit):
            assert job.token is not None
            for _ in range(1 + (job.job_id + p.state["turns"]) % 2):
                try:
                    dispatcher.deliver(job.job_id, job.token)
                except EmbedderError:
                    continue

    return _turns(turn, rounds)


def migrator(judge: Judge, steps: int, retires: bool) -> Script:
    """Changes to another model while the others work."""

    def turn(p: Process) -> None:
        ev, number = p.ev, p.state["turns"]
        try:
            if number == 1 or ev._lifecycle.current() is None:
                begin_migration(p, switch=True)
            elif number == steps and retires:
                if (under_way := ev.migration()) and under_way.status().state == "switched":
                    under_way.retire()
            else:
                ev._lifecycle.step()
        except (InvalidArgument, InvalidTransition):
            return  # there is nothing to change, or not yet

    return _turns(turn, steps)


def begin_migration(p: Process, *, switch: bool) -> None:
    """To the other model; `switch`: it serves as soon as it has all."""
    p.ev.migrate(Embedder(p, DIMENSIONS_2), version="second", switch=switch)


def last_worker(judge: Judge) -> Script:
    """Works until nothing is left, for records that kill their workers."""

    def turn(p: Process) -> None:
        judge.world.clock.move(LEASE + 1)
        while work_once(p.ev, 256):
            pass
        stats = p.ev.store.jobs.stats(None)
        if not stats.pending + stats.processing:
            p.state["turns"] = _ENOUGH

    return _turns(turn, _ENOUGH)


def _work_off(world: World, ev: Evervec) -> None:
    """Do what is due."""
    for _ in range(_ENOUGH):
        if not work_once(ev, 256):
            return
    world.blame("work never ends: the same jobs come again and again")


def drain(world: World) -> Evervec:
    """Faults have stopped: a new process does all that is left."""
    p = world.process("drain")
    ev = p.ev
    if len(world.happened) >= world.most_steps:
        world.blame("the actors never end")
    for wait in (0.0, LEASE + 1, LEASE + 1, 400.0, 400.0, 400.0):
        world.clock.move(wait)
        _work_off(world, ev)
        for _ in range(_ENOUGH):
            if not (ev._housekeeping.backfill_tables() or ev._lifecycle.step()):
                break
            _work_off(world, ev)
        stats, versions = ev.store.jobs.stats(None), ev.store.versions.collections()
        if not stats.pending + stats.processing and not any(
            c.state in ("building", "retired") for c in versions
        ):
            break
    world.clock.move(400.0)  # whatever pauses because something was away goes on
    return ev


def enqueuer(judge: Judge, rounds: int, ids: Sequence[str]) -> Script:
    """Asks for rows of the table to be read again."""

    def turn(p: Process) -> None:
        p.ev.queue.enqueue(ROW, ids[p.state["turns"] % len(ids)])

    return _turns(turn, rounds)
