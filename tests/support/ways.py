"""The ways to use one store, each as if it were `Evervec`: the library, the library for asyncio, and
the clients of a service. Asynchronous objects are used from synchronous code here, so that one test
says what all ways do."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from evervec import AsyncClient, AsyncEvervec, Client, Evervec
from support.service import serving

_PLAIN = ("evervec.model", "builtins")


class Blocking:
    """An asynchronous object whose methods block until what they return is there."""

    def __init__(self, inner: Any, loop: asyncio.Runner) -> None:
        self._inner = inner
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        return self._wrapped(getattr(self._inner, name))

    def _wrapped(self, value: Any) -> Any:
        if inspect.ismethod(value):
            return lambda *args, **kwargs: self._ended(value, args, kwargs)
        if value is None or type(value).__module__.startswith(_PLAIN):
            return value
        return Blocking(value, self._loop)

    def _ended(self, method: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        async def call() -> Any:
            async with asyncio.timeout(60):
                made = method(*args, **kwargs)
                return await made if inspect.isawaitable(made) else made

        made = self._loop.run(call())
        return self._each(made) if isinstance(made, AsyncIterator) else self._wrapped(made)

    def _each(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        async def step() -> tuple[Any, ...]:
            try:
                return (await anext(items),)
            except StopAsyncIteration:
                return ()

        while found := self._loop.run(step()):
            yield from found


@contextmanager
def by_library(store: Evervec) -> Iterator[Evervec]:
    yield store


@contextmanager
def by_asyncio(store: Evervec) -> Iterator[Evervec]:
    async def make() -> AsyncEvervec:
        return AsyncEvervec(store)

    with asyncio.Runner() as loop:
        ev = loop.run(make())
        try:
            yield cast(Evervec, Blocking(ev, loop))
        finally:
            loop.run(ev.close())


@contextmanager
def by_http(store: Evervec) -> Iterator[Evervec]:
    with serving() as serve, Client(serve(store).url) as client:
        yield cast(Evervec, client)


@contextmanager
def by_async_http(store: Evervec) -> Iterator[Evervec]:
    with serving() as serve, asyncio.Runner() as loop:
        client = AsyncClient(serve(store).url)
        try:
            yield cast(Evervec, Blocking(client, loop))
        finally:
            loop.run(client.close())


WAYS = {
    "library": by_library,
    "asyncio": by_asyncio,
    "http": by_http,
    "async http": by_async_http,
}
