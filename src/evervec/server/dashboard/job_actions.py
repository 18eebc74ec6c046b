"""What people can do with jobs, one by one or many at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evervec.errors import InvalidArgument, InvalidTransition
from evervec.model.job_filters import JobFilter
from evervec.model.jobs import Job, Status
from evervec.queue.queue import Queue
from evervec.queue.transitions import CANCELLED


@dataclass(frozen=True, slots=True)
class Verb:
    """Something that can be done with jobs in some states."""

    name: str
    done: str
    """as in "12 jobs were retried" """
    fits: frozenset[Status]
    effect: str
    """what it means, for people"""
    one: Callable[[Queue, int, int], None]
    """with a job's number and, for the priority, the new one"""
    all: Callable[[Queue, JobFilter, int, bool], int]
    """with a filter, the new priority, and whether only to count"""
    needs_confirmation: bool = False


def _retry_all(queue: Queue, filter: JobFilter, _: int, dry_run: bool) -> int:
    return queue.retry_where(filter, dry_run=dry_run)


def _cancel_all(queue: Queue, filter: JobFilter, _: int, dry_run: bool) -> int:
    return queue.cancel_where(filter, dry_run=dry_run)


def _prioritize_all(queue: Queue, filter: JobFilter, priority: int, dry_run: bool) -> int:
    return queue.set_priority_where(filter, priority, dry_run=dry_run)


VERBS = {
    verb.name: verb
    for verb in (
        Verb(
            "retry", "retried", frozenset({Status.FAILED}),
            "Each starts again as soon as a worker is free, with no attempts spent and no error.",
            lambda queue, id, _: queue.retry(id), _retry_all,
        ),
        Verb(
            "cancel", "cancelled", frozenset(CANCELLED),
            "Each is removed from the queue: the last change of its record will not be searchable, "
            "and a boxed record is lost. Its history stays.",
            lambda queue, id, _: queue.cancel(id), _cancel_all, needs_confirmation=True,
        ),
        Verb(
            "priority", "given a new priority", frozenset({Status.PENDING}),
            "Jobs of a higher priority are claimed first; the default is 0.",
            lambda queue, id, priority: queue.set_priority(id, priority), _prioritize_all,
        ),
    )
}  # fmt: skip


def fitting(job: Job) -> list[Verb]:
    """What can be done with a job as it is."""
    return [verb for verb in VERBS.values() if job.status in verb.fits]


def chosen(queue: Queue, ids: Sequence[int]) -> list[Job]:
    """The jobs with these numbers that still exist."""
    return [job for id in ids if (job := queue.get(id)) is not None]


def do_each(queue: Queue, verb: Verb, ids: Sequence[int], priority: int) -> int:
    """Do it to each of these jobs, and return to how many. Those that ended, were removed or are no
    longer in a state that fits are passed over."""
    count = 0
    for job in chosen(queue, ids):
        if job.status not in verb.fits:
            continue
        try:
            verb.one(queue, job.job_id, priority)
        except (InvalidArgument, InvalidTransition):
            continue
        count += 1
    return count
