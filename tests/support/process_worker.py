"""The program of a child process: it opens a store, does as told, and says where it stands.

Each line of its standard output is a named point that it reached, as JSON. At the points that
its orders name under `pause` it stays until its standard input says to go on, so that a test
can kill, stop or signal it at exactly that place. It ends when its input does.
"""

import importlib
import itertools
import json
import os
import re
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import evervec
from evervec.embedders.hashing import HashingEmbedder
from evervec.embedding.provider import Provider
from evervec.model.records import Change
from evervec.stores.sql.schema import Schema
from evervec.stores.values import Apply, Finish
from support.leaps import leaping
from support.next_schema import next_schema

DIMENSIONS = 512


@dataclass
class Orders:
    """What a child is to do. A point under `pause` holds it up if what it is about contains
    one of the given words, parted by `|`, until it hears `go <point> <word>`; the empty text
    stands for always, until `go <point>`."""

    do: str
    store: str
    index: str | None = None
    """URL of an index apart from the store"""
    pause: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    count: int = 1
    """jobs to claim at once"""
    max_batch: int = 256
    burn_seconds: float = 0.0
    """of pure Python in every provider call"""
    clutch_seconds: float = 0.0
    """of one call that keeps the interpreter to itself, in every provider call"""
    deadly: str = ""
    """a text that contains this kills the process"""
    index_apart: bool = False
    """write the index in a transaction of its own, as for one that is not in the store"""
    embedder: str = ""
    """the name of a provider, in place of the embedder that makes trouble by itself"""
    next_schema: bool = False
    """know a schema that is newer by a made-up step"""
    leaps: str = ""
    """the file of a clock that the test moves"""
    given: dict[str, Any] = field(default_factory=dict)
    """what other programs than this one are told"""

    def dump(self) -> str:
        return json.dumps(asdict(self))


class Stage:
    """Where the child stands, told to its parent."""

    def __init__(self, pause: dict[str, str]) -> None:
        self._pause = pause
        self._released: dict[str, threading.Semaphore] = {}
        self._making = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    def pauses_at(self, point: str) -> bool:
        return point in self._pause

    def reach(self, point: str, about: str = "", **facts: Any) -> None:
        """Say it, and wait there if so ordered."""
        line = json.dumps({"at": point, "about": about, **facts}) + "\n"
        os.write(1, line.encode())  # safe inside a signal handler, unlike print
        if point in self._pause:
            for word in self._pause[point].split("|"):
                if word in about:
                    self._gate(f"{point} {word}".strip()).acquire()
                    return

    def _gate(self, name: str) -> threading.Semaphore:
        with self._making:  # who waits and who lets go may both come first
            return self._released.setdefault(name, threading.Semaphore(0))

    def _listen(self) -> None:
        # not sys.stdin, whose lock a thread must not hold while the interpreter ends
        rest = b""
        while received := os.read(0, 4096):
            *lines, rest = (rest + received).split(b"\n")
            for line in lines:
                self._gate(line.decode().removeprefix("go ")).release()
        os._exit(3)


class Scripted(HashingEmbedder):
    """The hashing embedder, with trouble at the places that the orders name."""

    def __init__(self, orders: Orders, stage: Stage) -> None:
        super().__init__(DIMENSIONS)
        self.max_batch = orders.max_batch
        self._orders = orders
        self._stage = stage

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        about = "\n".join(texts)
        self._stage.reach("embedding", about, texts=len(texts))
        if self._orders.deadly and self._orders.deadly in about:
            os.kill(os.getpid(), signal.SIGKILL)
        burn(self._orders.burn_seconds)
        clutch(self._orders.clutch_seconds)
        return super().embed(texts)


