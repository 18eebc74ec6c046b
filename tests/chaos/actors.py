"""The programs that use a store while it is under fault. Each may be killed at any time.

An application writes notes and keeps a journal. A table writer changes an attached table by its
own driver. A migrator changes the model, and an operator repairs, backfills and retries. They go
on after every error, as a service would, and end at SIGTERM.
"""

import random
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg

import evervec
from chaos.journal import Journal
from evervec import Evervec, EvervecError, Ticket
from evervec.embedders.openai import OpenAIEmbedder
from support.migrating import Migrating
from support.oracle import Key, shortened
from support.process_worker import Orders, Stage
from support.table_writer import Table
from support.texts import by_turns

TENANTS = ("default", "other")
KIND = "note"
_AT_ONCE = 8
MODELS = (("text-embedding-3-small", 64), ("text-embedding-3-large", 48))
ERRORS = (EvervecError, psycopg.Error, sqlite3.Error, OSError)
"""what a program meets while the engines are under fault"""


def open_store(orders: Orders) -> Evervec:
    return evervec.open(orders.store, index=orders.index, embedder="auto", **orders.settings)


def models(orders: Orders) -> list[OpenAIEmbedder]:
    """What a store changes between; a provider with `words` makes the vectors of both."""
    url = orders.settings["openai_url"]
    return [OpenAIEmbedder(name, url=url, key="sk-any", dimensions=n) for name, n in MODELS]


class Author:
    """An application: some records are its own, and others are everybody's. It is at a few of its
    own at a time, and moves on: what was damaged is not made good by the next change."""

    def __init__(self, ev: Evervec, orders: Orders, chance: random.Random) -> None:
        self._chance = chance
        self._store = orders.store
        self._views = {tenant: ev.of(tenant) for tenant in TENANTS}
        self._journal = Journal(Path(orders.given["journal"]))
        self._own = [f"{orders.given['name']}-{n}" for n in range(orders.given["records"])]
        self._shared = [f"shared-{n}" for n in range(4)]
        self._edition = chance.randrange(10**6)
        self._begin = chance.randrange(len(self._own))

    @property
    def _recent(self) -> list[str]:
        """Those that it is at."""
        count = len(self._own)
        return [self._own[(self._begin + n) % count] for n in range(min(_AT_ONCE, count))]

    def step(self) -> None:
        dice = self._chance.random()
        self._begin += self._chance.random() < 0.15
        if dice < 0.1:
            self._bulk()
        elif dice < 0.2:
            self._in_a_transaction()
        else:
            for _ in range(self._chance.choice((1, 1, 1, 3))):
                self._one()

    def _key(self) -> Key:
        ids = self._shared if self._chance.random() < 0.1 else self._recent
        return Key(self._chance.choice(TENANTS), KIND, self._chance.choice(ids))

    def _draft(self, id: str) -> tuple[str, dict[str, Any]]:
        self._edition += 1
        text = self._chance.choice(by_turns(id, self._edition))
        return text, {"shelf": self._chance.randrange(2)}

    def _one(self) -> None:
        key = self._key()
        ev, dice = self._views[key.tenant], self._chance.random()
        if dice < 0.2:
            name = self._journal.intend(key, None)
            if self._answered([name], lambda: [ev.delete(KIND, key.id)]):
                self._read(key, None)
            return
        text, metadata = self._draft(key.id)
        boxed = dice > 0.9
        name = self._journal.intend(key, text, metadata=metadata, boxed=boxed)

        def add() -> list[Ticket]:
            return [ev.add(KIND, text, id=key.id, metadata=metadata, boxed=boxed)]

        if self._answered([name], add) and not boxed:
            self._read(key, text)

    def _answered(self, names: Sequence[str], write: Callable[[], Sequence[Ticket]]) -> bool:
        try:
            tickets = write()
        except ERRORS as error:
            self._journal.unknown(names, error)
            return False
        for name, ticket in zip(names, tickets, strict=True):
            self._journal.acknowledged(name, ticket)
        return True

    def _read(self, key: Key, text: str | None) -> None:
        """What was acknowledged is there at once; others may have changed what is shared."""
        if key.id in self._shared:
            return
        try:
            got = self._views[key.tenant].get(KIND, key.id)
        except ERRORS:
            return
        if (got.text if got else None) != text:
            seen = shortened(got.text) if got else None
            self._journal.wrong(key, f"get gives {seen} after {shortened(text or 'a delete')}")

    def _bulk(self) -> None:
        """Several records in several transactions; those before an error are acknowledged."""
        tenant = self._chance.choice(TENANTS)
        ids = self._recent
        drafts = []
        for id in ids:
            text, metadata = self._draft(id)
            name = self._journal.intend(Key(tenant, KIND, id), text, metadata=metadata)
            drafts.append((name, {"id": id, "text": text, "metadata": metadata}))
        names = [name for name, _ in drafts]
        try:
            for ticket in self._views[tenant].add_many(KIND, [record for _, record in drafts]):
                self._journal.acknowledged(names.pop(0), ticket)
        except ERRORS as error:
            self._journal.unknown(names, error)

    def _in_a_transaction(self) -> None:
        """Two records in a transaction of the application's own, which may be rolled back."""
        tenant = self._chance.choice(TENANTS)
        undone, names, tickets = self._chance.random() < 0.3, list[str](), list[Ticket]()
        ids = sorted(self._chance.sample(self._recent, 2))
        try:
            with closing(connect(self._store)) as conn:
                for id in ids:
                    text, metadata = self._draft(id)
                    key = Key(tenant, KIND, id)
                    names.append(self._journal.intend(key, text, metadata=metadata))
                    tickets.append(
                        self._views[tenant].add(KIND, text, id=id, metadata=metadata, conn=conn)
                    )
                (conn.rollback if undone else conn.commit)()
        except ERRORS as error:
            self._journal.unknown(names, error)
            return
        for name, ticket in zip(names, tickets, strict=True):
            if undone:
                self._journal.taken_back(name)
            else:
                self._journal.acknowledged(name, ticket)


