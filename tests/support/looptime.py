"""A service called in this process, and how long its event loop was held by one piece of work."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from evervec.server.requests import App, Message, Scope


class Held:
    """The longest processor time of the loop's thread for one callback. Other threads and processes
    do not count, so that a busy machine changes nothing."""

    seconds = 0.0


@contextmanager
def watching(held: Held) -> Iterator[None]:
    """Measure the callbacks of the event loop that runs in this thread. Meanwhile no garbage is
    collected: a test has far more objects than a service."""
    run = asyncio.Handle._run

    def measured(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        try:
            run(handle)
        finally:
            held.seconds = max(held.seconds, time.thread_time() - began)

    gc.disable()
    asyncio.Handle._run = measured  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]
        gc.enable()


def scope_of(method: str, address: str, key: str, body: bytes, **headers: str) -> Scope:
    path, _, query = address.partition("?")
    sent = {"host": "service", "authorization": f"Bearer {key}", **headers}
    if body:
        sent = {"content-type": "application/json", "content-length": str(len(body)), **sent}
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
        "scheme": "http", "path": path, "raw_path": path.encode(), "root_path": "",
        "query_string": query.encode(), "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        "headers": [(name.encode(), value.encode()) for name, value in sent.items()], "state": {},
    }  # fmt: skip


async def ask(
    app: App, method: str, address: str, key: str, body: bytes = b"", **headers: str
) -> tuple[int, bytes]:
    """The status and the body of a response; of a stream up to its first event."""
    return await _asked(app, scope_of(method, address, key, body, **headers), body)


async def _asked(app: App, scope: Scope, body: bytes) -> tuple[int, bytes]:
    status, parts, sent = 0, list[bytes](), False
    gone = asyncio.Event()

    async def receive() -> Message:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal status
        status = message.get("status", status)
        parts.append(message.get("body", b""))
        if b"data: " in parts[-1] and message.get("more_body"):
            gone.set()

    await app(scope, receive, send)
    return status, b"".join(parts)


@contextmanager
def running(app: Any) -> Iterator[asyncio.Runner]:
    """A loop with the application's lifespan."""

    async def lived() -> AsyncIterator[None]:
        async with app.router.lifespan_context(app):
            yield

    with asyncio.Runner() as runner:
        life = lived()
        runner.run(anext(life))  # type: ignore[arg-type]
        try:
            yield runner
        finally:
            runner.run(anext(life, None))
