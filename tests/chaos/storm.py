"""One pair under fault: workers, applications, and what befalls them and their servers."""

import random
import re
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chaos.journal import Journal, Writes
from chaos.judging import Verdict, judge
from chaos.pairs import Pair
from chaos.recovery import Recovery
from support.fleet import POINTS, Fleet
from support.processes import Child, Start

_ROLES = {
    "author one": ("author", 0.03), "author two": ("author", 0.03), "table": ("table", 0.06),
    "migrator": ("migrator", 0.8), "operator": ("operator", 1.5),
}  # fmt: skip
_PATIENCE = 20.0


class Crew:
    """The processes that use the store; one that is killed is started again."""

    def __init__(self, pair: Pair, start: Start, seed: int, records: int) -> None:
        self._pair = pair
        self._start = start
        self._seed = seed
        self._records = records
        self._lives: Counter[str] = Counter()
        self._repairs = False
        self.members: dict[str, Child] = {}

    @property
    def journals(self) -> list[Path]:
        return [path for name in _ROLES if (path := self._journal(name)).exists()]

    def _journal(self, name: str) -> Path:
        return self._pair.folder / f"{name.replace(' ', '-')}.jsonl"

    def noted(self, name: str, pattern: str) -> int:
        """How often one of them noted something like that."""
        notes = Writes.read([self._journal(name)]).notes
        return sum(bool(re.search(pattern, note)) for _, note in notes)

    def begin(self, *, repairs: bool) -> None:
        self._repairs = repairs
        for name in _ROLES:
            self._begin(name)

    def _begin(self, name: str) -> None:
        role, pause = _ROLES[name]
        self._lives[name] += 1
        given = {
            "name": name.replace(" ", "-"), "journal": str(self._journal(name)), "pause": pause,
            "records": self._records, "repairs": self._repairs,
            "seed": f"{self._seed} {name} {self._lives[name]}",
        }  # fmt: skip
        self.members[name] = self._start(
            role, self._pair.store, program="chaos.acting", knows="chaos.actors",
            index=self._pair.index, settings=self._pair.settings, given=given,
        )  # fmt: skip

    def kill(self, name: str) -> None:
        self._end(name)
        self._begin(name)

    def check(self) -> None:
        """None of them ends by itself, whatever it meets."""
        for name, child in self.members.items():
            if not child.running:
                raise AssertionError(f"{name} ended by itself:\n{child.log}")

    def _end(self, name: str) -> None:
        self.members[name].close()
        Journal(self._journal(name)).gone()

    def end(self) -> None:
        """Each may end what it is at."""
        for child in self.members.values():
            child.terminate()
        deadline = time.monotonic() + _PATIENCE
        for name, child in self.members.items():
            while child.running and time.monotonic() < deadline:
                time.sleep(0.02)
            self._end(name)
        self.members.clear()


