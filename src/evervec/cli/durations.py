"""Durations as people write them on the command line."""

from __future__ import annotations

from datetime import timedelta

import click

from evervec.model.basics import read_duration


def read_time(text: str) -> timedelta:
    """Parse a duration such as `30s`, `10min`, `2h` or `7d`."""
    if (found := read_duration(text)) is None:
        raise click.UsageError(f"'{text}' is not a duration; write 30s, 10min, 2h or 7d")
    return found
