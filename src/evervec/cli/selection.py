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
    click.option(
        "--status", multiple=True, help="Only pending, processing, done or failed jobs; repeatable."
    ),
    click.option("--kind", help="Only jobs of this kind."),
    click.option("--prefix", help="Only jobs of records whose id begins with this."),
    click.option("--error", metavar="TEXT", help="Only jobs whose error contains this."),
    click.option(
        "--fingerprint", help="Only jobs of this group of failures; separate several by commas."
    ),
    click.option("--worker", help="Only jobs that this worker claimed last."),
    click.option(
        "--older-than",
        metavar="TIME",
        help="Only jobs in their status for at least this long, e.g. 1h.",
    ),
    click.option(
        "--newer-than", metavar="TIME", help="Only jobs in their status for at most this long."
    ),
)
