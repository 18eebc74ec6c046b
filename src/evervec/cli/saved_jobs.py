"""Embedding what a command has saved, and what it says about the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evervec.cli.lost import working
from evervec.cli.output import progress, say
from evervec.model.phrases import counted

if TYPE_CHECKING:
    from evervec.facade import Evervec
    from evervec.model.reports import ProcessResult
    from evervec.worker.batch import Reached


def process_all(ev: Evervec, *, quiet: bool) -> ProcessResult:
    """Process all due jobs, also those of dead processes of this machine, with a progress bar, and
    print the first errors."""
    with working(ev) as lost, progress("embedding", quiet=quiet, unit="chunks") as bar:
        jobs = ev.queue.stats().pending + lost
        embedded = 0

        def watch(reached: Reached) -> None:
            nonlocal embedded
            # jobs that are not prepared yet are taken to be as long as the others
            rest = max(0, jobs - reached.jobs) * reached.chunks / max(1, reached.jobs)
            bar.expect(reached.chunks + round(rest), about=rest > 0)
            bar.advance(reached.embedded - embedded)
            embedded = reached.embedded

        result = ev.worker().process_all(watch=watch)
    for job_id, error in result.errors[:10]:
        say(f"job {job_id}: {error}", err=True)
    return result


def embed(ev: Evervec, *, quiet: bool) -> int:
    """Process all due jobs, if there is an embedder; returns how many failed."""
    return process_all(ev, quiet=quiet).failed if ev.embedder.dimensions else 0


def say_what_others_hold(ev: Evervec, held: int) -> None:
    """Say how many jobs are still in progress, in other processes."""
    if held:
        say(
            f"{counted(held, 'job')} {'is' if held == 1 else 'are'} in progress in other processes. "
            f"If one has died, its leases expire within {ev.settings.lease_seconds:g} s; then run "
            "`evervec worker --drain`"
        )
