"""Reads what a store did over time, as points at equal distances."""

from __future__ import annotations

from datetime import datetime, timedelta

from evervec.errors import InvalidArgument
from evervec.model.basics import as_seconds, moment
from evervec.model.history import MOST_POINTS, STEPS, Counts, HistoryPoint, point_of
from evervec.stores.base import Store
from evervec.stores.base.history import Bucket

Span = timedelta | datetime | float
"""how long ago, as a timedelta or in seconds; or a moment"""
_DEFAULT_SPAN = 3600.0
_WANTED_POINTS = 300
"""a step is chosen so that there are at most so many points, where one is kept that allows it"""
_FINEST = min(STEPS)
_LONGEST_SPAN = float(max(STEPS.values()))


def read_history(
    store: Store, tenant: str | None, since: Span | None, step: float | timedelta | None,
    kind: str | None,
) -> list[HistoryPoint]:  # fmt: skip
    """The points from `since` until now, the earliest first, also those in which nothing happened.
    Without a tenant: of all together."""
    now = store.now()
    span = _span(since, now)
    length = _choose(span) if step is None else _checked(step, span)
    base = max(kept for kept in STEPS if length % kept == 0 and span <= STEPS[kept])
    until = int(now) // length * length + length
    began = int(now - span) // length * length
    if (until - began) // length > MOST_POINTS:
        raise InvalidArgument(
            f"the history would have more than {MOST_POINTS:,} points: give a longer step, or a "
            "later since"
        )
    found = store.history.buckets(tenant, kind, base, began, until)
    return _points(found, began, until, length)


def _points(found: list[Bucket], began: int, until: int, length: int) -> list[HistoryPoint]:
    sums: dict[int, Counts] = {}
    depths: dict[int, int] = {}
    for bucket in found:
        place = bucket.at // length * length
        sums.setdefault(place, Counts()).add(bucket.counts)
        if bucket.depth is not None:
            depths[place] = max(bucket.depth, depths.get(place, 0))
    return [
        point_of(moment(at), length, sums.get(at, Counts()), depths.get(at))
        for at in range(began, until, length)
    ]


def _span(since: Span | None, now: float) -> float:
    if since is None:
        return _DEFAULT_SPAN
    if isinstance(since, datetime):
        seconds = now - as_seconds(since)
    else:
        seconds = since.total_seconds() if isinstance(since, timedelta) else _number("since", since)
    if not 0 <= seconds <= _LONGEST_SPAN:
        days = int(_LONGEST_SPAN // 86400)
        raise InvalidArgument(f"since must be within the last {days} days, not {since!r}")
    return seconds


def _choose(span: float) -> int:
    kept = [step for step, seconds in STEPS.items() if span <= seconds]
    return next((step for step in kept if span / step <= _WANTED_POINTS), kept[-1])


def _checked(step: float | timedelta, span: float) -> int:
    given = step.total_seconds() if isinstance(step, timedelta) else _number("step", step)
    length = int(given)
    if length != given or length < _FINEST or length % _FINEST or length > _LONGEST_SPAN:
        raise InvalidArgument(f"step must be a number of whole minutes, not {step!r}")
    if not any(length % kept == 0 and span <= seconds for kept, seconds in STEPS.items()):
        kept = [f"{step} s for {seconds // 3600} h" for step, seconds in STEPS.items()]
        raise InvalidArgument(
            f"the history no longer has steps of {length} s for so long ago: it keeps steps of "
            f"{', '.join(kept)}; give a multiple of a longer one"
        )
    return length


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgument(f"{name} must be a number of seconds or a timedelta, not {value!r}")
    return float(value)
