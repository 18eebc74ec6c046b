"""The way of a change to the index, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from evervec.model.basics import moment
from evervec.model.jobs import Attempt, Job, Op, Outcome, Status, TimelineEvent

MOST_ATTEMPTS = 100
"""attempts that a timeline shows: the latest"""
_ENDS = {Outcome.RETRY: "retried", Outcome.FAILED: "failed", Outcome.CRASHED: "crashed"}


def timeline_of(
    job: Job, saved: float, attempts: Sequence[Attempt], now: datetime
) -> list[TimelineEvent]:
    """The events of a job's latest change, in order, with the seconds between them."""
    found = sorted(_events(job, saved, attempts, now), key=lambda event: event.at)
    return [
        event if place == 0 else _after(event, found[place - 1])
        for place, event in enumerate(found)
    ]


def _after(event: TimelineEvent, before: TimelineEvent) -> TimelineEvent:
    return replace(event, seconds=(event.at - before.at).total_seconds())


def _events(
    job: Job, saved: float, attempts: Sequence[Attempt], now: datetime
) -> Iterator[TimelineEvent]:
    yield TimelineEvent(moment(saved), "saved")
    for a in attempts:
        if a.started_at is not None:
            yield TimelineEvent(a.started_at, "claimed", a.attempt, worker=a.worker)
        if a.embedded_at is not None:
            # two clocks may differ by a little
            at = min(max(a.embedded_at, a.started_at or a.embedded_at), a.finished_at)
            yield TimelineEvent(at, "embedded", a.attempt, worker=a.worker)
        if a.outcome is Outcome.DONE:
            last = a is attempts[-1] and job.status is Status.DONE
            what = "removed" if last and job.op is Op.DELETE else "searchable"
        else:
            what = _ENDS[a.outcome]
        yield TimelineEvent(a.finished_at, what, a.attempt, worker=a.worker, error=a.error)
    if job.status is Status.PROCESSING and job.started_at is not None:
        yield TimelineEvent(job.started_at, "claimed", job.attempts, worker=job.worker)
    if job.status is Status.PENDING and job.scheduled_for > now:
        yield TimelineEvent(job.scheduled_for, "due", error=job.error)
