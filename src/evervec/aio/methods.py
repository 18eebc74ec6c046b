"""Awaited forms of synchronous methods. The signatures are those of the synchronous methods, for the
type checker and at run time, so that they are written once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial, update_wrapper, wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from evervec.aio.connections import CallersConnection
from evervec.aio.runner import Runner

S_co = TypeVar("S_co", covariant=True)
P = ParamSpec("P")
R = TypeVar("R")


class Awaited(Generic[S_co]):
    """The awaited form of an object of the library, which it calls in threads."""

    def __init__(self, inner: S_co, runner: Runner, tenant: str) -> None:
        self._inner = inner
        self._runner = runner
        self._tenant = tenant

    def _call(self, method: Callable[..., R], *args: Any, **kwargs: Any) -> Coroutine[Any, Any, R]:
        """A call of the store."""
        conn = kwargs.get("conn")
        if conn is None:
            do = partial(method, self._inner, *args, **kwargs)
            return self._runner.run(self._runner.calls, self._tenant, do)
        caller = CallersConnection(conn)
        given = kwargs | {"conn": caller.inner}
        return self._runner.join(caller, partial(method, self._inner, *args, **given))

    def _operate(
        self, method: Callable[..., R], *args: Any, **kwargs: Any
    ) -> Coroutine[Any, Any, R]:
        """A long operation, apart from the calls of the store. `progress` is called in the event
        loop."""
        if "progress" in kwargs:
            kwargs["progress"] = in_loop(kwargs["progress"])
        do = partial(method, self._inner, *args, **kwargs)
        return self._runner.run(self._runner.operations, self._tenant, do)


def in_loop(progress: Callable[[int], object] | None) -> Callable[[int], object] | None:
    """A function for a thread that calls this one in the running loop."""
    if progress is None:
        return None
    loop = asyncio.get_running_loop()
    return lambda count: loop.call_soon_threadsafe(progress, count)


def awaited(
    method: Callable[Concatenate[S_co, P], R],
) -> Callable[Concatenate[Awaited[S_co], P], Coroutine[Any, Any, R]]:
    """The awaited form of a method that calls the store."""

    @wraps(method)
    def call(self: Awaited[S_co], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        return self._call(method, *args, **kwargs)

    return call


def operated(
    method: Callable[Concatenate[S_co, P], R],
) -> Callable[Concatenate[Awaited[S_co], P], Coroutine[Any, Any, R]]:
    """The awaited form of a method that may take long."""

    @wraps(method)
    def call(self: Awaited[S_co], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        return self._operate(method, *args, **kwargs)

    return call


def like(
    method: Callable[Concatenate[S_co, P], Any],
) -> Callable[[Callable[..., R]], Callable[Concatenate[Awaited[S_co], P], R]]:
    """Give a method the signature and docstring of a synchronous one."""

    def give(own: Callable[..., R]) -> Callable[Concatenate[Awaited[S_co], P], R]:
        doc = own.__doc__
        update_wrapper(own, method)
        own.__doc__ = doc or method.__doc__
        return own

    return give
