"""One asynchronous store for each test, in the event loop of the test."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import pytest

from evervec import AsyncEvervec
from evervec.aio.facade import AsyncOpener
from support.world import World

Test = Callable[[AsyncEvervec], Coroutine[Any, Any, Any]]


class Run(Protocol):
    """Runs a test's coroutine function with an open store."""

    def __call__(self, test: Test, **settings: Any) -> Any: ...


@pytest.fixture
def run(file_world: World) -> Run:
    def run(test: Test, **settings: Any) -> Any:
        async def main() -> Any:
            async with AsyncOpener(lambda: file_world.open(**settings)) as ev:
                async with asyncio.timeout(60):
                    return await test(ev)

        return asyncio.run(main(), debug=False)

    return run
