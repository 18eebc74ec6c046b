"""Workers as actors of Ray: placement, GPUs and other machines are Ray's.

An actor is a process with one worker, named by its host and process like any other. Ray does not
restart it: the supervisor starts a new one, because only the store knows what is left to do.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass, field
from typing import Any

from evervec.errors import SettingsError
from evervec.runtime.packages import load_package
from evervec.stores.location import sqlite_path

log = logging.getLogger("evervec")

_LATE_SECONDS = 60.0
"""for which an actor may wait for resources before it is said"""


@dataclass(frozen=True)
class Orders:
    """What an actor opens. The variables `EVERVEC_…` of the supervisor go with it as arguments, not
    as a runtime environment, which Ray shows to anyone who may see its dashboard."""

    store: str
    index: str | None = None
    embedder: str | None = None
    app: str | None = None
    concurrency: int | None = None
    environ: dict[str, str] = field(default_factory=dict, repr=False)


def orders(
    store: str, index: str | None, embedder: str | None, app: str | None, concurrency: int | None
) -> Orders:
    """Orders that mean the same in another process."""
    if store in ("memory:", ":memory:") or store.startswith("duckdb:"):
        raise SettingsError(
            f"{store} can be open in one process only: a fleet needs PostgreSQL, or SQLite on one "
            "machine"
        )
    path = sqlite_path(store)
    if path is not None:
        store = os.path.abspath(path)
    environ = {k: v for k, v in os.environ.items() if k.startswith("EVERVEC_")}
    environ.update({k: _absolute(v) for k, v in environ.items() if k == "EVERVEC_INDEX"})
    return Orders(store, index and _absolute(index), embedder, app, concurrency, environ)


def _absolute(index: str) -> str:
    """The URL of an index, with the whole path if it is a folder."""
    scheme, _, place = index.partition("://")
    if scheme not in ("lancedb", "qdrant-edge") or "://" in place:
        return index
    return f"{scheme}://{os.path.abspath(place)}"


class WorkerActor:
    """Runs in a process of its own."""

    def __init__(self, given: Orders) -> None:
        from evervec.cli.app import Where

        os.environ.update(given.environ)
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
        where = Where(given.store, given.index, given.embedder, None, given.app)
        settings: dict[str, Any] = (
            {} if given.concurrency is None else {"concurrency": given.concurrency}
        )
        self._opening = where.opened(**settings)
        self._ev = self._opening.__enter__()
        if self._ev.embedder.dimensions == 0:
            raise SettingsError("no embedder, so nothing can be embedded: give --embedder")
        self._worker = self._ev.worker()
        self._worker.__enter__()

    def trouble(self) -> str | None:
        """None while its worker's thread runs. A worker that waits for its store or provider goes
        on: another one would wait too."""
        return None if self._worker.running else "its worker ended"

    def process(self) -> int:
        return os.getpid()

    def stop(self) -> None:
        """Drain and close."""
        self._worker.stop()
        self._worker.join()
        self._opening.__exit__(None, None, None)


class RayMember:
    """An actor as the supervisor sees it. It never waits for the actor."""

    def __init__(self, ray: Any, actor: Any, name: str) -> None:
        self.name = name
        self.actor = actor
        self._ray = ray
        self._asked = actor.trouble.remote()
        self._stopped: Any = None
        self._late_at: float | None = time.monotonic() + _LATE_SECONDS
        """when it should have started; None: it has, or it was said that it has not"""

    def trouble(self) -> str | None:
        ready, _ = self._ray.wait([self._asked], timeout=0)
        if not ready:  # it starts, waits for a GPU, or its machine does not answer yet
            if self._late_at is not None and time.monotonic() >= self._late_at:
                self._late_at = None
                log.warning(
                    "%s has not started for %g s: Ray may have no machine with the CPUs and GPUs "
                    "that it needs, see `ray status`", self.name, _LATE_SECONDS,
                )  # fmt: skip
            return None
        self._late_at = None
        try:
            found: str | None = self._ray.get(self._asked)
        except self._ray.exceptions.RayError as error:
            return f"its actor died ({_first_line(error)})"
        except Exception as error:  # noqa: BLE001 - of the actor's constructor
            return f"it could not start ({_first_line(error)})"
        self._asked = self.actor.trouble.remote()
        return found

    def stop(self) -> None:
        if self._stopped is None:
            self._stopped = self.actor.stop.remote()

    def ended(self) -> bool:
        if self._stopped is None:
            return False
        ready, _ = self._ray.wait([self._stopped], timeout=0)
        if ready:
            self.kill()  # the process, which is idle by now
        return bool(ready)

    def kill(self) -> None:
        self._ray.kill(self.actor, no_restart=True)


class RayLauncher:
    """Starts actors in a cluster."""

    def __init__(
        self, address: str, given: Orders, *, gpus: float = 0.0, cpus: float = 1.0
    ) -> None:
        """`address`: as for `ray.init`; `local` starts a Ray on this machine alone."""
        self._ray = load_package("ray", "a fleet on Ray", "evervec[ray]")
        self._orders = given
        self._own = not self._ray.is_initialized()
        if self._own:
            self._ray.init(
                address=None if address == "local" else address,
                namespace="evervec",
                include_dashboard=None if address != "local" else False,
                log_to_driver=False,
                logging_level=logging.WARNING,
            )
        # a second thread answers the supervisor while the first drains
        self._actor = self._ray.remote(
            num_cpus=cpus, num_gpus=gpus, max_restarts=0, max_concurrency=2
        )(WorkerActor)

    def start(self, number: int) -> RayMember:
        log.info("worker %d starts as an actor", number)
        return RayMember(self._ray, self._actor.remote(self._orders), f"worker {number}")

    def close(self) -> None:
        if self._own:
            self._ray.shutdown()


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
