"""What the filter bar of jobs understands, and what it suggests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

from evervec.model.basics import read_duration
from evervec.model.job_filters import JobFilter
from evervec.model.jobs import Status
from evervec.server.dashboard.filter_bar import Line, Qualifier, term
from evervec.server.dashboard.words import clipped, spoken_list

_AGE = "must be an age such as >1h, <10min or 1h..2d"
_FOREVER = timedelta(days=36_500)
_SUGGESTED_KINDS = 12
_SUGGESTED_AGES = ("<10min", ">1h", ">1d")


def _check_status(value: str) -> str | None:
    unknown = [each for each in value.split(",") if each not in tuple(Status)]
    if not unknown:
        return None
    return f"unknown status {clipped(unknown[0], 40)!r}: use {spoken_list(Status, 'or')}"


def _check_age(value: str) -> str | None:
    return _AGE if _ages(value) is None else None


def _ages(value: str) -> tuple[timedelta | None, timedelta | None] | None:
    """The least and the greatest age; None if it is not written so."""
    if value[:1] in ("<", ">"):
        bound = read_duration(value[1:].removeprefix("="))
        if bound is None or bound > _FOREVER:
            return None
        return (bound, None) if value[0] == ">" else (None, bound)
    least, _, most = (read_duration(part) for part in value.partition(".."))
    if least is None or most is None or not least < most <= _FOREVER:
        return None
    return least, most


_EVERYONE = (
    Qualifier("status", "pending, processing, done, failed; several with commas", "status:failed",
              _check_status),
    Qualifier("kind", "kind of record", "kind:note"),
    Qualifier("id", "beginning of the record's id", "id:42"),
    Qualifier("age", "time since the job's last change of state", "age:>1h", _check_age),
    Qualifier("group", "failures with the same fingerprint; several with commas", "group:3f2a91c0"),
)  # fmt: skip
_ADMINS = (
    Qualifier("error", "text in the error", "error:timeout"),
    Qualifier("worker", "worker that claimed the job last", "worker:host:123"),
)


def qualifiers(*, is_admin: bool) -> tuple[Qualifier, ...]:
    """Tenants do not see the texts of errors and the names of workers, so they cannot search them
    either: whether a guess matches would tell."""
    return (*_EVERYONE, *_ADMINS) if is_admin else _EVERYONE


def filter_of(line: Line) -> JobFilter:
    """The filter that a line without errors says."""
    given = line.values
    status = given.get("status")
    older, newer = _ages(given["age"]) or (None, None) if "age" in given else (None, None)
    return JobFilter(
        status=tuple(dict.fromkeys(status.split(","))) if status else (),
        kind=given.get("kind"),
        prefix=given.get("id"),
        error=given.get("error"),
        fingerprint=given.get("group"),
        worker=given.get("worker"),
        older_than=older,
        newer_than=newer,
    )


def offered(
    kinds: Iterable[str], groups: Iterable[str], workers: Iterable[str]
) -> dict[str, list[str]]:
    """Values to suggest, by qualifier."""
    return {
        "status": [str(status) for status in Status],
        "kind": list(kinds)[:_SUGGESTED_KINDS],
        "age": list(_SUGGESTED_AGES),
        "group": list(groups),
        "worker": list(workers),
    }


def terms(offers: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """What can be typed, by qualifier."""
    return {name: [term(name, value) for value in values] for name, values in offers.items()}


def suggestions(line: Line, offers: Mapping[str, Iterable[str]]) -> list[str]:
    """Whole lines that say one thing more than this one."""
    return [
        line.with_(**{name: value})
        for name, values in offers.items()
        if name not in line.values
        for value in values
    ]
