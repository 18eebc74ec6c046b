"""What programs under stress share: how long, by which seed, where, and what the application does.

`EVERVEC_STRESS_SECONDS` is how long the long forms run (60 seconds by default), and
`EVERVEC_STRESS_SEED` repeats the choices of an earlier run, as far as threads allow.
"""

import os
import random
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import evervec
from evervec import Evervec, Ticket, WaitTimeout
from evervec.embedders.hashing import HashingEmbedder
from support.engines import INDEXES, STORES
from support.oracle import SAME, Application, Key, Oracle, shortened
from support.places import Place
from support.texts import by_turns

SECONDS = float(os.environ.get("EVERVEC_STRESS_SECONDS", "60"))
SETTINGS: dict[str, Any] = {
    "chunk_tokens": 16, "poll_seconds": 0.02, "lease_seconds": 2.0, "writer_lock_seconds": 3.0,
    "backoff_seconds": 0.05, "backoff_cap_seconds": 0.5, "max_attempts": 1000, "batch_size": 8,
    "housekeeping_seconds": 1.0, "busy_seconds": 30.0,
}  # fmt: skip
"""as many attempts as it takes: no record is to be buried because its workers were killed"""
_PATIENCE = 60.0


def new_seed() -> int:
    """The seed of this run."""
    given = os.environ.get("EVERVEC_STRESS_SEED")
    return int(given) if given else random.SystemRandom().randrange(10**6)


class Unhurried(HashingEmbedder):
    """Hashes words, and takes a moment, as a provider does."""

    def __init__(self, dimensions: int = 64, seed: int = 0, longest: float = 0.01) -> None:
        super().__init__(dimensions)
        self.max_batch = 8
        self._chance = random.Random(seed)
        self._longest = longest
        self._pause = threading.Event()

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self._pause.wait(self._chance.random() * self._longest)
        return super().embed(texts)


class Site:
    """A store and an index in a folder, with the real clock."""

    def __init__(self, pair: tuple[str, str], folder: Path) -> None:
        self.store_name, self.index_name = pair
        self.folder = folder
        self.store = STORES[self.store_name].url(folder)
        self.index = INDEXES[self.index_name].url(folder)

    def open(self, **given: Any) -> Evervec:
        options = {"embedder": HashingEmbedder(64), **SETTINGS, **given}
        return evervec.open(self.store, index=self.index, **options)

    @property
    def place(self) -> Place:
        """Where the store lies, as `support.places` has it."""
        return Path(self.store) if self.store_name == "sqlite" else self.store

    def close(self) -> None:
        STORES[self.store_name].leave(self.folder)
        INDEXES[self.index_name].leave(self.folder)


class Threads:
    """Threads that run until told to stop; what one of them raises stops all, and is blamed."""

    def __init__(self, oracle: Oracle) -> None:
        self.stop = threading.Event()
        self._oracle = oracle
        self._threads: list[threading.Thread] = []

    def start(self, name: str, work: Callable[[], object], pause: float = 0.0) -> None:
        """Do this again and again, with a short pause in between."""

        def run() -> None:
            try:
                while not self.stop.wait(pause):
                    work()
            except BaseException:
                self._oracle.blame(None, f"thread {name}: {traceback.format_exc()}")
                self.stop.set()

        self._threads.append(threading.Thread(target=run, name=name, daemon=True))
        self._threads[-1].start()

    @contextmanager
    def running(self, seconds: float) -> Iterator[None]:
        """For so long, or until one of them ends in an error."""
        try:
            yield
            self.stop.wait(seconds)
        finally:
            self.stop.set()
            for thread in self._threads:
                thread.join(_PATIENCE)
                if thread.is_alive():
                    self._oracle.blame(None, f"thread {thread.name} does not end")


