"""A migration in a service, with the methods of `Migration`."""

from __future__ import annotations

import time
from typing import Any

from evervec.client.connection import Connection
from evervec.errors import WaitTimeout
from evervec.model.reports import MigrationStatus

_PATH = "/v1/migrations"


class RemoteMigration:
    """The migration that is in progress or can be rolled back; needs a platform admin's key."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @classmethod
    def begin(cls, connection: Connection, **asked: Any) -> RemoteMigration:
        connection.ask("POST", _PATH, json_body=asked)
        return cls(connection)

    def status(self) -> MigrationStatus:
        return self._connection.get(MigrationStatus, _PATH)

    def wait(self, timeout: float | None = None) -> MigrationStatus:
        """Wait until the new version is complete except for failed records, and, if it switches
        automatically, until the switch."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            status = self.status()
            if status.over or (status.settled and not status.awaits_switch):
                return status
            if deadline is not None and time.monotonic() > deadline:
                raise WaitTimeout(f"{status.version} is not complete after {timeout:g} s")
            time.sleep(0.2)

    def switch(self, *, force: bool = False) -> None:
        self._take("switch", {"force": force})

    def rollback(self) -> None:
        self._take("rollback")

    def retire(self) -> None:
        self._take("retire")

    def cancel(self) -> None:
        self._take("cancel")

    def _take(self, step: str, body: dict[str, Any] | None = None) -> None:
        self._connection.ask("POST", f"{_PATH}/{step}", json_body=body or {})
