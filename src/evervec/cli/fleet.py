"""A fleet of workers, supervised from the command line."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from evervec.cli.app import Where
from evervec.cli.output import say
from evervec.runtime.threads import handling_signals

if TYPE_CHECKING:
    from evervec.facade import Evervec


def run_fleet(
    ev: Evervec,
    where: Where,
    address: str,
    size: tuple[int, int],
    gpus: float,
    concurrency: int | None,
) -> None:
    """Keep workers running as actors of Ray until SIGTERM or SIGINT, then drain them."""
    from evervec.integrations.fleet.ray import RayLauncher, orders
    from evervec.integrations.fleet.supervisor import Fleet, Lag, Size
    from evervec.stores.location import store_url

    everyone = ev.queue_of(None)

    def lag() -> Lag:
        stats = everyone.stats()
        return Lag(stats.pending, stats.oldest_pending_seconds)

    given = orders(store_url(where.store), where.index, where.embedder, where.app, concurrency)
    bounds = Size(*size)
    launcher = RayLauncher(address, given, gpus=gpus)
    fleet = Fleet(launcher, lag, bounds)
    stopping = threading.Event()
    try:
        with handling_signals(lambda number, frame: stopping.set()):
            say(
                f"{size[0]} to {size[1]} workers on Ray for {ev.store.url}; stop with Ctrl-C",
                err=True,
            )
            fleet.run(stopping)
            fleet.stop(ev.settings.drain_seconds)
    finally:
        launcher.close()
