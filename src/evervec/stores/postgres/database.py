"""Which database a connection is to: a caller's must be to the store's own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any
from weakref import WeakSet

from evervec.errors import StoreError

_IDENTITY = (
    "select d.oid::bigint, c.system_identifier from pg_database as d, pg_control_system() as c "
    "where d.datname = current_database()"
)
"""the same behind a pooler, by another address, and on a replica"""


class OwnDatabase:
    """The database of a store."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._identity: tuple[int, int] | None = None
        self._known: WeakSet[Any] = WeakSet()
        """callers' connections that are to it"""

    def check(self, joined: Any, own: Callable[[], AbstractContextManager[Any]]) -> None:
        """Refuse a caller's session in another database, which may have a store of its own. Each
        connection is looked at once. `own`: a session of the store."""
        if joined.raw in self._known:
            return
        identity = joined.execute(_IDENTITY).fetchone()
        if identity != self._identity:  # or the store's own has changed: another server took over
            with own() as session:
                self._identity = session.execute(_IDENTITY).fetchone()
        if identity != self._identity:
            raise StoreError(
                f"conn= is a connection to another database than {self._name}; nothing was "
                "written: give one to the store's own"
            )
        with suppress(TypeError):  # a connection of asyncpg's pool, which is looked at each time
            self._known.add(joined.raw)
