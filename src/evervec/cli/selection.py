"""The options by which commands select jobs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import click

from evervec.cli.durations import read_time
from evervec.model.job_filters import JobFilter

F = TypeVar("F", bound=Callable[..., Any])


def selecting(function: F) -> Callable[..., Any]:
    """Give a command the options of a filter; it gets the `JobFilter` as `wanted`, None if no
    option was given."""

    @functools.wraps(function)
    def read(*args: Any, **options: Any) -> Any:
        given = {f.name: options.pop(f.name) for f in fields(JobFilter)}
        for name in ("older_than", "newer_than"):
            given[name] = read_time(given[name]) if given[name] else None
        wanted = JobFilter(**given) if any(given.values()) else None
        return function(*args, wanted=wanted, **options)

    for option in reversed(_OPTIONS):
        read = option(read)
    return read


_OPTIONS = (
    click.option("--status", multiple=True, help="pending, processing, done or failed."),
    click.option("--kind", help="Only of this kind."),
    click.option("--prefix", help="Only if the record's id begins with this."),
    click.option("--error", metavar="TEXT", help="Only if this is in the error."),
    click.option("--fingerprint", help="Only of this group of failures; several with commas."),
    click.option("--worker", help="Only if this worker claimed it last."),
    click.option("--older-than", metavar="TIME", help="Only if so long in its status, e.g. 1h."),
    click.option("--newer-than", metavar="TIME", help="Only if at most so long in its status."),
)