class Storm:
    """Laps on one pair: faults and writes for a while, then calm, then a verdict."""

    def __init__(
        self,
        pair: Pair,
        start: Start,
        seed: int,
        *,
        records: int = 60,
        tell: Callable[[str], object] | None = None,
    ) -> None:
        """`tell` gets the name of each fault when it was injected."""
        self.pair = pair
        self._tell = tell or str
        self.seed = seed
        self.injected: Counter[str] = Counter()
        self.told: list[str] = []
        """what was done and when"""
        self.gave_up: list[str] = []
        """workers that ended though nobody killed them"""
        self.dead: list[str] = []
        self.verdict = Verdict()
        self.recovery = Recovery(pair.open)
        self.seconds = 0.0
        self.table_changes = 0
        self.migration_steps = 0
        self._chance = random.Random(f"{seed} {pair.name}")
        self._start = start
        self._crew = Crew(pair, start, seed, records)
        self._fleet: Fleet | None = None
        self._calm = threading.Event()
        self._error: BaseException | None = None

    def begin(self) -> None:
        self.pair.begin()
        self._fleet = Fleet(
            self.pair.place, self._start, self._own(), index=self.pair.index,
            settings=self.pair.settings, embedder="auto", size=3, careful=False,
        )  # fmt: skip

    def _own(self) -> random.Random:
        return random.Random(self._chance.random())

    def lap(self, seconds: float, stop: threading.Event, patience: float = 90.0) -> None:
        """Faults for so long, or until somebody stops it; then the verdict."""
        began = time.monotonic()
        self._calm.clear()
        self.pair.hurry(hurried=False)
        with self.recovery_of_lap():
            self._crew.begin(repairs=self._chance.random() < 0.5)
            threads = [
                threading.Thread(target=self._guarded, args=(work, self._own()), daemon=True)
                for work in (self._strike_processes, self._strike_servers)
            ]
            for thread in threads:
                thread.start()
            while time.monotonic() < began + seconds and not stop.is_set() and not self._error:
                time.sleep(0.05)
            self._calm.set()
            for thread in threads:
                thread.join()
            self.recovery.over("end of a lap")
            self._crew.end()
            self._replace_ended()
            if self._error:
                raise self._error
            self.seconds += time.monotonic() - began
            self.pair.hurry(hurried=True)
            about = f"seed {self.seed}, pair {self.pair.name}"
            self.verdict = judge(self.pair, self._crew.journals, about, patience)
            self.dead += self.verdict.dead
            self.table_changes = self._crew.noted("table", "commit$")
            self.migration_steps = self._crew.noted("migrator", "^(begun|building|switched|rolled)")
            self._replace_ended()

    def recovery_of_lap(self) -> Recovery:
        """The longest times of all laps are kept."""
        longest = self.recovery.longest
        self.recovery = Recovery(self.pair.open)
        self.recovery.longest = longest
        return self.recovery

    def _guarded(self, work: Callable[[random.Random], None], chance: random.Random) -> None:
        try:
            work(chance)
        except BaseException as error:
            self.told.append(traceback.format_exc())
            self._error = error

    def _inject(self, name: str, fault: Callable[[], Any]) -> None:
        began = time.time()
        fault()
        self.injected[name] += 1
        self.recovery.over(name)
        self.told.append(f"{began:.3f} to {time.time():.3f} {name}")
        self._tell(f"fault: {name}")

    def _strike_processes(self, chance: random.Random) -> None:
        fleet = self._fleet
        assert fleet is not None
        faults: dict[str, Callable[[], Any]] = {
            "worker: SIGKILL": fleet.kill,
            "worker: SIGKILL at a point of its work": fleet.kill_at,
            "worker: SIGSTOP, SIGCONT": fleet.freeze,
            "worker: SIGSTOP, SIGCONT at a point": fleet.freeze_at,
            "application: SIGKILL": lambda: self._crew.kill(
                chance.choice(("author one", "author two"))
            ),
            "table writer: SIGKILL": lambda: self._crew.kill("table"),
            "migrator: SIGKILL": lambda: self._crew.kill("migrator"),
            "operator: SIGKILL": lambda: self._crew.kill("operator"),
        }
        weights = (3, 3, 3, 8, 4, 1, 2, 1)
        while not self._calm.wait(chance.uniform(0.05, 0.8)):
            self._crew.check()
            (name,) = chance.choices(list(faults), weights)
            self._inject(name, faults[name])
            if fleet.told:
                self.told.append(f"  {fleet.told.pop()}")
            self._replace_ended()

    def _strike_servers(self, chance: random.Random) -> None:
        faults = self.pair.faults()
        groups = sorted({name.partition(":")[0] for name in faults})
        while not self._calm.wait(chance.uniform(0.5, 3.0)):
            group = chance.choice(groups)
            name = chance.choice([n for n in faults if n.startswith(group)])
            self._inject(name, lambda name=name: faults[name](chance))  # type: ignore[misc]

    def _replace_ended(self) -> None:
        """A worker may fail to start while its servers are away, but not end once it works."""
        assert self._fleet is not None
        for worker in self._fleet.replace_ended():
            worker.hear_out()
            if any(said["at"] in POINTS for said in worker.seen):
                self.gave_up.append(worker.log)
            worker.close()

    def close(self) -> None:
        self.pair.close()