def settle(ev: Evervec, oracle: Oracle, seconds: float = _PATIENCE) -> None:
    """Work until nothing is left; what stays is for the oracle to tell."""
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while time.monotonic() < deadline:
        try:
            ev.process_all()
        except evervec.EvervecError as error:
            oracle.blame(None, f"work was broken off: {error!r}")
            return
        stats = ev.store.jobs.stats(None)
        if stats.pending == stats.processing == 0:
            return
        pause.wait(0.02)
    oracle.blame(None, f"work did not come to an end within {seconds:g} s")


class Editor:
    """An application that changes a few records, whose texts keep coming back to what they were.

    Those of `ids` are changed by one thread at a time, which may wait for its own change and
    must then find it. Those of `shared` are changed by all at once.
    """

    def __init__(
        self,
        app: Application,
        chance: random.Random,
        ids: Sequence[str],
        shared: Sequence[str] = (),
        *,
        reads: float = 0.2,
    ) -> None:
        """`reads`: the share of changes that are waited for and looked at."""
        self._reads = reads
        self._app = app
        self._chance = chance
        self._locks = {id: threading.Lock() for id in ids}
        self._shared = list(shared)
        self._edition = 0
        self._last: dict[str, Ticket] = {}
        self.reads = 0
        """searches that had to find what was written before"""

    def change(self) -> None:
        """One change, or a few in a row, of some record."""
        id = self._chance.choice([*self._locks, *self._shared])
        if id in self._shared:
            self._change(id)
            return
        lock = self._locks[id]
        if lock.acquire(blocking=False):
            try:
                for _ in range(self._chance.choice((1, 1, 2, 3))):
                    self._last[id] = self._change(id)
                if self._chance.random() < self._reads:
                    self.read(id)
            finally:
                lock.release()

    def read_one(self) -> None:
        """Some record that nobody changes meanwhile is found as it was written last."""
        id = self._chance.choice(list(self._locks))
        lock = self._locks[id]
        if lock.acquire(blocking=False):
            try:
                if id in self._last:
                    self.read(id)
            finally:
                lock.release()

    def _change(self, id: str) -> Ticket:
        dice = self._chance.random()
        if dice < 0.2:
            return self._app.delete(id)
        text = self._chance.choice(self._texts(id))
        metadata = {"shelf": self._chance.randrange(2)}
        return self._app.add(id, text, metadata=metadata, boxed=dice > 0.9)

    def _texts(self, id: str) -> list[str]:
        self._edition += 1
        return by_turns(id, self._edition)

    # reading one's own writes
    def read(self, id: str) -> None:
        """After the last ticket, search and get have just that version of the record."""
        ev, key, oracle = self._app.ev, self._app.key(id), self._app.oracle
        ticket, wanted = self._last[id], oracle.wanted.get(key)
        text = wanted.text if wanted else ""
        try:
            self._must_find(ev, key, text, ticket)
        except WaitTimeout as error:
            oracle.blame(key, f"its ticket of seq {ticket.seq} is not settled: {error}")
            return
        got = ev.get(key.kind, id)
        if (got.text if got else "") != text:
            oracle.blame(key, f"get gives {shortened(got.text if got else '')}")
        self.reads += 1

    def _must_find(self, ev: Evervec, key: Key, text: str, ticket: Ticket) -> None:
        pieces = set(filter(None, text.split("\n\n")))
        others = {piece for old in self._texts(key.id) for piece in old.split("\n\n")} - pieces
        for piece in sorted(pieces | others):
            hits = ev.search(
                piece, 50, kind=key.kind, mode="semantic",
                after=ticket if ticket.accepted else None, wait=_PATIENCE,
            )  # fmt: skip
            found = any(hit.id == key.id and (hit.similarity or 0) >= SAME for hit in hits)
            if found and piece in others:
                self._app.oracle.blame(
                    key, f"read after seq {ticket.seq}: {piece!r} is still found"
                )
            elif not found and piece in pieces:
                self._app.oracle.blame(key, f"read after seq {ticket.seq}: {piece!r} is not found")
