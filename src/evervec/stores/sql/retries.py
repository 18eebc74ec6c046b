"""Retries of a transaction that conflicted with another one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from evervec.errors import StoreError

_TRIES = 5

P = ParamSpec("P")
R = TypeVar("R")


class Conflict(StoreError):
    """This transaction conflicted with another and was rolled back: retry it."""


class CallersConflict(StoreError):
    """A conflict inside the caller's transaction, which only the caller can retry."""


def retried(
    call: Callable[P, R], undone: type[StoreError] | tuple[type[StoreError], ...] = Conflict
) -> Callable[P, R]:
    """Retry a call when it conflicted with another transaction, up to `_TRIES` times in all."""

    @functools.wraps(call)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        for _ in range(_TRIES - 1):
            try:
                return call(*args, **kwargs)
            except undone:
                continue
        return call(*args, **kwargs)

    return wrapped


retried_whole = functools.partial(retried, undone=(Conflict, CallersConflict))
"""`retried` for a transaction that contains other calls."""