def burn(seconds: float) -> None:
    """Keep a processor busy in pure Python."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(100))


def clutch(seconds: float) -> None:
    """Make one call that no other thread can get a word into, and that takes this long."""
    length = 16
    while seconds:
        begin = time.monotonic()
        re.match(r"(a+)+$", "a" * length + "b")  # twice the time for each further letter
        if time.monotonic() - begin >= seconds:
            return
        length += 1


def main(orders: Orders) -> None:
    stage = Stage(orders.pause)
    if orders.do == "open":
        open_when_told(orders, stage)
    elif orders.do == "lock":
        hold_the_lock(orders, stage)
    else:
        with opened(orders, stage) as ev:
            ACTIONS[orders.do](ev, orders, stage)
    stage.reach("end")


@contextmanager
def opened(orders: Orders, stage: Stage) -> Iterator[evervec.Evervec]:
    announce_upgrade(orders, stage)
    embedder = orders.embedder or Scripted(orders, stage)
    settings = dict(orders.settings)
    if orders.leaps:
        settings["clock"] = leaping(orders.leaps)
    with evervec.open(orders.store, index=orders.index, embedder=embedder, **settings) as ev:
        announce_writes(ev, orders, stage)
        yield ev


def announce_upgrade(orders: Orders, stage: Stage) -> None:
    # only the engine in question is imported: a child's start is part of many a race
    engine = {"postgresql": "postgres", "duckdb": "duckdb"}.get(
        orders.store.partition(":")[0], "sqlite"
    )
    module: Any = importlib.import_module(f"evervec.stores.{engine}.schema")
    if orders.next_schema:
        module.SCHEMA = next_schema(engine)
    schema = type(module.SCHEMA)
    statements = schema.statements
    places = itertools.count()

    def announced(self: Schema, number: int) -> Iterator[str]:
        for statement in statements(self, number):
            stage.reach("upgrading", f"statement {next(places)};")
            yield statement

    schema.statements = announced


def announce_writes(ev: evervec.Evervec, orders: Orders, stage: Stage) -> None:
    store: Any = ev.store
    index = ev.index
    apply, finish, load = index.apply, store.leases.finish, store.leases.load

    def announced_apply(changes: Sequence[Change], conn: Any = None) -> None:
        about = " ".join(change.id for change in changes)
        stage.reach("applying", about)
        apply(changes, conn)
        stage.reach("applied", about)

    def announced_load(jobs: Sequence[evervec.Job], budget: int) -> Any:
        stage.reach("loading", " ".join(job.record_id for job in jobs))
        return load(jobs, budget)

    def announced_finish(
        finishes: Sequence[Finish], apply: Apply | None = None, generation: int | None = None
    ) -> list[bool]:
        if stage.pauses_at("finishing"):
            stage.reach("finishing", " ".join(f.job.record_id for f in finishes))
        held: list[bool] = finish(finishes, apply, generation)
        stage.reach("finished", " ".join(f.job.record_id for f in finishes), held=held)
        return held

    def announced(opened: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def announcing(**given: Any) -> Iterator[Any]:
            stage.reach("writing")
            with opened(**given) as db:
                yield db

        return announcing

    renew = ev.queue.renew_many

    def announced_renew(jobs: Sequence[evervec.Job]) -> list[bool]:
        held = renew(jobs)
        stage.reach("renewed", f"in {threading.current_thread().name}", held=held)
        return held

    def announced_embed(self: Provider, texts: Sequence[str], *given: Any) -> Any:
        stage.reach("embedding", "\n".join(texts), texts=len(texts))
        return embed(self, texts, *given)

    if orders.embedder:  # it cannot say so itself
        embed = Provider.embed
        Provider.embed = announced_embed  # type: ignore[method-assign, assignment]
    ev.queue.renew_many = announced_renew  # type: ignore[method-assign]
    index.apply = announced_apply  # type: ignore[method-assign]
    store.leases.finish = announced_finish
    if stage.pauses_at("loading"):
        store.leases.load = announced_load
    if stage.pauses_at("writing"):
        store.db.writing = announced(store.db.writing)
        if hasattr(store.leases, "_claim"):  # PostgreSQL claims in one statement
            claim = store.leases._claim

            def announced_claim(*given: Any) -> Any:
                stage.reach("writing")
                return claim(*given)

            store.leases._claim = announced_claim
    if orders.index_apart:
        index.shares_store = False
    stop = evervec.Worker.stop

    def announced_stop(self: evervec.Worker, drain_seconds: float | None = None) -> None:
        stop(self, drain_seconds)
        stage.reach("stopping")

    evervec.Worker.stop = announced_stop  # type: ignore[method-assign]


def work(ev: evervec.Evervec, orders: Orders, stage: Stage) -> None:
    """Work until SIGTERM."""
    ev.run_worker()


def work_off(ev: evervec.Evervec, orders: Orders, stage: Stage) -> None:
    """Work until there is no job any more, those included that another one died with."""
    left = True
    while left:
        ev.process_all()
        stats = ev.queue.stats()
        left = stats.pending + stats.processing > 0
        threading.Event().wait(0.02)


def claim(ev: evervec.Evervec, orders: Orders, stage: Stage) -> None:
    """Claim each time it is told to, for ever."""
    while True:
        stage.reach("ready")
        jobs = ev.queue.claim(orders.count)
        stage.reach(
            "claimed", jobs=[job.job_id for job in jobs], tokens=[job.token for job in jobs]
        )


def hold(ev: evervec.Evervec, orders: Orders, stage: Stage) -> None:
    """Claim one job, and then try all that a holder may do."""
    job = ev.queue.claim(1)[0]
    stage.reach("holding", token=job.token)
    attempts: dict[str, Callable[[], None]] = {
        "renew": lambda: ev.queue.renew(job),
        "finish": lambda: ev.queue.finish(job),
        "fail": lambda: ev.queue.fail(job, "too late"),
        "release": lambda: ev.queue.release(job),
    }
    outcomes = {}
    for name, attempt in attempts.items():
        try:
            attempt()
        except evervec.EvervecError as error:
            outcomes[name] = type(error).__name__
        else:
            outcomes[name] = "done"
    stage.reach("tried", outcomes=outcomes)


def recover(ev: evervec.Evervec, orders: Orders, stage: Stage) -> None:
    """Take back what has run out, each time it is told to, for ever."""
    while True:
        stage.reach("ready")
        stage.reach("recovered", count=ev.queue.recover_stuck())


def open_when_told(orders: Orders, stage: Stage) -> None:
    """Open each of the files named in `store`, one a line, when told to."""
    announce_upgrade(orders, stage)
    for path in orders.store.splitlines():
        stage.reach("ready")
        try:
            with evervec.open(path, embedder=Scripted(orders, stage), **orders.settings) as ev:
                ev.add("note", f"written by {os.getpid()}", id=os.getpid())
        except evervec.EvervecError as error:
            stage.reach("opened", error=str(error))
        else:
            stage.reach("opened", error=None)


def add(ev: evervec.Evervec, orders: Orders, stage: Stage) -> None:
    """Add records for ever, and say so once each is acknowledged."""
    records = ({"id": n, "text": f"record {n} of the stream"} for n in itertools.count())
    for ticket in ev.add_many("note", records):
        stage.reach("added", ticket.id)


def traffic(ev: evervec.Evervec, orders: Orders, stage: Stage) -> None:
    """Write, search and work for ever, and say what was acknowledged."""
    from support.traffic import Traffic

    def say(id: str, text: str | None) -> None:
        stage.reach("wrote", json.dumps([id, text]))

    with Traffic(ev, orders.count, say), ev.worker():
        threading.Event().wait()


def hold_the_lock(orders: Orders, stage: Stage) -> None:
    """Hold the write lock of the file, as a program that knows nothing of evervec might."""
    conn = sqlite3.connect(orders.store, isolation_level=None)
    conn.execute("begin immediate")
    stage.reach("locked")
    conn.execute("commit")
    conn.close()


ACTIONS = {
    "add": add,
    "traffic": traffic,
    "work": work,
    "work off": work_off,
    "claim": claim,
    "hold": hold,
    "recover": recover,
}

if __name__ == "__main__":
    main(Orders(**json.loads(sys.argv[1])))
