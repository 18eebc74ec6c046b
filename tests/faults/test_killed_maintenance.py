"""A process that is killed while maintenance writes what searches read: sketches, words, fields."""

import random
import shutil
import sqlite3
from pathlib import Path

import pytest

import evervec
import evervec.indexes.matrix as matrices
from evervec import Evervec
from evervec.indexes import blocks, sketch_parts
from evervec.stores.sqlite import postings, records
from evervec.stores.sqlite.connections import Connections
from support.engines import STORES
from support.vectors import vector
from support.world import DAY, KIND, ScriptedEmbedder, World, work

WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta")


class Kills:
    """The store's files as a kill before any of the statements would leave them, each state once."""

    def __init__(self, store: Path, folder: Path) -> None:
        self._store, self._folder = store, folder
        self._seen = set[bytes]()
        self.left: list[Path] = []
        self.watches = False

    def look(self) -> None:
        if not self.watches:
            return
        files = [file for file in self._files() if file.exists()]
        state = b"".join(file.read_bytes() for file in files)
        if state not in self._seen:
            self._seen.add(state)
            copy = self._folder / str(len(self.left))
            copy.mkdir(parents=True)
            for file in files:
                shutil.copy(file, copy)
            self.left.append(copy / self._store.name)

    def _files(self) -> list[Path]:
        """Without the shared memory, which the last process to end takes with it."""
        return [self._store, self._store.with_name(f"{self._store.name}-wal")]


@pytest.fixture(autouse=True)
def all_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrices, "_MANY", 1)
    monkeypatch.setattr(sketch_parts, "ROWS", 8)
    monkeypatch.setattr(blocks, "_VECTORS_SHARE", 1 << 40)
    monkeypatch.setattr(records, "MANY", 0)
    monkeypatch.setattr(postings, "ROWS", 4)


@pytest.mark.parametrize("rounds", [1, pytest.param(6, marks=pytest.mark.long)])
def test_searches_are_right_wherever_maintenance_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    kills: list[Kills] = []
    connect = Connections._connect

    def watched(self: Connections) -> sqlite3.Connection:
        conn = connect(self)
        conn.set_trace_callback(lambda _: kills[-1].look())
        return conn

    monkeypatch.setattr(Connections, "_connect", watched)
    file = Path(STORES["sqlite"].url(tmp_path))
    kills.append(Kills(file, tmp_path / "kills"))
    world = World(("sqlite", "sqlite"), tmp_path)
    draw, truth, ev = random.Random(1), dict[str, str](), world.ev
    ev.register(evervec.Kind(KIND, index_fields={"group": int}))
    for round in range(rounds):
        some = draw.sample(range(90), 40)
        save(ev, truth, {str(n): " ".join(draw.choices(WORDS, k=3)) for n in some})
        for id in draw.sample(sorted(truth), 15):
            ev.delete(KIND, id)
            del truth[id]
        work(ev)
        world.clock.move(DAY)
        ev.store.jobs.purge_history(world.clock.now)
        kills.append(Kills(file, tmp_path / f"kills {round}"))
        kills[-1].watches = True
        ev.store.maintain()
        ev.index.maintain(0)
        kills[-1].watches = False
        assert len(kills[-1].left) > 5
        for killed in kills[-1].left:
            check(killed, world, truth)
    check_open(ev, truth)
    world.close()


def save(ev: Evervec, truth: dict[str, str], texts: dict[str, str]) -> None:
    rows = (
        {"id": id, "text": text, "metadata": {"group": int(id) % 4}} for id, text in texts.items()
    )
    list(ev.add_many(KIND, rows))
    work(ev)
    truth |= texts


def check(path: Path, world: World, truth: dict[str, str]) -> None:
    """What a process finds that opens the store after the kill, before and after maintenance."""
    with evervec.open(path, embedder=ScriptedEmbedder(), clock=world.clock, chunk_tokens=16) as ev:
        check_open(ev, truth)
        ev.store.maintain()
        ev.index.maintain(0)
    with evervec.open(path, embedder=ScriptedEmbedder(), clock=world.clock, chunk_tokens=16) as ev:
        check_open(ev, truth)


def check_open(ev: Evervec, truth: dict[str, str]) -> None:
    for filter in (None, {"group": 1}):
        fits = {id: text for id, text in truth.items() if filter is None or int(id) % 4 == 1}
        hits = ev.search("alpha zeta", 1000, mode="semantic", filter=filter)
        scores = {hit.id: hit.similarity for hit in hits}
        assert scores.keys() == fits.keys()
        asked = vector("alpha zeta")
        for id, text in fits.items():
            assert scores[id] == pytest.approx(float(vector(text) @ asked), abs=1e-5)
        found = {hit.id for hit in ev.search("beta", 1000, mode="text", filter=filter)}
        assert found == {id for id, text in fits.items() if "beta" in text.split()}
    assert ev.verify().complete
