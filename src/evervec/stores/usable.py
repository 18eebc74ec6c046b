"""Checks that a store can still be used by this process."""

from __future__ import annotations

import os

from evervec.errors import StoreClosed, StoreError


def closed(name: str) -> StoreClosed:
    return StoreClosed(f"the store {name} is closed: open it again with evervec.open")


def check_usable(name: str, is_closed: bool, pid: int) -> None:
    """Raise an error if the store is closed, or was opened in process `pid` before a fork."""
    if is_closed:
        raise closed(name)
    if pid != os.getpid():
        raise StoreError(
            f"the store {name} was opened before this process was forked; connections do not "
            "survive that: call evervec.open in the child process"
        )
