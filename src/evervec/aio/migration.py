"""A migration of an asynchronous store: the methods of `Migration`, awaited."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from evervec.aio.methods import Awaited, awaited, like, operated
from evervec.model.reports import MigrationStatus
from evervec.versions.migration import Migration


class AsyncMigration(Awaited[Migration]):
    """A change from one embedding version to another; see `Migration`."""

    @property
    def version(self) -> str:
        """The name of the new version."""
        return self._inner.version

    def __repr__(self) -> str:
        return f"AsyncMigration({self.version!r})"

    status = awaited(Migration.status)
    compare = operated(Migration.compare)
    switch = operated(Migration.switch)
    rollback = awaited(Migration.rollback)
    cancel = awaited(Migration.cancel)
    retire = awaited(Migration.retire)

    @like(Migration.wait)
    async def wait(
        self,
        timeout: float | None = None,
        progress: Callable[[MigrationStatus], object] | None = None,
    ) -> MigrationStatus:
        now = asyncio.get_running_loop().time
        ends = math.inf if timeout is None else now() + timeout
        while True:
            status = await self.status()
            if progress is not None:
                progress(status)
            if status.ends_wait:
                return status
            if (left := ends - now()) <= 0:
                raise self._inner.timed_out(status, timeout)
            await asyncio.sleep(min(left, self._inner.poll_seconds))
