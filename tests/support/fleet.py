"""Workers in processes of their own, and what befalls them."""

import random
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from support.fault_checks import freeze
from support.places import Place
from support.processes import Child, Start

POINTS = ["loading", "embedding", "applying", "applied", "finishing", "finished"]
"""where a worker stands: it has claimed, it has read, and then before and after each write"""
_UNLOCKED = ["loading", "embedding", "finishing", "finished"]
"""where it has no transaction open, if the index is written in the store's own"""


class Fleet:
    """Some workers that run all the time, and others for faults at a point of the work."""

    def __init__(
        self,
        place: Place,
        start: Start,
        chance: random.Random,
        *,
        index: str | None,
        settings: Mapping[str, Any],
        apart: bool = False,
        embedder: str = "",
        size: int = 2,
        careful: bool = True,
    ) -> None:
        """`apart`: an index in the store is written as one outside of it. `careful`: none is
        frozen while it has locks that others wait for."""
        self._careful = careful
        self._place = place
        self._joined = not apart and index is None
        self._orders = {
            "index": index, "settings": dict(settings), "index_apart": apart, "max_batch": 8,
            "embedder": embedder, "burn_seconds": 0.002,
        }  # fmt: skip
        self._start = start
        self._chance = chance
        self._lease: float = settings["lease_seconds"]
        self._pause = threading.Event()
        self.workers = [self._worker() for _ in range(size)]
        self.told: list[str] = []
        """what happened, in order"""

    def _worker(self, point: str | None = None) -> Child:
        pause = {point: ""} if point else {}
        return self._start("work", self._place, pause=pause, **self._orders)

    def kill(self) -> None:
        """At some moment."""
        victim = self.workers.pop(self._chance.randrange(len(self.workers)))
        self._pause.wait(self._chance.random() * 0.05)
        victim.close()
        self.told.append(f"killed {victim.pid}")
        self.workers.append(self._worker())

    def freeze(self) -> None:
        """For about as long as a lease, or longer."""
        victim = self._chance.choice(self.workers)
        self._stop(victim)
        self._past_the_lease()
        victim.thaw()
        self.told.append(f"froze {victim.pid}")

    def _stop(self, victim: Child) -> None:
        if self._careful:
            freeze(victim, self._place)
        else:
            victim.freeze()

    def kill_at(self) -> None:
        """At a point of its work."""
        point, victim = self._one_at_a_point(POINTS)
        victim.close()
        self.told.append(f"killed {victim.pid} at {point}")

    def freeze_at(self) -> None:
        """The same; then it does what it was about to do, and is killed."""
        # where the index is written in the store's own transaction, others would wait for its locks
        point, victim = self._one_at_a_point(_UNLOCKED if self._joined else POINTS)
        with suppress(AssertionError):  # it is held at its point, with or without this
            self._stop(victim)
        self._past_the_lease()
        victim.thaw()
        with suppress(BrokenPipeError):  # it ended by itself, or never began
            victim.go(point, times=1000)
        self.told.append(f"froze {victim.pid} at {point}")
        victim.reaches("finished", seconds=1.0)
        victim.close()

    def _one_at_a_point(self, points: list[str]) -> tuple[str, Child]:
        point = self._chance.choice(points)
        victim = self._worker(point)
        victim.reaches(point, seconds=2.0)
        return point, victim

    def _past_the_lease(self) -> None:
        self._pause.wait(self._lease * self._chance.uniform(0.5, 2.5))

    def replace_ended(self) -> list[Child]:
        """Start others for workers that ended by themselves, and return those."""
        ended = [worker for worker in self.workers if not worker.running]
        self.workers = [w for w in self.workers if w not in ended] + [self._worker() for _ in ended]
        return ended

    def end(self) -> None:
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            worker.exit_code()
