"""Ends the statements of a connection when the caller's deadline has passed."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Any

import psycopg

from evervec.model.deadlines import exceeded, interrupting
from evervec.runtime.threads import start

_CUT_AFTER = 100
"""A connection is cut after this many checks of the deadline's thread (two seconds)."""


class Interrupt:
    """A connection whose statements end at the caller's deadline: first by a cancel request to
    the server and, if that does not help, by cutting the connection. The connection is then closed
    instead of reused, because the server may act on the request late.

    A cancelled statement is rolled back; one that succeeded is not. A commit whose answer was cut
    off may have succeeded or not, and is reported as a lost connection."""

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        self._raw = raw
        self._fileno = raw.fileno()
        self._calls = 0
        self._guard = interrupting(self)

    def __call__(self) -> None:
        self._calls += 1
        if self._calls == 1:
            start("evervec-cancel", self._cancel)
        elif self._calls == _CUT_AFTER:
            with socket.socket(fileno=os.dup(self._fileno)) as connection:
                connection.shutdown(socket.SHUT_RDWR)

    def _cancel(self) -> None:
        with suppress(psycopg.Error):
            self._raw.cancel_safe(timeout=2.0)

    def __enter__(self) -> None:
        self._guard.__enter__()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._guard.__exit__()
        if self._calls:
            self._raw.close()
        if self._calls >= _CUT_AFTER and isinstance(error, psycopg.OperationalError):
            raise exceeded() or error from error
