"""Which evervec this is."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version


@cache
def release() -> str:
    """The version of the installed package. To read it from its files takes 8 ms, so it is read
    once."""
    return version("evervec")