def connect(store: str) -> Any:
    """The caller's own connection."""
    if store.startswith("postgresql:"):
        return psycopg.connect(store)
    return sqlite3.connect(store, timeout=30)


def _author(ev: Evervec, orders: Orders, chance: random.Random) -> Callable[[], object]:
    return Author(ev, orders, chance).step


def _table(ev: Evervec, orders: Orders, chance: random.Random) -> Callable[[], object]:
    table, journal = Table(orders.store, chance, TENANTS), Journal(Path(orders.given["journal"]))

    def step() -> None:
        journal.note("; ".join(table.change()))

    return step


def _migrator(ev: Evervec, orders: Orders, chance: random.Random) -> Callable[[], object]:
    migrating = Migrating(ev, chance, models(orders))
    journal = Journal(Path(orders.given["journal"]))

    def step() -> None:
        migrating.decide()
        journal.note(migrating.told.pop())

    return step


def _operator(ev: Evervec, orders: Orders, chance: random.Random) -> Callable[[], object]:
    journal = Journal(Path(orders.given["journal"]))

    def step() -> None:
        if orders.given["repairs"] and chance.random() < 0.5:
            report = ev.verify(repair=True, all_tenants=True)
            journal.note(f"verify --repair: {report.found}, {report.repaired} repaired")
        else:
            journal.note(f"backfill: {ev.backfill()}")

    return step


ROLES = {"author": _author, "table": _table, "migrator": _migrator, "operator": _operator}


@contextmanager
def _until_terminated() -> Iterator[threading.Event]:
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    yield ended


def main(orders: Orders) -> None:
    stage = Stage({})  # ends this process with its parent
    chance = random.Random(orders.given["seed"])
    journal = Journal(Path(orders.given["journal"]))
    with _until_terminated() as ended:
        while not ended.is_set():
            try:
                with open_store(orders) as ev:
                    step = ROLES[orders.do](ev, orders, chance)
                    stage.reach("ready")
                    _go_on(step, ended, orders.given["pause"], chance, journal)
            except ERRORS as error:  # it could not be opened
                journal.note(f"{orders.do} is not open: {error!r}")
                ended.wait(0.1)


def _go_on(
    step: Callable[[], object],
    ended: threading.Event,
    pause: float,
    chance: random.Random,
    journal: Journal,
) -> None:
    while not ended.wait(chance.uniform(0.3, 1.7) * pause):
        try:
            step()
        except ERRORS as error:
            journal.note(f"met {error!r}")
