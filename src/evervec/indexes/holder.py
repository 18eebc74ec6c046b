"""Identifies a process so that other processes can check whether it is alive.

A pid is valid only on one boot of one machine and in one PID namespace, and is reused after its
process ended. So a holder includes all of these and the process's start time, and only a process
with the same view of pids concludes that the holder is dead.
"""

from __future__ import annotations

import os
import socket
import uuid
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")


class Holder(NamedTuple):
    """A process, and which of its objects holds something."""

    host: str
    pid: int
    view: str
    """boot and namespaces in which the pid is valid; "-": unknown"""
    started: str
    """start time of the process; "-": unknown"""
    object: str

    @classmethod
    def here(cls, object: str) -> Holder:
        return cls(_host(), os.getpid(), *_view(os.getpid()), object)

    @classmethod
    def parse(cls, text: str) -> Holder | None:
        """None: it was not written by `str(Holder(...))`."""
        parts = text.split(" ")
        if len(parts) != len(cls._fields) or not parts[1].isdecimal():
            return None
        host, pid, view, started, object = parts
        return cls(host, int(pid), view, started, object)

    def __str__(self) -> str:
        return " ".join(map(str, self))

    def is_dead(self) -> bool:
        """True only if it is certain: a process that is stopped, or cannot be seen from here, is
        not dead."""
        view, _ = _view(os.getpid())
        if view == "-" or (self.host, self.view) != (_host(), view):
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass  # it exists, and belongs to another user
        stat = _stat(str(self.pid))
        return stat is not None and (stat.ended or stat.started != self.started)


def described(holder: str) -> str:
    """A holder in words, for logs and errors."""
    known = Holder.parse(holder)
    return f"process {known.pid} on {known.host}" if known else "another process"


class _Stat(NamedTuple):
    ended: bool
    """all of its threads ended, and its parent has not reaped it yet"""
    started: str


def _stat(pid: str) -> _Stat | None:
    """The state of a process on Linux; None on other systems, and if it is hidden."""
    try:
        text = (_PROC / pid / "stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may contain anything
    return _Stat(fields[0] in "ZX" and int(fields[17]) <= 1, fields[19])


@lru_cache(maxsize=1)  # by pid: a forked child is another process
def _view(pid: int) -> tuple[str, str]:
    """This process's view of pids, and its own start time."""
    if os.name != "posix":
        return "-", "-"  # os.kill ends a process there
    if not _PROC.exists():
        return f"{uuid.getnode():x}", "-"
    try:
        if os.readlink(_PROC / "self") != str(pid):
            return "-", "-"  # /proc belongs to another namespace
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        view = f"{boot}/{os.readlink(_PROC / 'self/ns/pid')}"
        with suppress(FileNotFoundError):  # older kernels have none
            view += f"/{os.readlink(_PROC / 'self/ns/time')}"  # start times depend on it
    except OSError:
        return "-", "-"
    own = _stat("self")
    return (view, own.started) if own else ("-", "-")


def _host() -> str:
    return socket.gethostname().replace(" ", "-") or "-"
