"""A walk: what callers, workers and operators do, in an order drawn from a seed.

A walk knows what each record must be in the end, by what callers were told. It uses the ways that
change a record or its points and that `tests/explorer` leaves out: conditions and versions, own
vectors, deletes by a filter, files of records and of vectors, pauses, and forced switches.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from evervec import Evervec, InvalidArgument, InvalidTransition, Job, Status, Ticket, Vectors
from evervec.embedders.hashing import HashingEmbedder
from evervec.worker.batch import Batch
from support.oracle import Key, Oracle, Wanted
from support.processes import until
from support.world import DAY, KIND, World, paragraph, work

WORDS = ("alpha", "beta", "gamma", "delta", "epsilon")
TENANTS = ("default", "default", "other")
SIZES = (64, 32, 48)
"""dimensions of the models between which a walk changes"""


class Walk:
    """One walk in a world. Handles share its store; each is a process of its own."""

    def __init__(self, world: World, seed: int, handles: int = 1, *, forgets: bool = False) -> None:
        """`forgets`: the clock leaps, so that deletes are forgotten, and no versions are used."""
        self.world = world
        self.rng = random.Random(seed)
        self.handles = [world.ev, *(world.open() for _ in range(handles - 1))]
        for ev in self.handles:
            for size in SIZES:
                ev.models.add(HashingEmbedder(size))
        world.ev.add(KIND, "the first", id="0")
        self.oracle = Oracle(f"seed {seed}")
        self.oracle.wanted[Key("default", KIND, "0")] = Wanted("the first", {})
        self.said: list[str] = []
        """what was done, to be shown if it ends badly"""
        self._forgets = forgets
        self._versions: dict[Key, int] = {}
        self._boxes: dict[Key, Wanted] = {}
        self._claimed: list[tuple[Evervec, Sequence[Job]]] = []
        self._prepared: list[tuple[Evervec, Batch]] = []
        self._files: list[Any] = []
        self._number = count(1)
        self._steps: list[Callable[[], None]] = [
            step
            for step, weight in (
                (self.add, 8), (self.delete, 4), (self.delete_where, 1), (self.enqueue, 2),
                (self.claim, 6), (self.prepare, 6), (self.write, 6), (self.crash, 1),
                (self.move_clock, 2), (self.recover, 2), (self.sweep, 3), (self.drive, 3),
                (self.migrate, 2), (self.repair, 1), (self.damage, 1), (self.pause, 1),
                (self.copy, 1), (self.embed_elsewhere, 2),
            )
            for _ in range(weight)
        ]  # fmt: skip

    def go(self, steps: int) -> None:
        """So many steps; then everything that is due, and the verdict."""
        for _ in range(steps):
            self.rng.choice(self._steps)()
        self.settle()
        problems = [str(problem) for ev in self.handles for problem in self.oracle.problems(ev)]
        assert not problems, "\n".join([*self.said, "", *problems[:20]])
        for ev in self.handles:
            report = ev.verify(all_tenants=True)
            assert report.complete, "\n".join([*self.said, "", str(report)])

    # callers
    def add(self) -> None:
        """A record: now and then boxed, with a version, a condition, or vectors of its own."""
        rng, key = self.rng, self._key()
        ev = self._of(key)
        words = [paragraph(word) for word in rng.sample(WORDS, rng.randint(1, 3))]
        text = "\n\n".join([*words, f"number{next(self._number)}"])
        if key in self.oracle.wanted and rng.random() < 0.25:
            text = self.oracle.wanted[key].text
        wanted = Wanted(text, rng.choice(({}, {"n": rng.randint(0, 2)})), rng.choice((None, "A")))
        options: dict[str, Any] = {"delay": rng.choice((0, 0, 0, 100))}
        if rng.random() < 0.15:
            options["boxed"] = True
        elif rng.random() < 0.3:
            serving = self._serving()
            chunks = ev.chunks(KIND, text, title=wanted.title)
            made = HashingEmbedder(serving[1]).embed(chunks)
            options["vectors"] = Vectors(serving[0], made)
        accepted = self._conditions(key, ev, options)
        ticket = ev.add(
            KIND, text, id=key.id, title=wanted.title, metadata=wanted.metadata, **options
        )
        self._told(key, options, ticket, accepted)
        if ticket.accepted and not options.get("boxed"):
            self._boxes.pop(key, None)
            self.oracle.wanted[key] = wanted
        elif ticket.enqueued:
            self._boxes[key] = wanted

    def delete(self) -> None:
        key = self._key()
        ev, options = self._of(key), dict[str, Any]()
        there = key in self.oracle.wanted or key in self._boxes
        accepted = self._conditions(key, ev, options) and there
        ticket = ev.delete(KIND, key.id, **options)
        self._told(key, options, ticket, accepted)
        if ticket.accepted:
            self.oracle.wanted.pop(key, None)
            self._boxes.pop(key, None)

    def _conditions(self, key: Key, ev: Evervec, options: dict[str, Any]) -> bool:
        """A version and a condition, or not; whether the change is to be accepted."""
        rng, good = self.rng, True
        if rng.random() < 0.3:
            got = ev.get(KIND, key.id)
            good = rng.random() < 0.5
            options["if_seq"] = got.seq if got and good else 10**9
            good = good and got is not None and key not in self._boxes
        if rng.random() < 0.3 and not self._forgets:
            options["version"] = rng.randint(1, 12)
            newer = options["version"] > self._versions.get(key, 0)
            if good and newer:
                self._versions[key] = options["version"]
            good = good and newer
        return good

    def _told(self, key: Key, options: dict[str, Any], ticket: Ticket, accepted: bool) -> None:
        shown = {name: given for name, given in options.items() if name != "vectors"}
        self.said.append(f"{key} {shown} {ticket}")
        assert ticket.accepted is accepted, "\n".join(self.said)

    def delete_where(self) -> None:
        keys = [
            key
            for key, wanted in self.oracle.wanted.items()
            if key.tenant == self.world.ev.tenant and wanted.metadata.get("n") == 1
        ]
        assert self._any().delete_where({"n": 1}, KIND) == len(keys), "\n".join(self.said)
        for key in keys:
            del self.oracle.wanted[key]
            self._boxes.pop(key, None)
        self.said.append(f"deleted {keys}")

    def enqueue(self) -> None:
        if self.oracle.wanted:
            key = self.rng.choice(list(self.oracle.wanted))
            self._of(key).queue.enqueue(KIND, key.id)

    # workers
    def claim(self) -> None:
        ev = self._any()
        if ev.pipeline.probe_providers() and (jobs := ev.pipeline.claim(self.rng.randint(1, 6))):
            self._claimed.append((ev, jobs))
            self.said.append(f"claimed {[(job.job_id, job.record_id, job.op) for job in jobs]}")

    def prepare(self) -> None:
        if self._claimed:
            ev, jobs = self._claimed.pop(self.rng.randrange(len(self._claimed)))
            batch, rest = ev.pipeline.prepare(jobs)
            self._prepared.append((ev, batch))
            if rest:
                self._claimed.append((ev, rest))

    def write(self) -> None:
        if self._prepared:
            ev, batch = self._prepared.pop(self.rng.randrange(len(self._prepared)))
            ev.pipeline.embed(batch)
            ev.pipeline.write(batch)
            self.said.append(f"wrote {[job.job_id for job in batch.jobs]}")
            self._open_boxes()

    def _open_boxes(self) -> None:
        """What came out of its box is there from now on."""
        for key, wanted in list(self._boxes.items()):
            jobs = self._of(key).queue.jobs(kind=KIND, id=key.id)
            if all(job.op != "open" or job.status == Status.DONE for job in jobs):
                self.oracle.wanted[key] = wanted
                del self._boxes[key]

    def crash(self) -> None:
        """What a worker has in hand is gone."""
        held: list[Any] = self.rng.choice((self._claimed, self._prepared))
        if held:
            held.pop()

    def recover(self) -> None:
        self._any().queue.recover_stuck()

    def sweep(self) -> None:
        step = self.rng.choice(self._any()._housekeeping.steps)
        step()
        self.said.append(f"{step}")

    def drive(self) -> None:
        self._any()._lifecycle.step()

    # operators
    def move_clock(self) -> None:
        leaps = self._forgets and self.rng.random() < 0.1
        self.world.clock.move(8 * DAY if leaps else self.rng.choice((1, 6, 61, 61, 400)))

    def migrate(self) -> None:
        """The next step of a change of model, whichever is possible."""
        ev, dice = self._any(), self.rng.random()
        migration = ev.migration()
        try:
            if migration is None:
                size = self.rng.choice([size for size in SIZES if size != self._serving()[1]])
                ev.migrate(HashingEmbedder(size), switch=dice < 0.4)
                self.said.append(f"to {size} dimensions")
                return
            state = migration.status().state
            if state == "building" and dice < 0.2:
                migration.cancel()
            elif state == "building" or (state == "rolled back" and dice < 0.6):
                migration.switch(force=dice > 0.5, timeout=0)
            elif state == "rolled back":
                migration.cancel()
            else:
                (migration.rollback if dice < 0.4 else migration.retire)()
            self.said.append(f"{migration} was {state}: {dice:.2f}")
        except InvalidTransition:
            return  # not now

    def repair(self) -> None:
        self._any().verify(repair=self.rng.random() < 0.6, all_tenants=True)
        self.said.append("verified")

    def damage(self) -> None:
        """Points are gone from the index."""
        ev = self._any()
        used = [c for c in ev.store.versions.collections() if c.state != "retired" and c.spec]
        if used and (held := ev.index.held((c := self.rng.choice(used)).version, None, 0, None)):
            ev.index.remove(c.version, self.rng.sample(held, min(2, len(held))))
            self.said.append(f"damaged version {c.version}")

    def pause(self) -> None:
        queue = self._any().of(self.rng.choice(TENANTS)).queue
        (queue.pause if self.rng.random() < 0.5 else queue.resume)(own=True)

    def copy(self) -> None:
        """Records from a file in which they all were as they are."""
        ev, path = self._any(), self.world.folder / "records.parquet"
        ev.export(path)
        assert ev.import_(path, overwrite=self.rng.random() < 0.5 and not self._boxes).saved == 0

    def embed_elsewhere(self) -> None:
        """Waiting texts go to a file; later their vectors come back."""
        if self._files and self.rng.random() < 0.6:
            path = self._files.pop(self.rng.randrange(len(self._files)))
            with suppress(InvalidArgument):  # their version was dropped
                self.said.append(f"{self._any().import_vectors(path)}")
                self._open_boxes()
            return
        path = self.world.folder / f"texts{next(self._number)}.parquet"
        self._any().export_pending(path)
        table = pq.read_table(path)
        if table.num_rows:
            made = [
                HashingEmbedder(row["dimensions"]).embed(row["texts"]).tolist()
                for row in table.to_pylist()
            ]
            vectors = pa.array(made, pa.list_(pa.list_(pa.float32())))
            pq.write_table(table.append_column("vectors", vectors), path)
            self._files.append(path)

    # the end
    def settle(self) -> None:
        """Faults have stopped: workers do all that is left, and what was damaged is repaired."""
        ev = self.world.ev
        for tenant in set(TENANTS):
            ev.of(tenant).queue.resume(own=True)
        for _ in range(4):
            self.world.clock.move(400)
            self.recover()
            until(self._is_done, "versions to be built")
        for _ in range(2):
            ev.verify(repair=True, all_tenants=True)
            work(ev)
        self._open_boxes()
        assert not self._boxes, "\n".join(self.said)

    def _is_done(self) -> bool:
        """Do what is due. A version may wait for a transaction that was there before it."""
        ev = self.world.ev
        while ev._lifecycle.step() or work(ev).processed:
            pass
        building = [c for c in ev.store.versions.collections() if c.state == "building"]
        return all(map(ev._lifecycle.is_filled, building))

    # helpers
    def _any(self) -> Evervec:
        return self.rng.choice(self.handles)

    def _key(self) -> Key:
        return Key(self.rng.choice(TENANTS), KIND, self.rng.choice("abcdef"))

    def _of(self, key: Key) -> Evervec:
        return self._any().of(key.tenant)

    def _serving(self) -> tuple[str, int]:
        """Name and dimensions of the version that serves, or will."""
        for c in self.world.ev.store.versions.collections():
            if (c.kind, c.state) == (KIND, "serving") and c.spec:
                return c.spec.name, c.spec.dimensions
        return "hashing-64", 64
